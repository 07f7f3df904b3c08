"""A platform whose stores and broker are the test's own, to be killed, frozen, emptied and brought back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from stack import Stack, running_stack
from stores import StoreProcess, embedded_mongo, valkey_server


class Platform(NamedTuple):
    stack: Stack
    mongo: StoreProcess
    redis: StoreProcess
    #: A Redis of its own: what is kept in the other one is not away with it.
    broker: StoreProcess
    #: Empty, unless somebody is to die (`gateway/crash_points.py`).
    plan: Path

    def die_at(self, point: str) -> Path:
        """Whoever comes there first; the file is gone once it is dead."""
        path = self.plan / point
        path.touch()
        return path


@contextmanager
def breakable_platform(home: Path, **variables: str) -> Iterator[Platform]:
    plan = home / "plan"
    plan.mkdir(parents=True)
    with (
        embedded_mongo(home / "mongo") as mongo,
        valkey_server(home / "redis") as redis,
        valkey_server(home / "broker") as broker,
    ):
        own = {
            "MONGO_URI": str(mongo),
            "REDIS_URL": str(redis),
            "BROKER_URL": str(broker),
            "DISCOVERYBOT_CRASH_PLAN": str(plan),
            "DISCOVERYBOT_RESTART_BACKOFF_MAX": "0.2",
            "CRAWL_STOP_GRACE": "3",
        }
        with running_stack(home / "home", **own, **variables) as stack:
            yield Platform(stack, mongo, redis, broker, plan)
