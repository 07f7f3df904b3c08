"""When a schedule is due: time zones, cron, equal intervals, jitter. Pure functions."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import date as Date  # noqa: N812 - other dates here are called `date`
from difflib import get_close_matches
from importlib.resources import files
from typing import NamedTuple
from zoneinfo import ZoneInfo

from attrs import define
from cronsim import CronSim, CronSimError

from gateway.clock import to_iso, truncate
from gateway.errors import InvalidRequestError
from gateway.schedules.schedule import Timing


@functools.cache
def zone_names() -> frozenset[str]:
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


def parse_time_zone(name: str) -> tzinfo:
    """The zone. Raises `InvalidRequestError("timezone")`, which suggests a similar name if there is one."""
    if name == "UTC":
        return UTC
    if name in zone_names():
        return ZoneInfo(name)
    raise InvalidRequestError("timezone", f"there is no time zone {name[:80]!r}{_hint(name)}")


def _hint(name: str) -> str:
    """A suggestion for a name with wrong capitals, a misspelling, or only a city."""
    wanted = name.strip().lower().replace(" ", "_")[:80]
    spelled = {known.lower(): known for known in sorted(zone_names())}
    cities = {known.rpartition("/")[2]: spelled[known] for known in reversed(spelled)}
    for names in (spelled, cities):
        if near := get_close_matches(wanted, names, n=1, cutoff=0.8):
            return f"; did you mean {names[near[0]]}?"
    return "; names are such as Europe/Paris or UTC"


# --- five-field cron in a time zone, with the rules of Debian's cron; cronsim reads the fields and finds the days.
#
# When clocks change, Debian distinguishes two kinds of jobs. A job at *fixed times* (neither the minute nor the hour
# field begins with `*`) runs right after a skipped hour if its time was in that hour, and only once in a repeated
# hour. All other jobs follow elapsed time: they run each time that the local clock shows a matching time.

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
#: Each field's name, its valid values, and a value that is used while another field is checked.
FIELDS = (
    ("minute", "0 to 59", "0"),
    ("hour", "0 to 23", "0"),
    ("day of the month", "1 to 31, L (the last day) or LW (the last weekday)", "1"),
    ("month", "1 to 12 or JAN to DEC", "1"),
    ("day of the week", "0 to 7 or SUN to SAT, MON#1 to MON#5 (the n-th Monday), 5L (the last Friday)", "*"),
)
#: In characters. Sensible expressions are much shorter.
MAX_LENGTH = 200
#: In minutes. All clock changes happen at full quarters of an hour, local time.
_QUARTER = 15
#: How far back to search for the occurrence before a moment, step by step. cronsim looks ahead 50 years, so this
#: looks back as far.
_WINDOWS = tuple(timedelta(days=days) for days in (1 / 24, 1, 32, 367, 5 * 366, 50 * 366))


_MILLISECOND = timedelta(milliseconds=1)
_DAY = timedelta(days=1)
_END = datetime.max.replace(tzinfo=UTC)


#: A range of one value with a step, such as `5-5/2`: cronsim would read it as a range without an end.
_ONE_VALUE = re.compile(r"\b(\w+)-\1/(?=[1-9])\d+")


class Cron:
    """The times of one expression; immutable."""

    def __init__(self, text: str, zone: tzinfo) -> None:
        """Raises `InvalidRequestError("interval")` if `text` is not cron, or if it never matches."""
        self._expression = _read(text)
        self._zone = zone
        if self.after(datetime(2026, 1, 1, tzinfo=UTC)) is None:
            raise _never(text)

    def walk(self, moment: datetime, until: datetime = _END) -> Iterator[datetime]:
        """Every time later than `moment`, in UTC and in order. It ends when there is none within 50 years, or soon
        after `until`.
        """
        latest = moment
        walk = _Walk(self._expression, moment.astimezone(self._zone), until.date())
        while True:
            try:
                found = next(walk).astimezone(UTC)
            except (StopIteration, OverflowError, ValueError):
                # OverflowError and ValueError: past the year 9999
                return
            if found > latest:
                # skip repeats: a time in a skipped hour moves to its end, one in a repeated hour may be over
                yield found
                latest = found

    def after(self, moment: datetime) -> datetime | None:
        return next(self.walk(moment), None)

    def newest(self, moment: datetime, count: int, since: datetime) -> list[datetime]:
        """The last `count` times from `since` on that are not later than `moment`; fewer if 50 years do not have
        more.
        """
        times: list[datetime] = []
        for window in _WINDOWS:
            begin = max(moment - window, since - _MILLISECOND)
            times = list(itertools.takewhile(lambda time: time <= moment, self.walk(begin, moment)))
            if len(times) >= count or begin < since:
                break
        return times[-count:]


class _Walk(CronSim):
    """cronsim, corrected for zones whose clocks change by half an hour, in the middle of an hour, or at midnight.

    cronsim walks in whole hours from a full hour. When the clocks on Lord Howe Island go from 02:00 back to 01:30, it
    therefore returns 02:00 and 02:15. Here no step goes past a full quarter of an hour.

    It ends with the day `last`, because the next match can be far away: from one 29 February that is a Sunday to the
    next there are 28 years.
    """

    def __init__(self, expression: str, moment: datetime, last: Date) -> None:
        super().__init__(expression, moment)
        # `last` is a day in UTC; a local day begins up to a day earlier or later, so the walk covers one day more
        self._end = last + _DAY if last < Date.max else last

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
        ahead = (minute for minute in self.minutes if self.dt.minute < minute < quarter)
        self._to_minute(min(ahead, default=quarter))
        return True

    def advance_day(self) -> bool:
        moved = super().advance_day()
        self._leave_gap()
        self._stop_at_end()
        return moved

    def advance_month(self) -> None:
        super().advance_month()
        self._leave_gap()
        self._stop_at_end()

    def _stop_at_end(self) -> None:
        if self.dt.date() > self._end:
            raise StopIteration

    @property
    def _is_plain(self) -> bool:
        """Whether clock changes do not matter: UTC, or a job at fixed times, which cronsim itself corrects later."""
        return self.dt.tzinfo in {None, UTC}

    def _next_quarter(self) -> int:
        return (self.dt.minute // _QUARTER + 1) * _QUARTER

    def _to_minute(self, minute: int) -> None:
        self.tick((minute - self.dt.minute) * 60 - self.dt.second)

    def _leave_gap(self) -> None:
        """Move on from a midnight that does not exist, on a day that begins at 01:00."""
        if not self._is_plain:
            self.dt = self.dt.astimezone(UTC).astimezone(self.dt.tzinfo)


def _read(text: str) -> str:
    """The five fields. Raises `InvalidRequestError`, which names the wrong field."""
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
        raise InvalidRequestError("interval", f"{text!r} is not one of {', '.join(ALIASES)}") from None


def _is_understood(place: int, field: str) -> bool:
    """Whether cronsim accepts the field, together with other fields that are certainly valid."""
    fields = [right for _, _, right in FIELDS]
    fields[place] = field
    try:
        CronSim(" ".join(fields), datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


def _wrong_number(text: str, count: int) -> str:
    if count == len(FIELDS) + 1:
        return "six fields, but cron has five, without seconds; for seconds use `every 30s`"
    if count <= 1:
        return f"{text.strip()!r} is neither cron (`30 6 * * MON-FRI`) nor a name such as @daily nor `every 15m`"
    return f"{count} fields, but cron has five: minute, hour, day of the month, month, day of the week"


def _never(text: str) -> InvalidRequestError:
    message = f"{text.strip()!r} never happens: no year of the next 50 has such a day"
    return InvalidRequestError("interval", message)


# --- a schedule's occurrences: every process computes the same ones, at any time

_EVERY = re.compile(r"every\s+([0-9]{1,8})\s*(s|m|h|d|w)", re.IGNORECASE)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
SHORTEST = timedelta(seconds=1)
LONGEST = timedelta(days=366)
#: A run of `every …` is moved by up to this fraction of the gap, unless the request says otherwise.
INTERVAL_JITTER = 0.1
MAX_JITTER = 0.5
#: Dates in or after this year are refused.
LAST_YEAR = 2200
#: Missed occurrences of a cron expression are counted up to this number.
MAX_COUNTED = 1000


class OccurrenceTime(NamedTuple):
    """An occurrence: its nominal time `at`, which identifies it, and the time with jitter `due`, when it is fired."""

    at: datetime
    due: datetime


@define(eq=False, repr=False, slots=False)
class Every:
    """Occurrences at equal intervals of absolute time, counted from `start`."""

    #: Occurrences may come before their nominal time.
    default_jitter = INTERVAL_JITTER

    gap: timedelta

    def walk(self, moment: datetime, start: datetime, _until: datetime = _END) -> Iterator[datetime]:
        """Nominal times later than `moment`, without end: each is computed, so `until` is not needed."""
        number = max(0, (moment - start) // self.gap + 1)
        try:
            for later in itertools.count(number):
                yield start + later * self.gap
        except OverflowError:
            # past the year 9999
            return

    def newest(self, moment: datetime, start: datetime, count: int) -> list[datetime]:
        """The last `count` nominal times that are not later than `moment`, oldest first."""
        last = (moment - start) // self.gap
        return [start + number * self.gap for number in range(max(0, last - count + 1), last + 1)]

    def count(self, after: datetime, until: datetime, start: datetime) -> int:
        """How many nominal times are later than `after` and not later than `until`."""
        return max(0, (until - start) // self.gap - max(-1, (after - start) // self.gap))

    def move(self, at: datetime, start: datetime, jitter: float, chance: float) -> timedelta:
        """The jitter of an occurrence: earlier or later by up to `jitter` of the gap. `start` itself does not move,
        because a person has chosen it.
        """
        milliseconds = self.gap // _MILLISECOND
        return timedelta() if at == start else _MILLISECOND * int(jitter * milliseconds * (2 * chance - 1))


@define(eq=False, repr=False, slots=False)
class Calendar:
    """Occurrences at the times of a cron expression."""

    default_jitter = 0.0

    _cron: Cron

    def walk(self, moment: datetime, start: datetime, until: datetime = _END) -> Iterator[datetime]:
        """Nominal times later than `moment`. Those after `until` may be left out."""
        return self._cron.walk(max(moment, start - _MILLISECOND), until)

    def newest(self, moment: datetime, start: datetime, count: int) -> list[datetime]:
        return self._cron.newest(moment, count, start)

    def count(self, after: datetime, until: datetime, start: datetime) -> int:
        """As `Every.count`, but at most `MAX_COUNTED`, because each time must be computed."""
        times = itertools.takewhile(lambda at: at <= until, self.walk(after, start))
        return sum(1 for _ in itertools.islice(times, MAX_COUNTED))

    def move(self, at: datetime, start: datetime, jitter: float, chance: float) -> timedelta:
        """Delay an occurrence by its jitter: a part, up to `jitter`, of the time to the next occurrence."""
        following = next(self.walk(at, start), at) if jitter else at
        return _MILLISECOND * int(jitter * chance * ((following - at) // _MILLISECOND))


Recurrence = Every | Calendar


@functools.lru_cache(maxsize=10_000)
def parse_interval(text: str, timezone: str) -> Recurrence:
    """The occurrences of the interval. Raises `InvalidRequestError` for `interval` or `timezone`."""
    zone = parse_time_zone(timezone)
    if text.strip().lower().startswith("every"):
        return Every(_gap(text.strip()))
    return Calendar(Cron(text, zone))


def _gap(text: str) -> timedelta:
    match = _EVERY.fullmatch(text)
    if match is None:
        message = f"{text[:80]!r} is not understood: use `every` and a whole number of s, m, h, d or w: `every 15m`"
        raise InvalidRequestError("interval", f"{message}; the shortest is `every 1s`")
    gap = timedelta(**{_UNITS[match[2].lower()]: int(match[1])})
    if not SHORTEST <= gap <= LONGEST:
        raise InvalidRequestError("interval", f"{text!r} is not between `every 1s` and `every 366d`")
    return gap


def check_timing(timing: Timing, now: datetime) -> None:
    """Raises `InvalidRequestError`, which names the field, for invalid values or if no occurrence is to come."""
    parse_interval(timing.interval, timing.timezone)
    if timing.jitter is not None and not 0 <= timing.jitter <= MAX_JITTER:
        raise InvalidRequestError("jitter", f"must be from 0 to {MAX_JITTER}: a fraction of the gap to the next run")
    for field, date in (("schedule_at", timing.starts_at), ("ends_at", timing.ends_at)):
        if date is not None and date.year >= LAST_YEAR:
            raise InvalidRequestError(field, f"must be before the year {LAST_YEAR}")
    if timing.ends_at is None:
        return
    if timing.ends_at <= timing.starts_at:
        raise InvalidRequestError("ends_at", f"must be after the start, {to_iso(timing.starts_at)}")
    if timing.ends_at <= now:
        raise InvalidRequestError("ends_at", "must be in the future")
    if first("", timing, now) is None:
        begin = max(timing.starts_at, now)
        raise InvalidRequestError("ends_at", f"there is no run between {to_iso(begin)} and {to_iso(timing.ends_at)}")


def first(schedule_id: str, timing: Timing, after: datetime) -> OccurrenceTime | None:
    """The first occurrence that is due later than `after`."""
    return next(_due_after(schedule_id, timing, after), None)


def following(schedule_id: str, timing: Timing, at: datetime, after: datetime | None = None) -> OccurrenceTime | None:
    """The first occurrence after the one at nominal `at`; with `after`, the first of these due later than `after`."""
    if after is None or after < at:
        return next(_walk(schedule_id, timing, at), None)
    return next((moment for moment in _due_after(schedule_id, timing, after) if moment.at > at), None)


def preview(
    schedule_id: str, timing: Timing, after: datetime, count: int, until: datetime = _END
) -> list[OccurrenceTime]:
    """The next `count` occurrences that are due after `after` and before `until`; fewer if there are no more."""
    due = itertools.takewhile(lambda moment: moment.due < until, _due_after(schedule_id, timing, after, until))
    return list(itertools.islice(due, count))


def count_due(schedule_id: str, timing: Timing, at: datetime, now: datetime) -> int:
    """How many occurrences after the one at nominal `at` are due by `now`; for cron at most about `MAX_COUNTED`."""
    recurrence = parse_interval(timing.interval, timing.timezone)
    until = now if timing.ends_at is None else min(now, timing.ends_at)
    count = recurrence.count(at, until, timing.starts_at)
    last = recurrence.newest(until, timing.starts_at, 1)
    # jitter moves an occurrence by less than half a gap, so only the last one before `now` and the first one after it
    # can be on the other side of `now`
    count -= sum(moment.due > now for moment in _moments(schedule_id, timing, last) if moment.at > at)
    ahead = next(_walk(schedule_id, timing, max(at, until)), None)
    return count + (ahead is not None and ahead.due <= now)


def newest_due(schedule_id: str, timing: Timing, now: datetime, count: int) -> OccurrenceTime | None:
    """The oldest of the last `count` occurrences that are due by `now`."""
    recurrence = parse_interval(timing.interval, timing.timezone)
    until = now if timing.ends_at is None else min(now, timing.ends_at)
    times = recurrence.newest(until, timing.starts_at, count + 1)
    moments = [*_moments(schedule_id, timing, times), *itertools.islice(_walk(schedule_id, timing, until), 1)]
    due = [moment for moment in moments if moment.due <= now][-count:]
    return due[0] if due else None


def _due_after(schedule_id: str, timing: Timing, after: datetime, until: datetime = _END) -> Iterator[OccurrenceTime]:
    """Occurrences due after `after`; those due after `until` may be left out. With jitter it starts one occurrence
    earlier, because that may be due later.
    """
    recurrence = parse_interval(timing.interval, timing.timezone)
    begin = after
    if _jitter(recurrence, timing):
        for before in recurrence.newest(after, timing.starts_at, 1):
            begin = before - _MILLISECOND
    return (moment for moment in _walk(schedule_id, timing, begin, until) if moment.due > after)


def _walk(schedule_id: str, timing: Timing, after: datetime, until: datetime = _END) -> Iterator[OccurrenceTime]:
    """Occurrences with a nominal time later than `after`, up to the end date; `until` as in `_due_after`."""
    recurrence = parse_interval(timing.interval, timing.timezone)
    yield from _moments(schedule_id, timing, recurrence.walk(after, timing.starts_at, until))


def _moments(
    schedule_id: str, timing: Timing, times: Iterator[datetime] | list[datetime]
) -> Iterator[OccurrenceTime]:
    recurrence = parse_interval(timing.interval, timing.timezone)
    jitter = _jitter(recurrence, timing)
    for at in times:
        if timing.ends_at is not None and at > timing.ends_at:
            return
        due = at + recurrence.move(at, timing.starts_at, jitter, _chance(schedule_id, at))
        yield OccurrenceTime(truncate(at), truncate(min(max(due, timing.starts_at), timing.ends_at or due)))


def _jitter(recurrence: Recurrence, timing: Timing) -> float:
    return recurrence.default_jitter if timing.jitter is None else timing.jitter


def _chance(schedule_id: str, at: datetime) -> float:
    """A number from 0 to below 1 that is always the same for one occurrence."""
    digest = hashlib.sha256(f"{schedule_id}:{at.astimezone(UTC).isoformat()}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / (1 << 48)
