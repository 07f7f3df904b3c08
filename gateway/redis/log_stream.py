"""The live end of every log: a stream per attempt for those who come now, a channel for those who are here."""

from __future__ import annotations

from collections.abc import Sequence

import redis

from gateway.crash_points import state_change
from gateway.domain.live_event import log_event, progress_event
from gateway.domain.log_line import LogEntry
from gateway.domain.node_files import AttemptId, Progress
from gateway.domain.redis_keys import job_channel, log_stream

#: Entries that a stream keeps, roughly; who wants older ones reads MongoDB.
MAX_ENTRIES = 20_000
#: Bytes that a stream keeps, roughly: fewer entries where they are long.
MAX_BYTES = 32 << 20
#: Entries that even the longest lines are allowed.
MIN_ENTRIES = 16
_NOT_NEWER = "equal or smaller than the target stream top item"


class LogStream:
    """All methods raise `redis.RedisError`; repeating any of them changes nothing that a reader could see."""

    def __init__(self, client: redis.Redis, ttl: int) -> None:
        self._redis = client
        #: Seconds a stream lives after its last line.
        self._ttl = ttl

    @state_change("log_stream.append")
    def append(self, attempt_id: AttemptId, entries: Sequence[LogEntry]) -> None:
        """Add `entries`, in order, and publish them. Those that the stream has already are published again: nobody
        knows whether they were before, and a reader goes by their positions.
        """
        key = log_stream(*attempt_id)
        limit = _max_entries(entries)
        with self._redis.pipeline(transaction=False) as pipeline:
            for entry in entries:
                name = f"{attempt_id.attempt}-{entry.end}"
                pipeline.xadd(key, {"s": entry.start, "d": entry.to_json()}, id=name, maxlen=limit, approximate=True)
            # a key that was lost and made anew has lost its time to live as well: renewed with each write
            pipeline.expire(key, self._ttl)
            pipeline.publish(job_channel(attempt_id.job_id), log_event(attempt_id.attempt, list(entries)))
            answers = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, redis.RedisError) and _NOT_NEWER not in str(answer):
                raise answer

    @state_change("log_stream.publish_progress")
    def publish_progress(self, attempt_id: AttemptId, progress: Progress) -> None:
        self._redis.publish(job_channel(attempt_id.job_id), progress_event(attempt_id.attempt, progress))


def _max_entries(entries: Sequence[LogEntry]) -> int:
    """As many as fit into `MAX_BYTES` if all were as long as these."""
    size = entries[-1].end - entries[0].start
    return max(MIN_ENTRIES, min(MAX_ENTRIES, MAX_BYTES * len(entries) // max(size, 1)))
