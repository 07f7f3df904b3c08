"""Beats as real processes on real stores. Tests kill them, start them again, and set their clocks wrong."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pymongo
import warm
from pymongo.database import Database
from stores import ROOT, StoreProcess, embedded_mongo, valkey_server
from warm import WarmProcess

_SCHEDULER = "gateway.worker.beat:MongoScheduler"


class Beat:
    """One beat, with a clock of its own."""

    def __init__(self, home: Path, environment: Mapping[str, str], scheduler: str) -> None:
        home.mkdir(parents=True)
        self._log = home / "beat.log"
        self._clock = home / "clock"
        # a pid file would remain after a kill
        self._arguments = ("--quiet", "-A", "celery_app", "beat", "--scheduler", scheduler, "--pidfile", "")
        self._environment = {**environment, "WRONG_CLOCK": str(self._clock)}
        self.turn(0)
        self._process: WarmProcess | None = None
        #: How often it was ended by a signal.
        self.killed = 0

    def turn(self, seconds: int) -> None:
        """Set its wall clock ahead by `seconds` from now on, at whatever step it is (`wrong_clock.py`)."""
        fresh = self._clock.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self._clock)

    def start(self) -> None:
        self._process = warm.start(
            "celery.__main__", *self._arguments, env=self._environment, cwd=ROOT, stdout=self._log
        )

    def signal(self, signum: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(signum)

    def stands_still(self) -> bool:
        return self._process is not None and psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED

    def has_ended(self) -> bool:
        if self._process is None or self._process.poll() is None:
            return False
        assert self._process.returncode == -signal.SIGKILL, self._log.read_text()[-4000:]
        self.killed += 1
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Beats(threading.Thread):
    """Several beats. Each is started again after it has been killed."""

    def __init__(self, beats: list[Beat]) -> None:
        super().__init__(daemon=True)
        self.beats = beats
        self._enough = threading.Event()
        self.failure: BaseException | None = None

    def __enter__(self) -> list[Beat]:
        for beat in self.beats:
            beat.start()
        self.start()
        return self.beats

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self.join()
        for beat in self.beats:
            beat.stop()
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        try:
            while not self._enough.wait(0.05):
                for beat in self.beats:
                    if beat.has_ended():
                        beat.start()
        except BaseException as error:  # noqa: BLE001 - passed on to the test, which fails with it
            self.failure = error


class Arena:
    """The stores, and beats that use them."""

    def __init__(self, home: Path, mongo: str, redis: str, broker: StoreProcess) -> None:
        self.home, self.mongo, self.broker = home, mongo, broker
        self.plan = home / "plan"
        self.plan.mkdir()
        self._environment = {
            **os.environ,
            "MONGO_URI": mongo,
            "REDIS_URL": redis,
            "BROKER_URL": str(broker),
            "DISCOVERYBOT_HOME": str(home),
            "DISCOVERYBOT_CRASH_PLAN": str(self.plan),
            "PYTHONPATH": str(Path(__file__).parent),
        }
        self._numbers = iter(range(1000))
        self.client = pymongo.MongoClient[dict[str, Any]](mongo, tz_aware=True)
        self.database: Database[dict[str, Any]] = self.client.get_default_database()

    def beats(self, count: int, *, scheduler: str = _SCHEDULER) -> Beats:
        return Beats(
            [Beat(self.home / f"beat{next(self._numbers)}", self._environment, scheduler) for _ in range(count)]
        )

    def die_at(self, *points: str) -> None:
        """Kill the first beat that reaches one of these crash points."""
        for point in points:
            (self.plan / point).touch()

    def stand_still_at(self, *points: str) -> None:
        """As `die_at`, but stop the beat with SIGSTOP."""
        for point in points:
            # written in one step: a beat that found the file empty would die
            fresh = self.plan.with_name(f"{point}.new")
            fresh.write_text("SIGSTOP")
            fresh.replace(self.plan / point)

    def not_reached(self) -> list[str]:
        return sorted(path.name for path in self.plan.iterdir())


@contextmanager
def arena(home: Path) -> Iterator[Arena]:
    home.mkdir(parents=True, exist_ok=True)
    with (
        embedded_mongo(home / "mongo") as mongo,
        valkey_server(home / "redis") as redis,
        valkey_server(home / "broker") as broker,
    ):
        arena = Arena(home, mongo, str(redis), broker)
        try:
            yield arena
        finally:
            arena.client.close()
