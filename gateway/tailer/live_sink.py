"""What goes to Redis: for those who watch, and only for them."""

from __future__ import annotations

import redis

from gateway.redis.log_stream import LogStream
from gateway.tailer.attempt import Attempt
from gateway.tailer.log_shipper import LiveLogShipper


class LiveSink:
    name = "Redis"

    def __init__(self, stream: LogStream) -> None:
        self._stream = stream
        self._log = LiveLogShipper(stream)

    def ship(self, attempt: Attempt) -> bool:
        """Ship some of what is new; whether there may be more. Raises `redis.RedisError`."""
        more = self._log.ship(attempt)
        watch = attempt.progress_published
        if progress := watch.news(ended=attempt.log_end is not None):
            self._stream.publish_progress(attempt.id, progress)
            watch.told()
        return more

    def is_away(self, error: Exception) -> bool:
        return isinstance(error, redis.ConnectionError | redis.TimeoutError)
