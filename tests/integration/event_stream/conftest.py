from __future__ import annotations

from integration.event_stream.fixtures import (
    database,
    mongo_url,
    play,
    redis_client,
    shared_database,
    streams,
    valkey,
)

__all__ = ["database", "mongo_url", "play", "redis_client", "shared_database", "streams", "valkey"]
