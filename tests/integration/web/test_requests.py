"""`GET /jobs/{id}/requests`: a crawl's requests, filtered, sorted, page by page and as a whole."""

from __future__ import annotations

import csv
import io
from typing import Any

import httpx2
import orjson
import pytest
from jobs import make_job

from gateway.clock import utc_now
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.jobs.job import Attempt, Job, JobStatus
from gateway.jobs.store import JobStore
from gateway.requests.store import RequestChunk, RequestStore

COUNT = 2500
HOSTILE = 'javascript:alert(1)//<script>"\N{RIGHT-TO-LEFT OVERRIDE}'
NINE = 1_811_840_401_250


def facts(number: int) -> dict[str, Any]:
    known: dict[str, Any] = {"url": f"http://site/{number}", "at": NINE + number, "attempt": 2}
    if number % 100 == 7:
        return {**known, "ms": 30_000, "failed": True, "reason": "the connection was refused", "retries": 2}
    if number % 100 == 8:
        return {**known, "status": 200, "bytes": 10, "cached": True, "parent": "http://site/"}
    if number % 100 == 9:
        return {**known, "status": 404, "ms": 5, "bytes": 9, "redirected_to": "http://other/Gone"}
    return {**known, "status": 200, "ms": number, "bytes": COUNT - number, "parent": "http://site/"}


def store(requests: RequestStore, job: Job, attempt: int, lines: list[bytes], *, of_each: int = 400) -> None:
    """Store the lines in chunks of `of_each` lines."""
    start = 0
    for first in range(0, len(lines), of_each):
        data = b"".join(line + b"\n" for line in lines[first : first + of_each])
        requests.append(RequestChunk(job.id, attempt, start, start + len(data), data))
        start += len(data)


def ended(attempt: int, left_out: int = 0) -> Attempt:
    stats = {"discoverybot/requests_left_out": left_out} if left_out else {}
    report = SpiderReport(finish_reason="finished", progress=Progress(), stats=stats, ended_at=utc_now())
    exit_report = ExitReport(attempt=attempt, ended_at=utc_now(), report=report)
    return Attempt(attempt=attempt, node="n1", dispatched_at=utc_now(), exit=exit_report)


@pytest.fixture(scope="module")
def requests(database: Any) -> RequestStore:
    return RequestStore(database)


@pytest.fixture(scope="module")
def job(gateway: httpx2.Client, database: Any, requests: RequestStore) -> Job:
    """A job whose second attempt went on from the first one, which had left one request undone."""
    attempts = {"1": ended(1), "2": ended(2, left_out=42)}
    job = make_job(status=JobStatus.FINISHED, attempt=2, attempts=attempts, settled=True, finished_at=utc_now())
    JobStore(database).insert(job)
    taken_over = [{"url": "http://site/first", "status": 200, "ms": 1, "attempt": 1}]
    undone = {"url": "http://site/undone", "status": 200, "ms": 2, "attempt": 1}
    store(requests, job, 1, [orjson.dumps(one) for one in (*taken_over, undone)])
    store(requests, job, 2, [orjson.dumps(one) for one in (*taken_over, *map(facts, range(COUNT)))])
    return job


@pytest.fixture
def ask(gateway: httpx2.Client, job: Job) -> Any:
    def pages(**query: Any) -> list[dict[str, Any]]:
        """The requests of all pages."""
        found, after = [], {}
        while True:
            page = gateway.get(f"/jobs/{job.id}/requests", params={**query, **after}).raise_for_status().json()
            found += page["requests"]
            if page["next"] is None:
                return found
            after = {"after": page["next"]}

    return pages


def test_each_request_is_told_as_it_ended(gateway: httpx2.Client, job: Job) -> None:
    page = gateway.get(f"/jobs/{job.id}/requests", params={"limit": 10}).json()
    assert page["requests"][1] == {
        "url": "http://site/0", "status": 200, "ms": 0, "bytes": COUNT, "cached": False, "failed": False,
        "reason": None, "code": None, "redirected_to": None, "retries": 0, "parent": "http://site/", "attempt": 2,
        "at": "2027-06-01T09:00:01.250Z",
    }  # fmt: skip
    assert page["requests"][8]["reason"] == "the connection was refused"
    assert page["left_out"] == 42
    assert page["next"]


def test_all_pages_have_each_once(ask: Any) -> None:
    for query in ({}, {"limit": 999}, {"sort": "-ms", "limit": 700}, {"sort": "-bytes", "limit": 1000}):
        found = ask(**query)
        assert len(found) == COUNT + 1
        assert len({one["url"] for one in found}) == COUNT + 1


def test_the_slowest_and_the_largest_come_first(ask: Any) -> None:
    slowest = [one["ms"] for one in ask(sort="-ms", limit=1000)]
    assert slowest[:25] == [30_000] * 25
    sent = [ms for ms in slowest if ms is not None]
    assert sent == sorted(sent, reverse=True)
    assert slowest[len(sent) :] == [None] * 25, "from the cache"
    assert ask(sort="-bytes", limit=1000)[0]["url"] == "http://site/0"


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ({"failed": "true"}, 25),
        ({"failed": "false"}, COUNT + 1 - 25),
        ({"cached": "true"}, 25),
        ({"redirected": "true"}, 25),
        ({"status": "404"}, 25),
        ({"status": "4xx"}, 25),
        ({"slow_ms": 30_000}, 25),
        ({"q": "SITE/13"}, 111),
        ({"q": "other/gone"}, 25),
        ({"q": "site/9", "status": "404"}, 2),
        ({"q": "nowhere"}, 0),
    ],
)
def test_filters(ask: Any, query: dict[str, Any], number: int) -> None:
    assert len(ask(**query)) == number
    assert len(ask(**query, sort="-ms", limit=7 if number < 50 else 900)) == number


def test_a_search_says_how_many_it_has_looked_at(gateway: httpx2.Client, job: Job) -> None:
    address, query = f"/jobs/{job.id}/requests", {"q": "other", "limit": 20}
    first = gateway.get(address, params=query)
    second = gateway.get(address, params={**query, "after": first.json()["next"]})
    assert int(first.headers["x-searched"]) + int(second.headers["x-searched"]) == pytest.approx(COUNT + 1, abs=500)
    slowest = gateway.get(address, params={**query, "sort": "-ms"})
    assert slowest.headers["x-searched"] == str(COUNT + 1)


def test_a_page_that_takes_long_ends_early_and_the_next_one_goes_on(
    gateway: httpx2.Client, ask: Any, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.requests.store.SECONDS", -1)
    address = f"/jobs/{job.id}/requests"
    first = gateway.get(address, params={"status": "599"}).json()
    assert (first["requests"], first["next"] is None) == ([], False)
    assert ask(status="599") == []
    assert len(ask(status="404")) == 25
    rows = gateway.get(address, params={"status": "404", "format": "csv"}).text.splitlines()
    assert (len(rows), rows[0].startswith("url,")) == (26, True)


def test_attempts(ask: Any) -> None:
    assert [one["url"] for one in ask(attempt=1)] == ["http://site/first", "http://site/undone"]
    assert len(ask(attempt=2)) == COUNT + 1
    everything = ask(attempt="all")
    assert len(everything) == COUNT + 2, "each attempt's own"
    assert {one["url"] for one in everything if one["attempt"] == 1} == {"http://site/first", "http://site/undone"}


def test_as_json_lines_and_csv(gateway: httpx2.Client, job: Job, requests: RequestStore) -> None:
    address = f"/jobs/{job.id}/requests"
    lines = gateway.get(address, params={"format": "jsonl"})
    assert gateway.get(f"{address}/download").content == lines.content
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert lines.headers["x-left-out"] == "42"
    parsed = [orjson.loads(line) for line in lines.content.splitlines()]
    assert len(parsed) == COUNT + 1
    assert parsed[1] == gateway.get(address).json()["requests"][1]
    table = gateway.get(address, params={"format": "csv", "failed": "true"})
    rows = list(csv.DictReader(io.StringIO(table.text)))
    assert len(rows) == 25
    assert (rows[0]["ms"], rows[0]["failed"]) == ("30000", "true")
    page = gateway.get(address, params={"format": "csv", "sort": "-ms", "limit": 3})
    more = gateway.get(address, params={"format": "csv", "sort": "-ms", "limit": 3, "after": page.headers["x-next"]})
    everything = gateway.get(address, params={"format": "jsonl", "sort": "-ms"}).content.splitlines()
    assert [orjson.loads(line)["ms"] for line in everything[24:26]] == [30_000, 2499]
    assert len(everything) == COUNT + 1
    urls = [row["url"] for answer in (page, more) for row in csv.DictReader(io.StringIO(answer.text))]
    assert urls == [f"http://site/{100 * number + 7}" for number in range(6)]
    assert f'filename="{job.spec.spider}-requests-' in page.headers["content-disposition"]


def test_what_a_spider_may_have_written_is_shown_as_it_is_or_not_at_all(
    gateway: httpx2.Client, database: Any, requests: RequestStore
) -> None:
    attempts = {"1": ended(1)}
    job = make_job(status=JobStatus.RUNNING, attempt=1, attempts=attempts)
    JobStore(database).insert(job)
    bad = [b"{", b"[]", b'"x"', b"{}", b'{"url": 7}', b"\xff", b'{"url":"\\ud800"}', b"[" * 10_000]
    odd = {"url": HOSTILE, "status": "200", "ms": 1e99, "at": 10**17, "bytes": 10**15, "parent": ["x"], "failed": 1}
    formula = {"url": "=cmd|' /C calc'!A0", "attempt": 1, "ms": True}
    store(requests, job, 1, [*bad, orjson.dumps(odd), orjson.dumps(formula)])
    for sort in ("at", "-ms", "-bytes"):
        answer = gateway.get(f"/jobs/{job.id}/requests", params={"sort": sort, "limit": 10})
        found = {one["url"]: one for one in answer.json()["requests"]}
        assert found.keys() == {HOSTILE, formula["url"]}
        assert {found[HOSTILE][name] for name in ("status", "ms", "at", "parent")} == {None}
        assert found[HOSTILE]["failed"] is False
    escaped = gateway.get(f"/jobs/{job.id}/requests", params={"format": "csv"})
    assert "\n'=cmd" in escaped.text.replace('"', "")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"sort": "ms"}, "sort"),
        ({"sort": "-ms", "after": "1-20"}, "after"),
        ({"after": "5.1-20"}, "after"),
        ({"after": "x"}, "after"),
        ({"status": "9x"}, "status"),
        ({"limit": 1001}, "limit"),
        ({"attempt": 7}, "attempt"),
        ({"slow": 7}, "slow"),
    ],
)
def test_what_is_wrong_is_named(gateway: httpx2.Client, job: Job, query: dict[str, Any], field: str) -> None:
    answer = gateway.get(f"/jobs/{job.id}/requests", params=query)
    assert answer.status_code == 422
    assert field in answer.text


def test_a_job_that_has_not_begun_has_none(gateway: httpx2.Client, database: Any) -> None:
    job = make_job()
    JobStore(database).insert(job)
    page = gateway.get(f"/jobs/{job.id}/requests").json()
    assert page == {"requests": [], "next": None, "left_out": 0, "removed_at": None}
    assert gateway.get(f"/jobs/{job.id}/requests", params={"format": "jsonl"}).content == b""
    assert gateway.get(f"/jobs/{'0' * 32}/requests").status_code == 404
