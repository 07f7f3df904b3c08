"""Watches heartbeats: a node is dead once *we* saw its heartbeat stand still, again and again, for long enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from gateway.storage.nodes import Node

#: Observations further apart than this do not add up: a store may have been away in between.
_MAX_GAP = 15.0


class _Watch(NamedTuple):
    """What this process has seen of a node's heartbeat; times by the monotonic clock."""

    heartbeat_at: datetime
    unchanged_since: float
    seen_at: float


class NodeWatch:
    """Kept by whoever looks at all nodes all the time. An old time stamp alone proves nothing: nobody could write
    one while the database was away.
    """

    def __init__(self, dead_after: timedelta, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._dead_after = dead_after.total_seconds()
        self._monotonic = monotonic
        self._watches: dict[str, _Watch] = {}

    def is_dead(self, node: Node) -> bool:
        """To be asked at least every few seconds."""
        now = self._monotonic()
        watch = self._watches.get(node.id)
        if watch is None or watch.heartbeat_at != node.heartbeat_at or now - watch.seen_at > _MAX_GAP:
            watch = _Watch(node.heartbeat_at, now, now)
        self._watches[node.id] = watch._replace(seen_at=now)
        return now - watch.unchanged_since >= self._dead_after
