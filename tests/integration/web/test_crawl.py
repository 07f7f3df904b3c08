from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import httpx2
import pytest

from gateway.jobs.store import JobStore
from gateway.settings import Settings

Crawl = dict[str, Any]

STREAM = {"Accept": "text/event-stream"}


def test_a_new_crawl_is_a_job_from_then_on(gateway: httpx2.Client, jobs: JobStore, crawl: Crawl) -> None:
    body = {**crawl, "depth": 2, "params": {"robots": False}, "priority": 3, "tags": ["a", "a", "b"], "max_pages": 9}
    response = gateway.post("/crawl", json=body, headers={"X-Request-ID": "asked-for-it"})
    job_id = response.json()["job_id"]
    assert response.status_code == 200
    assert response.json() == {
        "job_id": job_id,
        "scheduled": False,
        "cached": False,
        "logs_url": f"/jobs/{job_id}/logs",
        "page_url": f"/console/jobs/{job_id}",
        "status_url": f"/jobs/{job_id}/status",
    }
    job = jobs.get(job_id)
    assert (job.user_id, job.correlation_id, job.priority) == (crawl["user_id"], "asked-for-it", 3)
    assert (job.spec.depth, job.spec.params, job.spec.max_pages) == (2, {"robots": False}, 9)
    assert (job.tags, job.max_retries, job.spec.timeout) == (["a", "b"], 3, 3600)


def test_the_same_request_is_answered_with_the_same_job(gateway: httpx2.Client, crawl: Crawl) -> None:
    first = gateway.post("/crawl", json=crawl).json()
    again = gateway.post("/crawl", json=crawl).json()
    assert again.pop("cached_at").endswith("Z")
    assert again == {**first, "cached": True}


#: Wrong fields of a body.
MORE = [
    b'"user_id": "\\ud800"',
    b'"start_urls": ["http://127.0.0.1/"]',
    b'"depth": 1.0',
    b'"depth": 99999999999999999999',
    b'"params": {"robots": 1e400}',
    b'"params": {"robots": NaN}',
    b'"params": {"robots": 99999999999999999999}',
    b'"params": ' + b'{"a":' * 300 + b"1" + b"}" * 300,
    b'"unknown": 1',
    b'"spider": "nosuch"',
    b'"user_id": "twice", "max_retries": 21',
    b'"jitter": 0.1',
    b'"schedule_at": "soon"',
]
WHOSE = b'"user_id": "u", "spider": "seo", "start_urls": ["http://93.184.215.14/"], '
ODD = [b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", *(b"{" + WHOSE + more + b"}" for more in MORE)]


@pytest.mark.parametrize("body", ODD)
def test_what_is_wrong_is_said_in_the_same_words_on_both_ways(gateway: httpx2.Client, body: bytes) -> None:
    answers = []
    # the gateway reads the first body itself; with the second type, FastAPI does
    for kind in ("application/json", "application/json; charset=utf-8"):
        headers = {"Content-Type": kind, "X-Request-ID": "one"}
        answer = gateway.post("/crawl", content=body, headers=headers)
        answers.append((answer.status_code, answer.content, sorted(answer.headers)))
    assert answers[0] == answers[1]
    assert answers[0][0] in {403, 422}


@pytest.mark.parametrize("extra", [{}, {"depth": 3, "tags": ["b", "a"], "fetch": {}}, {"params": {"robots": True}}])
def test_a_plain_request_and_any_other_are_one_request(
    gateway: httpx2.Client, jobs: JobStore, crawl: Crawl, extra: Crawl
) -> None:
    body = json.dumps({**crawl, **extra}).encode()
    made = gateway.post("/crawl", content=body, headers={"Content-Type": "application/json"})
    other = gateway.post("/crawl", content=body, headers={"Content-Type": "application/json; charset=utf-8"})
    known = gateway.post("/crawl", content=body, headers={"Content-Type": "application/json"})
    assert other.json()["job_id"] == made.json()["job_id"]
    assert known.content == other.content
    assert sorted(known.headers) == sorted(other.headers)
    assert jobs.get(made.json()["job_id"]).correlation_id == made.headers["X-Request-ID"]


def test_a_body_in_pieces_is_a_body(gateway: httpx2.Client, crawl: Crawl) -> None:
    whole = json.dumps(crawl).encode()
    pieces = iter([whole[:20], whole[20:]])
    answer = gateway.post("/crawl", content=pieces, headers={"Content-Type": "application/json"})
    assert answer.json()["job_id"] == gateway.post("/crawl", json=crawl).json()["job_id"]


def test_simultaneous_requests_make_one_job(gateway: httpx2.Client, crawl: Crawl) -> None:
    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda _: gateway.post("/crawl", json=crawl).json(), range(30)))
    assert len({answer["job_id"] for answer in answers}) == 1
    assert sum(not answer["cached"] for answer in answers) == 1


def test_simultaneous_requests_are_all_told_at_the_end(gateway: httpx2.Client, jobs: JobStore, crawl: Crawl) -> None:
    urls = {f"http://93.184.215.14/told/{number}" for number in range(10)}
    with ThreadPoolExecutor(10) as threads:
        answers = threads.map(lambda url: gateway.post("/crawl", json={**crawl, "webhook_url": url}), urls)
        (job_id,) = {answer.json()["job_id"] for answer in answers}
    assert set(jobs.get(job_id).webhooks) == urls


def test_a_fresh_run_can_be_asked_for_in_body_and_query(gateway: httpx2.Client, crawl: Crawl) -> None:
    ids = {
        gateway.post("/crawl", json=crawl).json()["job_id"],
        gateway.post("/crawl", json={**crawl, "ignore_cache": True}).json()["job_id"],
        gateway.post("/crawl?ignore_cache=true", json=crawl).json()["job_id"],
    }
    assert len(ids) == 3


def test_an_idempotency_key_makes_even_a_fresh_run_repeatable(gateway: httpx2.Client, crawl: Crawl) -> None:
    headers = {"Idempotency-Key": "retry-1"}
    first = gateway.post("/crawl?ignore_cache=true", json=crawl, headers=headers).json()
    again = gateway.post("/crawl?ignore_cache=true", json=crawl, headers=headers).json()
    assert (again["job_id"], again["cached"]) == (first["job_id"], True)
    other = gateway.post("/crawl", json={**crawl, "depth": 7}, headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")


def test_the_answer_may_be_the_log_itself(gateway: httpx2.Client, crawl: Crawl) -> None:
    with gateway.stream("POST", "/crawl", headers=STREAM, json=crawl) as source:
        assert source.headers["content-type"].startswith("text/event-stream")
        # a browser takes a block without data (`retry:`) for no event
        events = (event for event in httpx2.EventSource(source) if event.data)
        first = next(events)
        assert (first.event, first.json()["cached"]) == ("job", False)
        gateway.post(f"/jobs/{first.json()['job_id']}/cancel").raise_for_status()
        last = [*events][-1]
    assert (last.event, last.json()["status"]) == ("end", "cancelled")


def test_without_redis_crawls_are_taken_all_the_same(
    serve: Callable[[Settings], AbstractContextManager[httpx2.Client]],
    settings: Settings,
    gateway: object,
    crawl: Crawl,
) -> None:
    with serve(settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"})) as alone:
        first = alone.post("/crawl", json=crawl)
        assert (first.status_code, first.json()["cached"]) == (200, False)
        again = alone.post("/crawl", json=crawl).json()
        assert (again["job_id"], again["cached"]) == (first.json()["job_id"], True)
        health = alone.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
        assert health.json()["checks"]["redis"]["status"] == health.json()["checks"]["broker"]["status"] == "down"
