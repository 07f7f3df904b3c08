"""What to do next, from how a job stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jobs import make_job

from gateway.clock import utc_now
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.jobs import advice as advices
from gateway.jobs.advice import Place, advice
from gateway.jobs.job import JobStatus, WaitingReason
from gateway.jobs.outcome import decide

DOCS = Path(__file__).parents[4]


def ended(**facts: Any) -> ExitReport:
    return ExitReport(attempt=1, ended_at=utc_now(), **{"exit_code": 0, **facts})


def reported(reason: str = "", *, pages: int = 0, errors: int = 1, finish: str = "finished") -> ExitReport:
    progress = Progress(requested_pages=pages + errors, completed_pages=pages, errors_count=errors)
    first = [{"url": "http://site.example/", "reason": reason}] if reason else []
    report = SpiderReport(finish_reason=finish, progress=progress, errors=first, ended_at=utc_now())
    return ended(report=report)


#: How an attempt ended → words of the advice, and where its first step is done.
ENDS: dict[str, tuple[ExitReport, str, Place | None]] = {
    "refused address": (reported("10.0.0.1 is not a public address"), "not public", None),
    "import": (ended(exit_code=1, log_tail="ModuleNotFoundError: No module named 'lxml'"), "imported", None),
    "parameters": (
        ended(exit_code=1, log_tail="TypeError: __init__() got an unexpected keyword argument 'x'"),
        "parameters",
        Place.AGAIN,
    ),
    "callback": (reported("in the spider: KeyError: 'price'"), "own code", Place.LOG),
    "start": (
        ended(
            report=SpiderReport(
                finish_reason="start_error",
                progress=Progress(),
                ended_at=utc_now(),
                errors=[{"reason": "in the spider: KeyError: 'x'", "kind": "start"}],
            )
        ),
        "own code",
        Place.LOG,
    ),
    "opening": (
        ended(
            report=SpiderReport(
                finish_reason="broke_down",
                progress=Progress(),
                ended_at=utc_now(),
                errors=[{"reason": "ConnectionError: refused", "kind": "breakdown"}],
            )
        ),
        "could not be opened",
        Place.LOG,
    ),
    "too often": (reported("HTTP 429 Too Many Requests"), "too often", Place.AGAIN),
    "forbidden": (reported("HTTP 403 Forbidden"), "refuses", Place.REQUESTS),
    "missing": (reported("HTTP 404 Not Found"), "begin with", Place.AGAIN),
    "broken": (reported("HTTP 503 Service Unavailable"), "server has failed", Place.AGAIN),
    "proxy": (reported("the proxy p.example refused the connection"), "proxy", Place.AGAIN),
    "no host": (reported("the host name could not be resolved"), "connection", Place.AGAIN),
    "no answer": (reported("TimeoutError: User timeout caused connection failure"), "in time", Place.AGAIN),
    "time": (ended(stopped_by="timeout"), "time was over", Place.AGAIN),
    "memory": (ended(stopped_by="memory"), "memory", Place.AGAIN),
    "processes": (ended(stopped_by="processes"), "processes at a time", Place.LOG),
    "log": (ended(stopped_by="log"), "log", Place.LOG),
    "files": (ended(stopped_by="files"), "files took", Place.LOG),
    "stall": (ended(stopped_by="stall", stall_seconds=300), "stood still", Place.LOG),
    "killed": (ended(signal=9), "killed from outside", Place.NODES),
    "crashed": (ended(signal=11), "crashed", Place.LOG),
    "lost": (ended(lost=True), "killed from outside", Place.NODES),
    "never started": (ended(refused="spawn_failed: no room"), "could not begin", Place.NODES),
    "nothing": (reported(errors=0), "single page", Place.AGAIN),
    "no items": (reported(pages=3, errors=0), "found nothing", Place.REQUESTS),
    "early": (reported(pages=3, errors=0, finish="enough"), "closed itself", Place.LOG),
}


@pytest.mark.parametrize("name", ENDS)
def test_each_way_to_fail_has_a_next_step(name: str) -> None:
    facts, words, place = ENDS[name]
    outcome = decide(facts)
    job = make_job(status=outcome.status, message=outcome.message)
    found = advice(job)
    assert found is not None
    assert words in found.what, f"{outcome.message!r} is answered with {found.what!r}"
    assert found.steps[0].place is place


def test_robots_and_expectations_are_told_from_other_failures() -> None:
    robots = advice(make_job(status=JobStatus.ERROR, message="robots.txt forbids the start page; the spider's …"))
    message = "4 pages; 1 of 4 requests failed; 4 items, expected at least 100"
    expected = advice(make_job(status=JobStatus.PARTIAL, message=message))
    assert robots is not None
    assert "robots.txt" in robots.what
    assert expected is not None
    assert [step.place for step in expected.steps] == [Place.ITEMS, Place.RUNS]


def test_where_nothing_is_to_be_done_nothing_is_said() -> None:
    for status, message in (("finished", "12 pages"), ("cancelled", "cancelled on request"), ("running", None)):
        assert advice(make_job(status=status, message=message)) is None
    assert advice(make_job(status=JobStatus.ERROR, message="of tomorrow")) is not None


@pytest.mark.parametrize("reason", [*WaitingReason, None])
def test_each_reason_to_wait_is_explained(reason: WaitingReason | None) -> None:
    found = advice(make_job(waiting_reason=reason))
    assert found is not None
    assert found.steps


def test_the_documentation_has_what_advice_refers_to() -> None:
    every = [one for _, one in advices._BY_MESSAGE] + [*advices._BY_REASON.values()]
    for reference in {one.reference for one in every}:
        path, _, anchor = reference.partition("#")
        headings = re.findall(r"^#+ (.+)$", (DOCS / path).read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, reference
