"""Time, as the platform keeps it: aware, UTC, whole milliseconds (what BSON can hold)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

#: Hands out the present time; injected wherever a test must be able to turn it.
Clock = Callable[[], datetime]


def truncate(moment: datetime) -> datetime:
    """`moment` in UTC, cut to the millisecond, so that what was written equals what is read back."""
    utc = moment.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def utc_now() -> datetime:
    return truncate(datetime.now(UTC))


def offset_clock(offset: timedelta) -> Clock:
    """A clock that runs `offset` ahead of this machine's: MongoDB's time, as measured once by the client."""
    return lambda: utc_now() + offset


def to_iso(moment: datetime) -> str:
    """`2027-06-01T09:00:01.250Z`: the one spelling of a time in JSON, logs and files."""
    return truncate(moment).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
