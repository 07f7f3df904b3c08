"""Time, as the platform keeps it: aware, UTC, whole milliseconds (what BSON can hold)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gateway.contract.outbox import CLOCK, read_file

#: Hands out the present time; injected wherever a test must be able to turn it.
Clock = Callable[[], datetime]

#: Seconds that what a verdict rests on may take in all: a heartbeat, a step of a tick, a probe. Nobody is taken for
#: dead who was silent for less than four times as long.
VERDICT_SECONDS = 3.0
#: Seconds for which a node goes by what its tailer has written down; longer than it lives without a heartbeat.
FRESH_SECONDS = 60.0
#: When what this thread is at must be over, by the monotonic clock.
_DEADLINE: ContextVar[float] = ContextVar("deadline", default=float("inf"))
#: Goes on while the machine sleeps. So does macOS's monotonic clock, but not Python's `time.monotonic()` there.
_STEADY: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def truncate(moment: datetime) -> datetime:
    """`moment` in UTC, cut to the millisecond, so that what was written equals what is read back."""
    utc = moment.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def utc_now() -> datetime:
    return truncate(datetime.now(UTC))


def seconds_ahead(moment: datetime) -> float:
    """By how much this machine's clock is ahead of the one that shows `moment` now."""
    return (utc_now() - moment).total_seconds()


def steady_seconds() -> float:
    """Counts on when somebody turns this machine's clock, and while it sleeps."""
    return time.clock_gettime(_STEADY)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """What the block asks must be answered within so many seconds, or sooner where a block around it says so."""
    token = _DEADLINE.set(min(_DEADLINE.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def remaining(most: float) -> float:
    """Seconds that a call may take that may take `most` elsewhere; not positive once the time is over."""
    return min(most, _DEADLINE.get() - time.monotonic())


class SteadyClock:
    """A clock that was set once, or now and then, and goes on by itself from there."""

    def __init__(self, moment: datetime, steady: Callable[[], float] = steady_seconds) -> None:
        self._steady = steady
        # one value, so that no thread sees half of a change
        self._zero = moment - timedelta(seconds=steady())

    def __call__(self) -> datetime:
        return truncate(self._zero + timedelta(seconds=self._steady()))

    def turn(self, by: timedelta) -> None:
        self._zero += by


def time_of_node(folder: Path) -> datetime:
    """MongoDB's time by what the tailer of the node in `folder` has written down, however far this machine's clock is
    off; that clock's where nothing was written for a while.
    """
    with suppress(OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
        told = json.loads(read_file(folder / CLOCK))
        since = steady_seconds() - told["steady"]
        # after a restart of the machine it counts from zero
        if 0 <= since <= FRESH_SECONDS:
            return truncate(datetime.fromisoformat(told["moment"]) + timedelta(seconds=since))
    return utc_now()


def to_iso(moment: datetime) -> str:
    """`2027-06-01T09:00:01.250Z`: the one spelling of a time in JSON, logs and files."""
    return truncate(moment).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
