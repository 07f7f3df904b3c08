"""Time in the platform: timezone-aware, UTC, in whole milliseconds, as BSON stores it."""

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

#: The longest total time, in seconds, of each call that decides whether a process counts as alive: a heartbeat, a
#: step of a tick, a probe. A process counts as dead only after at least four times this without a heartbeat.
VERDICT_SECONDS = 3.0
#: For this many seconds a node uses the time that its tailer has written to a file. Without a heartbeat, it counts as
#: dead before that.
FRESH_SECONDS = 60.0
#: The current block's deadline, by the monotonic clock.
_DEADLINE: ContextVar[float] = ContextVar("deadline", default=float("inf"))
#: A clock that continues while the machine sleeps. On macOS this is `CLOCK_MONOTONIC`, but not `time.monotonic()`.
_STEADY: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def truncate(moment: datetime) -> datetime:
    """`moment` in UTC, truncated to milliseconds, so that MongoDB stores exactly this time."""
    utc = moment.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


#: The latest time of a file that is used, 9000-01-01, in seconds since the epoch.
_LATEST = 221_845_392_000.0


def from_timestamp(seconds: float) -> datetime:
    """The time of a file's timestamp. A file's owner can set any timestamp, even one that Python and MongoDB cannot
    represent: times before 1970 become 1970, and times after 9000-01-01 become 9000-01-01.
    """
    return truncate(datetime.fromtimestamp(min(max(seconds, 0.0), _LATEST), UTC))


def utc_now() -> datetime:
    """This machine's time."""
    return truncate(datetime.now(UTC))


def seconds_ahead(moment: datetime) -> float:
    """By how many seconds this machine's clock is ahead of a clock that now shows `moment`."""
    return (utc_now() - moment).total_seconds()


def steady_seconds() -> float:
    """Seconds of a clock that is not affected when this machine's time is set, and continues while it sleeps."""
    return time.clock_gettime(_STEADY)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """A block in which calls must be answered within `seconds`, or sooner if an outer block has less time left."""
    token = _DEADLINE.set(min(_DEADLINE.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def remaining(most: float) -> float:
    """Seconds that a call in the current block may take, at most `most`; zero or less after the block's deadline."""
    return min(most, _DEADLINE.get() - time.monotonic())


class SteadyClock:
    """A clock that starts at `moment` and runs evenly, even if this machine's time is set. `turn` corrects it."""

    def __init__(self, moment: datetime, steady: Callable[[], float] = steady_seconds) -> None:
        self._steady = steady
        # a single value, so that no thread sees a half-made change
        self._zero = moment - timedelta(seconds=steady())

    def __call__(self) -> datetime:
        return truncate(self._zero + timedelta(seconds=self._steady()))

    def turn(self, by: timedelta) -> None:
        self._zero += by


def time_of_node(folder: Path) -> datetime:
    """MongoDB's time, from the file that the tailer of the node in `folder` has written, even if this machine's clock
    is wrong. If the tailer has written nothing for `FRESH_SECONDS`, this machine's time.
    """
    with suppress(OSError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
        saved = json.loads(read_file(folder / CLOCK))
        since = steady_seconds() - saved["steady"]
        # after a restart of the machine, the steady clock starts from zero, so `since` can be negative
        if 0 <= since <= FRESH_SECONDS:
            return truncate(datetime.fromisoformat(saved["moment"]) + timedelta(seconds=since))
    return utc_now()


def to_iso(moment: datetime) -> str:
    """The time as `2027-06-01T09:00:01.250Z`, the format of all times in JSON, logs and files."""
    return truncate(moment).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
