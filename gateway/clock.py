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

#: Returns the present time; injected wherever a test must be able to set it.
Clock = Callable[[], datetime]

#: Longest total time, in seconds, of each call on which a verdict on liveness rests: a heartbeat, a step of a tick, a
#: probe. A process counts as dead only after at least four times as long without a heartbeat.
VERDICT_SECONDS = 3.0
#: Seconds for which a node uses the time that its tailer has written to a file. This is longer than a node counts as
#: alive without a heartbeat.
FRESH_SECONDS = 60.0
#: The current block's deadline, by the monotonic clock.
_DEADLINE: ContextVar[float] = ContextVar("deadline", default=float("inf"))
#: A clock that goes on while the machine sleeps. macOS's monotonic clock does, too, but not Python's
#: `time.monotonic()` there.
_STEADY: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def truncate(moment: datetime) -> datetime:
    """`moment` in UTC, cut to the millisecond, so that it is the same after MongoDB has stored it."""
    utc = moment.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


#: The latest time of a file: 9000-01-01.
_LATEST = 221_845_392_000.0


def from_timestamp(seconds: float) -> datetime:
    """The moment of a file's time stamp. A file's owner can set any, and some disks store years that Python and
    MongoDB cannot represent: those before 1970 become 1970, those after 9000 become 9000.
    """
    return truncate(datetime.fromtimestamp(min(max(seconds, 0.0), _LATEST), UTC))


def utc_now() -> datetime:
    return truncate(datetime.now(UTC))


def seconds_ahead(moment: datetime) -> float:
    """By how many seconds this machine's clock is ahead of the one that shows `moment` now."""
    return (utc_now() - moment).total_seconds()


def steady_seconds() -> float:
    """Seconds of a clock that runs evenly when this machine's time is set, and goes on while the machine sleeps."""
    return time.clock_gettime(_STEADY)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Calls in the block must be answered within `seconds`, or sooner if an outer block has less time left."""
    token = _DEADLINE.set(min(_DEADLINE.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def remaining(most: float) -> float:
    """Seconds that a call inside the current block may take: at most `most`; zero or less once the time is over."""
    return min(most, _DEADLINE.get() - time.monotonic())


class SteadyClock:
    """A clock that is set once, or now and then, and runs by itself from there."""

    def __init__(self, moment: datetime, steady: Callable[[], float] = steady_seconds) -> None:
        self._steady = steady
        # one value, so that no thread sees half of a change
        self._zero = moment - timedelta(seconds=steady())

    def __call__(self) -> datetime:
        return truncate(self._zero + timedelta(seconds=self._steady()))

    def turn(self, by: timedelta) -> None:
        self._zero += by


def time_of_node(folder: Path) -> datetime:
    """MongoDB's time, from what the tailer of the node in `folder` has written; an error of this machine's clock does
    not matter. If the tailer has written nothing for `FRESH_SECONDS`, it is this machine's time.
    """
    with suppress(OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
        saved = json.loads(read_file(folder / CLOCK))
        since = steady_seconds() - saved["steady"]
        # after a restart of the machine the steady clock counts from zero
        if 0 <= since <= FRESH_SECONDS:
            return truncate(datetime.fromisoformat(saved["moment"]) + timedelta(seconds=since))
    return utc_now()


def to_iso(moment: datetime) -> str:
    """The time as `2027-06-01T09:00:01.250Z`, the one format of times in JSON, logs and files."""
    return truncate(moment).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
