from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.jobs.job import Decision
from gateway.schedules.next_run import OccurrenceTime, preview
from gateway.schedules.occurrences import OccurrencePlan, plan
from gateway.schedules.schedule import GRACE_SECONDS, MAX_CATCH_UP, CatchUp, Schedule, Timing

START = datetime(2027, 3, 1, 8, tzinfo=UTC)
GRACE = timedelta(seconds=GRACE_SECONDS)
MILLISECOND = timedelta(milliseconds=1)


def schedule(catch_up: CatchUp, interval: str = "every 1m", **timing: Any) -> Schedule:
    return Schedule(
        id="a" * 32, user_id="u", catch_up=catch_up, fingerprint="f", created_at=START, updated_at=START,
        timing=Timing(interval=interval, starts_at=START, **{"jitter": 0, **timing}), next_at=START, next_run=START,
    )  # fmt: skip


def at(**distance: float) -> OccurrenceTime:
    moment = START + timedelta(**distance)
    return OccurrenceTime(moment, moment)


@pytest.mark.parametrize("catch_up", CatchUp)
@pytest.mark.parametrize("late", [timedelta(), GRACE])
def test_an_occurrence_that_is_hardly_late_just_runs(catch_up: CatchUp, late: timedelta) -> None:
    assert plan(schedule(catch_up), START + late) == OccurrencePlan(Decision.RUN, 0, at(minutes=1))


@pytest.mark.parametrize("catch_up", CatchUp)
def test_occurrences_within_the_grace_are_fired_one_by_one(catch_up: CatchUp) -> None:
    assert plan(schedule(catch_up, "every 1s"), START + GRACE) == OccurrencePlan(Decision.RUN, 0, at(seconds=1))


def test_one_run_stands_for_all_that_were_missed() -> None:
    assert plan(schedule(CatchUp.ONE, "every 1s"), START + timedelta(seconds=10)) == OccurrencePlan(
        Decision.RUN, 10, at(seconds=11)
    )


def test_a_single_occurrence_that_was_missed_is_made_up_for() -> None:
    assert plan(schedule(CatchUp.ONE, "every 1d"), START + timedelta(hours=9)) == OccurrencePlan(
        Decision.RUN, 0, at(days=1)
    )


def test_without_catch_up_it_goes_on_with_the_first_occurrence_that_is_fresh() -> None:
    fate, missed, following, reason = plan(schedule(CatchUp.NONE, "every 1s"), START + timedelta(seconds=20))
    assert (fate, missed, following) == (Decision.MISS, 14, at(seconds=15))
    assert reason == "found 20 s late, and catch_up is none"


def test_without_catch_up_a_daily_occurrence_waits_for_the_next_day() -> None:
    decided = plan(schedule(CatchUp.NONE, "every 1d"), START + timedelta(hours=1))
    assert decided[:3] == (Decision.MISS, 0, at(days=1))


def test_all_are_made_up_for_one_by_one() -> None:
    late = timedelta(minutes=MAX_CATCH_UP - 1)
    assert plan(schedule(CatchUp.ALL), START + late) == OccurrencePlan(Decision.RUN, 0, at(minutes=1))


@pytest.mark.parametrize("interval", ["every 1m", "* * * * *"])
def test_of_too_many_the_newest_are_made_up_for(interval: str) -> None:
    decided = plan(schedule(CatchUp.ALL, interval), START + timedelta(minutes=MAX_CATCH_UP + 50))
    assert decided[:3] == (Decision.MISS, 50, at(minutes=51))
    assert decided.reason == "found 9000 s late, and catch_up covers only the newest 100 occurrences"


@pytest.mark.parametrize("catch_up", CatchUp)
def test_nothing_runs_after_the_end_date(catch_up: CatchUp) -> None:
    ending = schedule(catch_up, ends_at=START + timedelta(minutes=5))
    late = START + timedelta(minutes=5) + GRACE
    assert plan(ending, late).fate is (Decision.MISS if catch_up is CatchUp.NONE else Decision.RUN)
    decided = plan(ending, late + MILLISECOND)
    assert decided[:3] == (Decision.MISS, 5, None)
    assert decided.reason == "found 305 s late, after the end date 2027-03-01T08:05:00.000Z"


@pytest.mark.parametrize("interval", ["every 10s", "*/2 * * * *"])
@pytest.mark.parametrize("jitter", [0, 0.5])
def test_whatever_the_outage_every_occurrence_is_accounted_for_once(interval: str, jitter: float) -> None:
    """After an outage: what runs, what is missed and what is stood for are all the occurrences that were due."""
    for catch_up in CatchUp:
        late = schedule(catch_up, interval, jitter=jitter)
        now = START + timedelta(hours=5, seconds=7)
        occurrences = [
            moment for moment in preview(late.id, late.timing, START - MILLISECOND, 2500) if moment.due <= now
        ]
        late.next_at, late.next_run = occurrences[0]
        accounted = 0
        while late.next_run is not None and late.next_run <= now:
            decided = plan(late, now)
            accounted += 1 + decided.missed
            assert decided.next is not None
            late.next_at, late.next_run = decided.next
        assert accounted == len(occurrences)


def test_a_schedule_without_an_occurrence_has_no_plan() -> None:
    paused = schedule(CatchUp.ONE)
    paused.next_at = None
    with pytest.raises(ValueError, match="has no occurrence to come"):
        plan(paused, START)
