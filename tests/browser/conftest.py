from __future__ import annotations

from integration.event_stream.fixtures import database, play, redis_client, streams, valkey

__all__ = ["database", "play", "redis_client", "streams", "valkey"]
