"""A platform with stores and a broker of the test's own, which the test can kill, freeze, empty and start again."""

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
    #: A separate Redis, so that the other one keeps its data when this one is away.
    broker: StoreProcess
    #: Empty, unless a process is to be killed (`gateway/crash_points.py`).
    plan: Path

    def die_at(self, point: str) -> Path:
        """Kill the first process that reaches this point. The returned file is gone once the process is dead."""
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
