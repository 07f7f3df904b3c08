"""What the tabs of a job say whose items and requests are not stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import orjson
import pytest
from jobs import make_job

from gateway.clock import utc_now
from gateway.contract.log_line import survey
from gateway.contract.records import Progress
from gateway.jobs.job import Attempt, Job, JobStatus
from gateway.logs.store import LogChunk, LogStore
from gateway.logs.volume import volume_of
from gateway.requests.store import RequestChunk, RequestStore

Keep = Callable[[Job], Job]


def ended(user: str, *, is_removed: bool, items: int = 1680, pages: int = 56) -> Job:
    now = utc_now()
    attempt = Attempt(attempt=1, node="n1", dispatched_at=now, started_at=now, ended_at=now)
    return make_job(
        user_id=user, status=JobStatus.FINISHED, settled=True, live_key=None, finished_at=now, attempt=1,
        attempts={"1": attempt}, progress=Progress(items_count=items, requested_pages=pages),
        items_removed_at=now if is_removed else None,
    )  # fmt: skip


def read(gateway: httpx2.Client, job: Job, tab: str) -> str:
    return gateway.get(f"/console/jobs/{job.id}/{tab}", headers={"Accept": "text/html"}).raise_for_status().text


@pytest.mark.parametrize(
    ("is_removed", "items", "requests"),
    [
        (True, "1,680 items found, since deleted", "56 pages requested. The record was deleted"),
        (False, "1,680 items found, none stored", "56 pages requested. No requests were recorded"),
    ],
)
def test_what_was_counted_and_is_not_stored_is_said_without_wrong_advice(
    gateway: httpx2.Client, keep: Keep, user: str, *, is_removed: bool, items: str, requests: str
) -> None:
    job = keep(ended(user, is_removed=is_removed))
    said = read(gateway, job, "items")
    assert items in said
    assert "no longer match" not in said
    # a filter is not to blame
    for query in ("", "?failed=true"):
        assert requests in read(gateway, job, f"requests{query}")


def test_where_nothing_was_found_and_where_a_filter_leaves_nothing_is_said_as_before(
    gateway: httpx2.Client, keep: Keep, user: str, database: Any
) -> None:
    job = keep(ended(user, is_removed=False, items=0, pages=0))
    assert "no longer match" in read(gateway, job, "items")
    assert "No requests recorded" in read(gateway, job, "requests?failed=true")
    RequestStore(database).append(RequestChunk(job.id, 1, 0, 3, b"{}\n"))
    assert "No matching requests" in read(gateway, job, "requests?failed=true")


def test_lines_of_the_log_and_requests_are_shown_by_when_they_were(
    gateway: httpx2.Client, keep: Keep, user: str, database: Any
) -> None:
    job = keep(ended(user, is_removed=False))
    for part in ("log/volume", "requests/pictures"):
        assert "<svg" not in read(gateway, job, part)
    log = b"".join(b"2027-06-01 09:00:%02d [shop] INFO: said\n" % second for second in range(30))
    failed = b"2027-06-01 09:00:30 [shop] ERROR: failed\nTraceback\n"
    found = survey(log + failed, "INFO", None)
    data, volume = log + failed, volume_of(found.times, 0)
    LogStore(database).append(LogChunk(job.id, 1, 0, len(data), "INFO", data, None, found.lines, volume))
    page = read(gateway, job, "log/volume")
    assert page.count("<title>") == 31
    # a click on the error leads to its line
    assert f'log#1-{len(log) + 1}" tabindex="-1" aria-label="09:00:30 UTC: 2 ERROR"><rect data-status="error"' in page
    assert "<title>09:00:30 UTC: 2 ERROR</title>" in page
    asked = [(200, 40, {}), (404, 40, {}), (None, 70_000, {"failed": True})]
    lines = [
        {"url": "http://site/", "at": 1_811_840_400_000 + 2000 * number, "status": status, "ms": ms, **more}
        for number, (status, ms, more) in enumerate(asked)
    ]
    data = b"".join(orjson.dumps(one) + b"\n" for one in lines)
    RequestStore(database).append(RequestChunk(job.id, 1, 0, len(data), data))
    page = read(gateway, job, "requests/pictures?attempt=all")
    assert "<title>0 to 50 ms: 1 answered, 1 4xx</title>" in page
    assert "slow_ms=30000#tab" in page
    assert "<title>30000 ms or more: 1 failed</title>" in page
    assert "<title>09:00:04 UTC: 1 failed</title>" in page
