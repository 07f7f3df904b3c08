"""Cron over changes of the clock, against a walk through every minute there is."""

from __future__ import annotations

import calendar
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from forms import first_in_short
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequestError
from gateway.jobs.job import Decision
from gateway.schedules.next_run import Cron, OccurrenceTime, first, following, preview
from gateway.schedules.occurrences import plan
from gateway.schedules.schedule import CatchUp, Schedule, Timing

#: Zone, and the UTC days on which its clocks change in 2027.
CHANGES = [
    ("Europe/Paris", "2027-03-28"),
    ("Europe/Paris", "2027-10-31"),
    ("America/New_York", "2027-03-14"),
    ("America/New_York", "2027-11-07"),
    # by half an hour
    ("Australia/Lord_Howe", "2027-04-03"),
    ("Australia/Lord_Howe", "2027-10-02"),
    # in the middle of an hour; at midnight
    ("Pacific/Chatham", "2027-04-03"),
    ("Pacific/Chatham", "2027-09-25"),
    ("America/Havana", "2027-03-14"),
    ("America/Havana", "2027-11-07"),
]
CRONS_EACH = 15
MINUTE = timedelta(minutes=1)
#: Walked through after the beginning of the day.
HOURS_AROUND = 32


def numbers(field: str, low: int, high: int) -> set[int]:
    """What `*`, `5`, `1-4`, `*/7`, `3-20/4` and lists of them stand for."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        begin, _, end = (str(low), "-", str(high)) if span == "*" else span.partition("-")
        found |= set(range(int(begin), int(end or begin) + 1, int(step or 1)))
    return found


class Walk:
    """An expression of the kinds generated below, read and applied without a line in common with what is tested."""

    def __init__(self, text: str, zone: str) -> None:
        minute, hour, day, month, weekday = text.split()
        self.zone = ZoneInfo(zone)
        self.minutes, self.hours = numbers(minute, 0, 59), numbers(hour, 0, 23)
        self.days, self.months = numbers(day, 1, 31), numbers(month, 1, 12)
        self.weekdays = {number % 7 for number in numbers(weekday, 0, 7)}
        self.both_days = day.startswith("*") or weekday.startswith("*")
        self.at_fixed_times = not minute.startswith("*") and not hour.startswith("*")

    def matches(self, local: datetime) -> bool:
        day, weekday = local.day in self.days, local.isoweekday() % 7 in self.weekdays
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and local.month in self.months
            and ((day and weekday) if self.both_days else (day or weekday))
        )

    def between(self, begin: datetime, end: datetime) -> list[datetime]:
        """Minute by minute of UTC, as Debian's cron: `begin` excluded, `end` included."""
        fired: list[datetime] = []
        seen: set[datetime] = set()
        minute = begin - timedelta(hours=6)
        shown = (minute - MINUTE).astimezone(self.zone).replace(tzinfo=None)
        while minute <= end:
            local = minute.astimezone(self.zone).replace(tzinfo=None)
            if any(self._fires(time, seen) for time in self._new_times(shown, local)) and minute > begin:
                fired.append(minute)
            shown, minute = local, minute + MINUTE
        return fired

    def _new_times(self, shown: datetime, local: datetime) -> Iterator[datetime]:
        """The local time, and for jobs at fixed times those that the clock has just left out."""
        skipped = shown + MINUTE
        while self.at_fixed_times and skipped < local:
            yield skipped
            skipped += MINUTE
        yield local

    def _fires(self, local: datetime, seen: set[datetime]) -> bool:
        if not self.matches(local) or (self.at_fixed_times and local in seen):
            return False
        seen.add(local)
        return True


def a_field(chance: random.Random, low: int, high: int) -> str:
    begin = chance.randint(low, high)
    end = chance.randint(begin, high)
    kinds = ["*", f"{begin}", f"{begin}", f"{begin}-{end}", f"*/{chance.randint(1, high)}"]
    kinds += [f"{begin},{end}", f"{begin}-{end}/{chance.randint(1, 5)}", f"{low}-{begin},{end}"]
    return chance.choice(kinds)


def a_cron(chance: random.Random) -> str:
    """Mostly in the small hours, where the clocks change."""
    hour = a_field(chance, 0, 23) if chance.random() < 0.3 else a_field(chance, 0, 4)
    date = ["*", "*", "*"]
    if chance.random() < 0.3:
        date = [a_field(chance, 1, 28), chance.choice(["*", "3,4", "9-11"]), a_field(chance, 0, 7)]
    return " ".join([a_field(chance, 0, 59), hour, *date])


def as_schedule(timing: Timing, moment: OccurrenceTime) -> Schedule:
    return Schedule(
        id="5" * 32, user_id="u", timing=timing, fingerprint="f", catch_up=CatchUp.ALL,
        created_at=timing.starts_at, updated_at=timing.starts_at, next_at=moment.at, next_run=moment.due,
    )  # fmt: skip


def fired(timing: Timing, after: datetime, end: datetime) -> list[datetime]:
    """What a beat that is never late fires: each occurrence planned from the one before."""
    times = []
    moment = first("5" * 32, timing, after)
    while moment is not None and moment.due <= end:
        times.append(moment.at)
        decided = plan(as_schedule(timing, moment), moment.due)
        assert decided.fate is Decision.RUN
        moment = decided.next
    return times


def chained(timing: Timing, after: datetime, end: datetime) -> list[datetime]:
    moment = first("5" * 32, timing, after)
    times = []
    while moment is not None and moment.at <= end:
        times.append(moment.at)
        moment = following("5" * 32, timing, moment.at)
    return times


@pytest.mark.parametrize(("zone", "day"), first_in_short(CHANGES, 3))
def test_preview_and_firing_agree_with_a_walk_through_every_minute(zone: str, day: str) -> None:
    chance = random.Random(f"{zone} {day}")
    change = datetime.fromisoformat(day).replace(tzinfo=UTC)
    begin, end = change - timedelta(hours=6), change + timedelta(hours=HOURS_AROUND)
    for _ in range(CRONS_EACH):
        text = a_cron(chance)
        expected = Walk(text, zone).between(begin, end)
        timing = Timing(interval=text, timezone=zone, starts_at=begin - timedelta(days=3))
        previewed = preview("5" * 32, timing, begin, len(expected) + 1)
        assert [moment.at for moment in previewed if moment.at <= end] == expected, text
        assert chained(timing, begin, end) == expected, text
        assert fired(timing, begin, end) == expected, text


@pytest.mark.parametrize(("zone", "day"), first_in_short(CHANGES, 3))
def test_the_next_time_is_the_same_from_wherever_one_asks(zone: str, day: str) -> None:
    chance = random.Random(f"from anywhere {zone} {day}")
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC)
    for _ in range(CRONS_EACH // 2):
        cron = Cron(text := a_cron(chance), ZoneInfo(zone))
        times = Walk(text, zone).between(begin, begin + timedelta(hours=HOURS_AROUND))
        for moment in (begin + chance.random() * timedelta(hours=HOURS_AROUND) for _ in range(20)):
            expected = next((time for time in times if time > moment), None)
            if expected is not None:
                assert cron.after(moment) == expected, (text, moment)
            past = [time for time in times if time <= moment]
            if past:
                assert cron.newest(moment, 3, begin - timedelta(days=1))[-len(past) :] == past[-3:], (text, moment)


@pytest.mark.parametrize(
    ("zone", "text", "after", "expected"),
    [
        ("Europe/Paris", "30 2 * * *", "2027-03-27T12:00Z", "2027-03-28T01:00Z 2027-03-29T00:30Z"),
        ("Europe/Paris", "15,45 2 * * *", "2027-03-27T12:00Z", "2027-03-28T01:00Z 2027-03-29T00:15Z"),
        ("Europe/Paris", "30 2 * * *", "2027-10-30T12:00Z", "2027-10-31T00:30Z 2027-11-01T01:30Z"),
        ("Europe/Paris", "30 * * * *", "2027-10-31T00:00Z", "2027-10-31T00:30Z 2027-10-31T01:30Z"),
        ("Europe/Paris", "*/30 2 * * *", "2027-03-27T12:00Z", "2027-03-29T00:00Z 2027-03-29T00:30Z"),
        ("Australia/Lord_Howe", "*/15 2 * * *", "2027-04-03T12:00Z", "2027-04-03T15:30Z 2027-04-03T15:45Z"),
        ("Australia/Lord_Howe", "*/15 3 * * *", "2027-10-02T12:00Z", "2027-10-02T16:00Z 2027-10-02T16:15Z"),
        ("UTC", "0 0 29 2 *", "2027-01-01T00:00Z", "2028-02-29T00:00Z 2032-02-29T00:00Z"),
        ("UTC", "0 9 * * MON#1", "2027-01-01T00:00Z", "2027-01-04T09:00Z 2027-02-01T09:00Z"),
        ("UTC", "0 9 L * *", "2027-01-01T00:00Z", "2027-01-31T09:00Z 2027-02-28T09:00Z"),
        ("UTC", "0 9 * * 5L", "2027-01-01T00:00Z", "2027-01-29T09:00Z 2027-02-26T09:00Z"),
        ("UTC", "@Monthly", "2027-01-01T00:00Z", "2027-02-01T00:00Z 2027-03-01T00:00Z"),
        ("Asia/Kolkata", "@daily", "2027-01-01T00:00Z", "2027-01-01T18:30Z 2027-01-02T18:30Z"),
    ],
)
def test_times_that_one_can_check_by_hand(zone: str, text: str, after: str, expected: str) -> None:
    walk = Cron(text, ZoneInfo(zone)).walk(datetime.fromisoformat(after))
    assert [next(walk), next(walk)] == [datetime.fromisoformat(time) for time in expected.split()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 0 30 2 *", "'0 0 30 2 *' never happens"),
        ("0 0 31 4,6 *", "never happens"),
        ("* * */20 * 1L", "never happens"),
        ("* * * * * *", "six fields, but cron has five, without seconds; for seconds use `every 30s`"),
        ("0 9 * *", "4 fields, but cron has five: minute, hour, day of the month, month, day of the week"),
        ("0 9 * * * * *", "7 fields"),
        ("", "is neither cron"),
        ("hourly", "is neither cron"),
        ("@reboot", "'@reboot' is not one of @yearly, @annually"),
        ("@", "'@' is not one of"),
        ("60 * * * *", "the minute '60' is not understood: 0 to 59"),
        ("*/0 * * * *", "the minute '*/0' is not understood"),
        ("5-1 * * * *", "the minute '5-1' is not understood"),
        ("-5 * * * *", "the minute '-5' is not understood"),
        ("0 24 * * *", "the hour '24' is not understood: 0 to 23"),
        ("0 0 0 * *", "the day of the month '0' is not understood"),
        ("0 0 L-3 * *", "the day of the month 'L-3' is not understood"),
        ("0 0 * 13 *", "the month '13' is not understood"),
        ("0 0 * * MON#6", "the day of the week 'MON#6' is not understood"),
        ("0 0 * * FUNDAY", "the day of the week 'FUNDAY' is not understood"),
        ("0 0 * * ６", "the day of the week '６' is not understood"),
        ("* " * 150, "must not be longer than 200 characters"),
    ],
)
def test_what_is_no_cron_or_never_fires_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        Cron(text, UTC)
    assert refused.value.field == "interval"
    assert message in refused.value.message


@given(st.text(alphabet="0123456789*/-,#LW@MONJAN ", max_size=30))
def test_whatever_is_written_is_understood_or_refused(text: str) -> None:
    try:
        cron = Cron(text, ZoneInfo("Europe/Paris"))
    except InvalidRequestError:
        return
    assert cron.after(datetime(2027, 3, 28, tzinfo=UTC)) is not None


def test_the_walk_itself_knows_the_days() -> None:
    """The standard that the rest is held against, held against the calendar."""
    walk = Walk("0 0 13 * 5", "UTC")
    month = [walk.matches(datetime(2027, 8, day, tzinfo=UTC)) for day in range(1, 32)]
    fridays = {week[calendar.FRIDAY] for week in calendar.monthcalendar(2027, 8)}
    assert {day for day, fires in enumerate(month, 1) if fires} == (fridays - {0}) | {13}
