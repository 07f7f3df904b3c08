from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.jobs.job import Decision, Occurrence
from gateway.schedules.occurrences import OccurrenceVerdict, advanced, judge
from gateway.schedules.schedule import Schedule, ScheduleState, Timing

NINE = datetime(2027, 6, 1, 9, tzinfo=UTC)
TEN = NINE + timedelta(hours=1)


def schedule(**fields: Any) -> Schedule:
    timing = Timing(interval="every 1h", starts_at=NINE)
    given = {"rev": 3, "timing_rev": 2, "next_at": NINE, "next_run": NINE}
    known = {"id": "a" * 32, "user_id": "ada", "timing": timing, "fingerprint": "f", "created_at": NINE}
    return Schedule.model_validate({**known, "updated_at": NINE, **given, **fields})


def occurrence(**fields: Any) -> Occurrence:
    return Occurrence.model_validate(
        {"rev": 3, "at": NINE, "due": NINE, "fired_at": NINE, "next_at": TEN, "next_due": TEN, **fields}
    )


@pytest.mark.parametrize(
    ("rev", "now", "verdict"),
    [
        (3, {}, OccurrenceVerdict.ADVANCE),
        (3, {"next_at": TEN}, OccurrenceVerdict.READY),
        (3, {"next_at": None, "state": ScheduleState.ENDED}, OccurrenceVerdict.READY),
        (2, {}, OccurrenceVerdict.REFRESH),
        (2, {"next_at": TEN}, OccurrenceVerdict.REFRESH),
        (1, {}, OccurrenceVerdict.VOID),
        (2, {"timing_rev": 3}, OccurrenceVerdict.VOID),
        (4, {}, OccurrenceVerdict.VOID),
    ],
)
def test_what_may_become_of_a_held_job(rev: int, now: dict[str, Any], verdict: OccurrenceVerdict) -> None:
    assert judge(occurrence(rev=rev), schedule(**now)) is verdict


def test_a_job_whose_schedule_is_gone_is_void() -> None:
    assert judge(occurrence(), None) is OccurrenceVerdict.VOID


def test_a_run_is_counted_and_named() -> None:
    changes = advanced(schedule(runs=4), "job", occurrence(), Decision.RUN)
    assert changes == {
        "next_at": TEN, "next_run": TEN, "runs": 5, "last_run_at": NINE, "last_job_id": "job",
    }  # fmt: skip


@pytest.mark.parametrize("fate", [Decision.SKIP, Decision.MISS, None])
def test_what_does_not_run_is_not_counted(fate: Decision | None) -> None:
    assert advanced(schedule(), "job", occurrence(), fate) == {"next_at": TEN, "next_run": TEN}


def test_the_last_run_ends_it() -> None:
    changes = advanced(schedule(max_runs=1), "job", occurrence(), Decision.RUN)
    assert (changes["state"], changes["message"]) == (ScheduleState.ENDED, "max runs reached (1)")
    assert (changes["next_at"], changes["next_run"], changes["live_key"]) == (None, None, None)


def test_it_ends_where_no_occurrence_follows_also_without_a_run() -> None:
    changes = advanced(schedule(), "job", occurrence(next_at=None, next_due=None), Decision.SKIP)
    assert (changes["state"], changes["message"]) == (ScheduleState.ENDED, "no runs left before its end date")
