from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.errors import InvalidRequestError
from gateway.schedules.next_run import (
    OccurrenceTime,
    check_timing,
    count_due,
    first,
    following,
    newest_due,
    parse_interval,
    preview,
)
from gateway.schedules.schedule import Timing

ID = "c" * 32
START = datetime(2027, 3, 1, 8, 0, 0, 250_000, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)

gaps = st.builds("every {}{}".format, st.integers(1, 366), st.sampled_from("smhd"))
crons = st.sampled_from(["*/5 * * * *", "0 9 * * *", "30 2 * * *", "0 0 1 * *", "10,50 */3 * * MON-FRI"])
jitters = st.none() | st.floats(0, 0.5)
offsets = st.timedeltas(timedelta(days=-40), timedelta(days=40)).map(
    lambda offset: offset // MILLISECOND * MILLISECOND
)


def timing(interval: str = "every 15m", **fields: Any) -> Timing:
    return Timing(interval=interval, **{"starts_at": START, **fields})


timings = st.builds(timing, gaps | crons, jitter=jitters, timezone=st.sampled_from(["UTC", "Europe/Paris"]))


def later(**distance: float) -> datetime:
    return START + timedelta(**distance)


def test_an_interval_is_counted_from_its_start_however_late_one_asks() -> None:
    assert [moment.at for moment in preview(ID, timing(), later(minutes=50), 3)] == [
        later(minutes=60), later(minutes=75), later(minutes=90),
    ]  # fmt: skip


def test_the_occurrence_that_a_person_has_named_is_not_moved() -> None:
    assert first(ID, timing(), START - timedelta(days=1)) == OccurrenceTime(START, START)


def test_a_cron_starts_at_its_first_time_that_is_not_before_the_start() -> None:
    nine = datetime(2027, 3, 2, 9, tzinfo=UTC)
    for start in (nine, nine - MILLISECOND):
        assert first(ID, timing("0 9 * * *", starts_at=start), later(days=-9)) == OccurrenceTime(nine, nine)
    after = timing("0 9 * * *", starts_at=nine + MILLISECOND)
    assert first(ID, after, later(days=-9)) == OccurrenceTime(nine + timedelta(days=1), nine + timedelta(days=1))


def test_the_end_date_is_the_last_moment_at_which_an_occurrence_can_be() -> None:
    ending = timing(ends_at=later(minutes=45), jitter=0.5)
    moments = preview(ID, ending, START, 10)
    assert [moment.at for moment in moments] == [later(minutes=15), later(minutes=30), later(minutes=45)]
    assert all(moment.due <= later(minutes=45) for moment in moments)
    assert following(ID, ending, later(minutes=45)) is None
    assert first(ID, ending, later(minutes=45)) is None


@pytest.mark.parametrize(
    ("interval", "gap"),
    [("every 1s", 1), ("every 15m", 900), ("EVERY  2 h", 7200), (" every 366d ", 366 * 86400), ("every 2w", 1209600)],
)
def test_intervals_are_read(interval: str, gap: int) -> None:
    one, other = preview(ID, timing(interval, jitter=0), START, 2)
    assert other.at - one.at == timedelta(seconds=gap)


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        ("every 0s", "is not between `every 1s` and `every 366d`"),
        ("every 367d", "is not between"),
        ("every 53w", "is not between"),
        ("every 99999999w", "is not between"),
        ("every 999999999w", "is not understood"),
        ("every 500ms", "the shortest is `every 1s`"),
        ("every 1.5h", "a whole number of s, m, h, d or w"),
        ("every -5m", "is not understood"),
        ("every ٥m", "is not understood"),
        ("every day", "is not understood"),
        ("every 5m 3s", "is not understood"),
        ("every", "is not understood"),
        ("5m", "is neither cron"),
    ],
)
def test_intervals_that_are_none_are_refused(interval: str, message: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_interval(interval, "UTC")
    assert refused.value.field == "interval"
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("europe/paris", "there is no time zone 'europe/paris'; did you mean Europe/Paris?"),
        ("Europe/Pariss", "did you mean Europe/Paris?"),
        ("New York", "did you mean America/New_York?"),
        ("utc", "did you mean UTC?"),
        ("Mars/Phobos", "names are such as Europe/Paris or UTC"),
        *(
            (name, "there is no time zone")
            for name in ("", "Europe", "../etc/passwd", "/etc/localtime", "x" * 300, "a\0")
        ),
    ],
)
def test_time_zones_that_do_not_exist_are_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        parse_interval("@daily", name)
    assert refused.value.field == "timezone"
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"interval": "0 0 30 2 *"}, "interval", "never happens"),
        ({"timezone": "Mars/Phobos"}, "timezone", "there is no time zone"),
        ({"ends_at": START}, "ends_at", "must be after the start, 2027-03-01T08:00:00.250Z"),
        ({"ends_at": later(days=-1)}, "ends_at", "must be after the start"),
        ({"starts_at": later(days=-9), "ends_at": later(days=-1)}, "ends_at", "must be in the future"),
        (
            {"interval": "0 9 1 * *", "ends_at": later(days=20), "starts_at": later(days=1)},
            "ends_at",
            "there is no run",
        ),
        ({"starts_at": later(days=99999)}, "schedule_at", "must be before the year 2200"),
        ({"ends_at": later(days=99999)}, "ends_at", "must be before the year 2200"),
    ],
)
def test_what_never_runs_is_refused(fields: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_timing(timing(**{"interval": "every 15m", **fields}), START)
    assert refused.value.field == field
    assert message in refused.value.message


@pytest.mark.parametrize("jitter", [-0.1, 0.51, float("nan")])
def test_jitter_is_at_most_half_the_gap(jitter: float) -> None:
    with pytest.raises(ValidationError):
        timing(jitter=jitter)
    with pytest.raises(InvalidRequestError, match="jitter: must be from 0 to"):
        check_timing(timing().model_copy(update={"jitter": jitter}), START)


def test_what_runs_once_more_is_taken() -> None:
    check_timing(timing("0 9 * * *", ends_at=later(hours=1)), START)


def test_intervals_are_moved_to_and_fro_by_a_tenth_unless_told_otherwise() -> None:
    offsets = [(moment.due - moment.at).total_seconds() for moment in preview(ID, timing(), START, 500)]
    assert min(offsets) < -80
    assert max(offsets) > 80
    assert max(map(abs, offsets)) <= 90


def test_cron_is_not_moved_unless_told_and_then_only_later() -> None:
    plain = preview(ID, timing("0 * * * *"), START, 50)
    assert all(moment.due == moment.at for moment in plain)
    offsets = [
        (moment.due - moment.at).total_seconds()
        for moment in preview(ID, timing("0 * * * *", jitter=0.5), START, 500)
    ]
    assert min(offsets) >= 0
    assert 1500 < max(offsets) <= 1800


@given(timings, offsets)
def test_jitter_is_bounded_keeps_the_order_and_is_the_same_for_all_who_ask(timing: Timing, offset: timedelta) -> None:
    moments = preview(ID, timing, START + offset, 12)
    assert moments == preview(ID, timing, START + offset, 12)
    assert preview("d" * 32, timing, START + offset, 12) != moments or all(due == at for at, due in moments)
    for one, other in itertools.pairwise(moments):
        gap, moved = other.at - one.at, one.due - one.at
        assert one.due < other.due
        assert other.due > START
        limit = gap * (timing.jitter if timing.jitter is not None else 0.1)
        assert (timedelta() if "*" in timing.interval else -limit) <= moved <= limit


@given(timings, offsets, st.integers(0, 30))
def test_following_one_occurrence_after_the_other_is_the_preview(
    timing: Timing, offset: timedelta, skip: int
) -> None:
    moments = preview(ID, timing, START + offset, 40)
    for one, other in itertools.pairwise(moments):
        assert following(ID, timing, one.at) == other
    # from anywhere before, past everything that is due by then
    target = moments[skip]
    assert following(ID, timing, moments[0].at, target.due) == moments[skip + 1]
    assert first(ID, timing, target.due - MILLISECOND) == target
    assert first(ID, timing, target.due) == moments[skip + 1]


@given(timings, offsets, st.integers(0, 30))
def test_due_occurrences_are_counted_and_the_newest_found(timing: Timing, offset: timedelta, number: int) -> None:
    moments = preview(ID, timing, START + offset, 32)
    for now in (moments[number].due, moments[number + 1].due - MILLISECOND):
        assert count_due(ID, timing, moments[0].at, now) == number
        assert newest_due(ID, timing, now, number + 1) == moments[0]
        assert newest_due(ID, timing, now, 1) == moments[number]


def test_nothing_is_due_before_the_start() -> None:
    assert newest_due(ID, timing("0 9 * * *"), later(minutes=-1), 5) is None
    assert newest_due(ID, timing(), later(minutes=-1), 5) is None


def test_a_year_of_seconds_is_counted_in_no_time() -> None:
    now = START + timedelta(days=366)
    assert count_due(ID, timing("every 1s", jitter=0), START, now) == 366 * 86400


def test_missed_times_of_a_cron_are_counted_to_a_thousand() -> None:
    assert count_due(ID, timing("* * * * *"), START, START + timedelta(days=366)) == 1000
