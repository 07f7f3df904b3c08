from __future__ import annotations

from typing import Any

import pytest
from jobs import make_job

from gateway.clock import utc_now
from gateway.contract.log_line import Position
from gateway.contract.records import ExitReport
from gateway.jobs.job import Job, JobStatus
from gateway.web.event_stream.job_stream import LogStanding
from gateway.web.event_stream.log_lines import START


def job_with(status: JobStatus = JobStatus.RUNNING, **ends: int | None) -> Job:
    """`a1=50`: attempt 1 ended at byte 50; `a2=None`: attempt 2 runs, or nobody knows."""
    attempts: dict[str, dict[str, Any]] = {}
    for name, end in ends.items():
        number = int(name[1:])
        attempts[str(number)] = {"attempt": number, "node": "n", "dispatched_at": utc_now()}
        if end is not None:
            exit_report = ExitReport(attempt=number, ended_at=utc_now())
            attempts[str(number)] |= {"log_end": end, "exit": exit_report.model_dump()}
    return make_job(status=status, attempts=attempts)


@pytest.mark.parametrize(
    ("job", "position", "ended", "end", "following"),
    [
        (job_with(), START, False, None, None),
        (job_with(JobStatus.CANCELLED), START, True, 0, None),
        (job_with(a1=None), START, False, None, None),
        (job_with(a1=50), START, True, 50, None),
        (job_with(JobStatus.ERROR, a1=None), START, True, None, None),
        (job_with(a1=None, a2=None), START, True, None, 2),
        (job_with(a3=None), START, True, 0, 3),
        (job_with(a1=1, a10=2, a9=3), START, True, 1, 9),
        (job_with(a1=50), Position(2, 0), False, None, None),
    ],
)
def test_a_log_ends_where_its_document_says(
    job: Job, position: Position, *, ended: bool, end: int | None, following: int | None
) -> None:
    assert LogStanding.of(job, position.attempt) == (ended, end, following)


@pytest.mark.parametrize(
    "text", ["", "1", "1-", "-1", "1-2-3", "1-2 ", " 1-2", "a-1", "1-²", "1234567-1", "1-" + "9" * 16]
)
def test_what_is_no_position_is_not_parsed(text: str) -> None:
    assert Position.parse(text) is None


def test_a_position_is_read_as_it_is_written() -> None:
    assert Position.parse(str(Position(12, 345))) == Position(12, 345)
    assert Position(1, 999) < Position(2, 0)
