"""Five-field cron in a time zone, as Debian's cron has it; cronsim reads the fields and knows the days.

Where clocks change, Debian tells two kinds of jobs apart. One at *fixed times* (neither the minute nor the hour field
begins with `*`) runs right after a skipped hour if its time was in there, and once in a repeated one. All others
follow elapsed time: they run whenever the local clock shows a time that matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

from cronsim import CronSim, CronSimError

from gateway.domain.errors import InvalidRequestError

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
#: Each field's name, what may stand there, and a value by which the other fields are tried.
FIELDS = (
    ("minute", "0 to 59", "0"),
    ("hour", "0 to 23", "0"),
    ("day of the month", "1 to 31, L (the last day) or LW (the last weekday)", "1"),
    ("month", "1 to 12 or JAN to DEC", "1"),
    ("day of the week", "0 to 7 or SUN to SAT, MON#1 to MON#5 (the n-th Monday), 5L (the last Friday)", "*"),
)
#: Characters; no sensible expression comes near.
MAX_LENGTH = 200
#: All clocks are changed at full quarters of an hour, local time.
_QUARTER = 15
#: How far back the slot before a moment is looked for, step by step; 50 years are as far as cronsim looks ahead.
_WINDOWS = tuple(timedelta(days=days) for days in (1 / 24, 1, 32, 367, 5 * 366, 50 * 366))


#: A range of one value, which cronsim takes for one without an end.
_ONE_VALUE = re.compile(r"\b(\w+)-\1/(?=[1-9])\d+")


class Cron:
    """The times of one expression; immutable."""

    def __init__(self, text: str, zone: tzinfo) -> None:
        """Raises `InvalidRequestError("interval")` for what is not cron or never comes to pass."""
        self._expression = _read(text)
        self._zone = zone
        if self.after(datetime(2026, 1, 1, tzinfo=UTC)) is None:
            raise _never(text)

    def walk(self, moment: datetime) -> Iterator[datetime]:
        """Every time later than `moment`, in UTC and in order; ends where there is none within 50 years."""
        latest = moment
        walk = _Walk(self._expression, moment.astimezone(self._zone))
        while True:
            try:
                found = next(walk).astimezone(UTC)
            except (StopIteration, OverflowError, ValueError):
                # the latter two: past the year 9999
                return
            if found > latest:
                # a time in a skipped hour falls on the end of that hour, and one in a repeated hour may be past
                yield found
                latest = found

    def after(self, moment: datetime) -> datetime | None:
        return next(self.walk(moment), None)

    def newest(self, moment: datetime, count: int) -> list[datetime]:
        """The last `count` times that are not later than `moment`; fewer if there are no more in 50 years."""
        times: list[datetime] = []
        for window in _WINDOWS:
            times = []
            for time in self.walk(moment - window):
                if time > moment:
                    break
                times.append(time)
            if len(times) >= count:
                break
        return times[-count:]


class _Walk(CronSim):
    """cronsim, mended for zones whose clocks change by half an hour or in the middle of one, or at midnight.

    cronsim walks in whole hours from a full hour, and so comes by 02:00 and 02:15 on Lord Howe Island when the clocks
    go from 02:00 back to 01:30. Here no step goes past a full quarter of an hour.
    """

    def advance_hour(self) -> bool:
        if self._is_plain or self.dt.hour in self.hours:
            return super().advance_hour()
        day = self.dt.date()
        while self.dt.hour not in self.hours and self.dt.date() == day:
            self._to_minute(self._next_quarter())
        return True

    def advance_minute(self) -> bool:
        if self._is_plain or self.dt.minute in self.minutes:
            return super().advance_minute()
        quarter = self._next_quarter()
        self._to_minute(
            min((minute for minute in self.minutes if self.dt.minute < minute < quarter), default=quarter)
        )
        return True

    def advance_day(self) -> bool:
        moved = super().advance_day()
        self._leave_gap()
        return moved

    def advance_month(self) -> None:
        super().advance_month()
        self._leave_gap()

    @property
    def _is_plain(self) -> bool:
        """Without changes of the clock: UTC, or a job at fixed times, which cronsim mends afterwards."""
        return self.dt.tzinfo in {None, UTC}

    def _next_quarter(self) -> int:
        return (self.dt.minute // _QUARTER + 1) * _QUARTER

    def _to_minute(self, minute: int) -> None:
        self.tick((minute - self.dt.minute) * 60 - self.dt.second)

    def _leave_gap(self) -> None:
        """Where a day begins at 01:00, its midnight is no time."""
        if not self._is_plain:
            self.dt = self.dt.astimezone(UTC).astimezone(self.dt.tzinfo)


def _read(text: str) -> str:
    """The five fields. Raises `InvalidRequestError` that names the one which is wrong."""
    if len(text) > MAX_LENGTH:
        raise InvalidRequestError("interval", f"must not be longer than {MAX_LENGTH} characters")
    if text.strip().startswith("@"):
        return _alias(text.strip())
    fields = _ONE_VALUE.sub(r"\1", text.upper()).split()
    if len(fields) != len(FIELDS):
        raise InvalidRequestError("interval", _wrong_number(text, len(fields)))
    for place, field in enumerate(fields):
        if not _is_understood(place, field):
            name, values, _ = FIELDS[place]
            raise InvalidRequestError("interval", f"the {name} {field!r} is not understood: {values}, * , - /")
    try:
        CronSim(" ".join(fields), datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise _never(text) from error
    return " ".join(fields)


def _alias(text: str) -> str:
    try:
        return ALIASES[text.lower()]
    except KeyError:
        raise InvalidRequestError("interval", f"{text!r} is none of {', '.join(ALIASES)}") from None


def _is_understood(place: int, field: str) -> bool:
    """Tried among fields that are certainly right."""
    fields = [right for _, _, right in FIELDS]
    fields[place] = field
    try:
        CronSim(" ".join(fields), datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


def _wrong_number(text: str, count: int) -> str:
    if count == len(FIELDS) + 1:
        return "six fields, and cron has five, without seconds; for seconds there is `every 30s`"
    if count <= 1:
        return f"{text.strip()!r} is neither cron (`30 6 * * MON-FRI`) nor @daily and the like nor `every 15m`"
    return f"{count} fields, and cron has five: minute, hour, day of the month, month, day of the week"


def _never(text: str) -> InvalidRequestError:
    return InvalidRequestError(
        "interval", f"{text.strip()!r} never comes to pass: no year of the next 50 has such a day"
    )
