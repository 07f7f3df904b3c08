"""When a schedule's slots are. Pure: the same schedule has the same slots, whoever asks, and whenever."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gateway.domain.clock import to_iso, truncate
from gateway.domain.cron import Cron
from gateway.domain.errors import InvalidRequestError
from gateway.domain.schedule import Timing
from gateway.domain.time_zone import parse_time_zone

_EVERY = re.compile(r"every\s+([0-9]{1,8})\s*(s|m|h|d|w)", re.IGNORECASE)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
SHORTEST = timedelta(seconds=1)
LONGEST = timedelta(days=366)
#: Fraction of the gap by which a run of `every …` is moved unless the request says otherwise.
INTERVAL_JITTER = 0.1
MAX_JITTER = 0.5
#: Dates are refused from here on.
LAST_YEAR = 2200
#: Slots of a cron that were missed are counted to here.
MAX_COUNTED = 1000
_MILLISECOND = timedelta(milliseconds=1)


class Moment(NamedTuple):
    """A slot: its nominal time, which names it, and the same with jitter, when it is fired."""

    at: datetime
    due: datetime


class Every:
    """Slots at equal distances, in absolute time, from `start`."""

    #: Slots may come before their nominal time.
    default_jitter = INTERVAL_JITTER

    def __init__(self, gap: timedelta) -> None:
        self.gap = gap

    def walk(self, moment: datetime, start: datetime) -> Iterator[datetime]:
        """Nominal times later than `moment`, without end."""
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
        """Nominal times later than `after` and not later than `until`."""
        return max(0, (until - start) // self.gap - max(-1, (after - start) // self.gap))

    def move(self, at: datetime, start: datetime, jitter: float, chance: float) -> timedelta:
        """To and fro by `jitter`. Not at `start` itself: this one a person has named."""
        milliseconds = self.gap // _MILLISECOND
        return timedelta() if at == start else _MILLISECOND * int(jitter * milliseconds * (2 * chance - 1))


class Calendar:
    """Slots at the times of a cron expression."""

    default_jitter = 0.0

    def __init__(self, cron: Cron) -> None:
        self._cron = cron

    def walk(self, moment: datetime, start: datetime) -> Iterator[datetime]:
        return self._cron.walk(max(moment, start - _MILLISECOND))

    def newest(self, moment: datetime, start: datetime, count: int) -> list[datetime]:
        return [at for at in self._cron.newest(moment, count) if at >= start]

    def count(self, after: datetime, until: datetime, start: datetime) -> int:
        """At most `MAX_COUNTED`, because each has to be looked up."""
        times = itertools.takewhile(lambda at: at <= until, self.walk(after, start))
        return sum(1 for _ in itertools.islice(times, MAX_COUNTED))

    def move(self, at: datetime, start: datetime, jitter: float, chance: float) -> timedelta:
        """Later only, by up to `jitter` of the time to the next slot."""
        following = next(self.walk(at, start), None) if jitter else None
        return (
            timedelta()
            if following is None
            else _MILLISECOND * int(jitter * chance * ((following - at) // _MILLISECOND))
        )


Recurrence = Every | Calendar


@functools.lru_cache(maxsize=10_000)
def parse_interval(text: str, timezone: str) -> Recurrence:
    """Raises `InvalidRequestError` for `interval` or `timezone`."""
    zone = parse_time_zone(timezone)
    if text.strip().lower().startswith("every"):
        return Every(_gap(text.strip()))
    return Calendar(Cron(text, zone))


def _gap(text: str) -> timedelta:
    match = _EVERY.fullmatch(text)
    if match is None:
        message = (
            f"{text[:80]!r} is not understood: `every` and a whole number of s, m, h, d or w, such as `every 15m`"
        )
        raise InvalidRequestError("interval", f"{message}; the shortest is `every 1s`")
    gap = timedelta(**{_UNITS[match[2].lower()]: int(match[1])})
    if not SHORTEST <= gap <= LONGEST:
        raise InvalidRequestError("interval", f"{text!r} is not between `every 1s` and `every 366d`")
    return gap


def check_timing(timing: Timing, now: datetime) -> None:
    """Raises `InvalidRequestError` that names the field, unless there is a slot to come."""
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
        raise InvalidRequestError("ends_at", "must lie ahead")
    if first("", timing, now) is None:
        begin = max(timing.starts_at, now)
        raise InvalidRequestError("ends_at", f"there is no run between {to_iso(begin)} and {to_iso(timing.ends_at)}")


def first(schedule_id: str, timing: Timing, after: datetime) -> Moment | None:
    """The first slot that is due later than `after`."""
    return next(_due_after(schedule_id, timing, after), None)


def following(schedule_id: str, timing: Timing, at: datetime, after: datetime | None = None) -> Moment | None:
    """The next slot behind the one at nominal `at`, and of those, the first due later than `after`."""
    if after is None or after < at:
        return next(_walk(schedule_id, timing, at), None)
    return next((moment for moment in _due_after(schedule_id, timing, after) if moment.at > at), None)


def preview(schedule_id: str, timing: Timing, after: datetime, count: int) -> list[Moment]:
    """The `count` slots that are due next after `after`, or as many as there are."""
    return list(itertools.islice(_due_after(schedule_id, timing, after), count))


def count_due(schedule_id: str, timing: Timing, at: datetime, now: datetime) -> int:
    """Slots behind the one at nominal `at` that are due by `now`; of a cron about `MAX_COUNTED` at the most."""
    recurrence = parse_interval(timing.interval, timing.timezone)
    until = now if timing.ends_at is None else min(now, timing.ends_at)
    count = recurrence.count(at, until, timing.starts_at)
    last = recurrence.newest(until, timing.starts_at, 1)
    # jitter moves a slot by less than half a gap, so only the two at this side and that of `now` can be on the other
    count -= sum(moment.due > now for moment in _moments(schedule_id, timing, last) if moment.at > at)
    ahead = next(_walk(schedule_id, timing, max(at, until)), None)
    return count + (ahead is not None and ahead.due <= now)


def newest_due(schedule_id: str, timing: Timing, now: datetime, count: int) -> Moment | None:
    """The oldest of the last `count` slots that are due by `now`."""
    recurrence = parse_interval(timing.interval, timing.timezone)
    until = now if timing.ends_at is None else min(now, timing.ends_at)
    times = recurrence.newest(until, timing.starts_at, count + 1)
    moments = [*_moments(schedule_id, timing, times), *itertools.islice(_walk(schedule_id, timing, until), 1)]
    due = [moment for moment in moments if moment.due <= now][-count:]
    return due[0] if due else None


def _due_after(schedule_id: str, timing: Timing, after: datetime) -> Iterator[Moment]:
    """From one slot before `after` on: with jitter it may be due behind it, and the next one before."""
    recurrence = parse_interval(timing.interval, timing.timezone)
    begin = after
    if _jitter(recurrence, timing):
        for before in recurrence.newest(after, timing.starts_at, 1):
            begin = before - _MILLISECOND
    return (moment for moment in _walk(schedule_id, timing, begin) if moment.due > after)


def _walk(schedule_id: str, timing: Timing, after: datetime) -> Iterator[Moment]:
    """Slots with a nominal time later than `after`, to the end date."""
    recurrence = parse_interval(timing.interval, timing.timezone)
    yield from _moments(schedule_id, timing, recurrence.walk(after, timing.starts_at))


def _moments(schedule_id: str, timing: Timing, times: Iterator[datetime] | list[datetime]) -> Iterator[Moment]:
    recurrence = parse_interval(timing.interval, timing.timezone)
    jitter = _jitter(recurrence, timing)
    for at in times:
        if timing.ends_at is not None and at > timing.ends_at:
            return
        due = at + recurrence.move(at, timing.starts_at, jitter, _chance(schedule_id, at))
        yield Moment(truncate(at), truncate(min(max(due, timing.starts_at), timing.ends_at or due)))


def _jitter(recurrence: Recurrence, timing: Timing) -> float:
    return recurrence.default_jitter if timing.jitter is None else timing.jitter


def _chance(schedule_id: str, at: datetime) -> float:
    """From 0 to below 1, always the same for one slot."""
    digest = hashlib.sha256(f"{schedule_id}:{at.astimezone(UTC).isoformat()}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / (1 << 48)
