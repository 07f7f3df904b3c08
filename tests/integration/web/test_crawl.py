from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import httpx
from httpx_sse import connect_sse

from gateway.jobs.store import JobStore
from gateway.settings import Settings

Crawl = dict[str, Any]


def test_a_new_crawl_is_a_job_from_then_on(gateway: httpx.Client, jobs: JobStore, crawl: Crawl) -> None:
    body = {**crawl, "depth": 2, "params": {"robots": False}, "priority": 3, "tags": ["a", "a", "b"], "max_pages": 9}
    response = gateway.post("/crawl", json=body, headers={"X-Request-ID": "asked-for-it"})
    job_id = response.json()["job_id"]
    assert response.status_code == 200
    assert response.json() == {
        "job_id": job_id,
        "scheduled": False,
        "cached": False,
        "logs_url": f"/jobs/{job_id}/logs",
        "status_url": f"/jobs/{job_id}/status",
    }
    job = jobs.get(job_id)
    assert (job.user_id, job.correlation_id, job.priority) == (crawl["user_id"], "asked-for-it", 3)
    assert (job.spec.depth, job.spec.params, job.spec.max_pages) == (2, {"robots": False}, 9)
    assert (job.tags, job.max_retries, job.spec.timeout) == (["a", "b"], 3, 3600)


def test_the_same_request_is_answered_with_the_same_job(gateway: httpx.Client, crawl: Crawl) -> None:
    first = gateway.post("/crawl", json=crawl).json()
    again = gateway.post("/crawl", json=crawl).json()
    assert again.pop("cached_at").endswith("Z")
    assert again == {**first, "cached": True}


def test_simultaneous_requests_make_one_job(gateway: httpx.Client, crawl: Crawl) -> None:
    with ThreadPoolExecutor(10) as threads:
        answers = list(threads.map(lambda _: gateway.post("/crawl", json=crawl).json(), range(30)))
    assert len({answer["job_id"] for answer in answers}) == 1
    assert sum(not answer["cached"] for answer in answers) == 1


def test_a_fresh_run_can_be_asked_for_in_body_and_query(gateway: httpx.Client, crawl: Crawl) -> None:
    ids = {
        gateway.post("/crawl", json=crawl).json()["job_id"],
        gateway.post("/crawl", json={**crawl, "ignore_cache": True}).json()["job_id"],
        gateway.post("/crawl?ignore_cache=true", json=crawl).json()["job_id"],
    }
    assert len(ids) == 3


def test_an_idempotency_key_makes_even_a_fresh_run_repeatable(gateway: httpx.Client, crawl: Crawl) -> None:
    headers = {"Idempotency-Key": "retry-1"}
    first = gateway.post("/crawl?ignore_cache=true", json=crawl, headers=headers).json()
    again = gateway.post("/crawl?ignore_cache=true", json=crawl, headers=headers).json()
    assert (again["job_id"], again["cached"]) == (first["job_id"], True)
    other = gateway.post("/crawl", json={**crawl, "depth": 7}, headers=headers)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_key_reused")


def test_the_answer_may_be_the_log_itself(gateway: httpx.Client, crawl: Crawl) -> None:
    with connect_sse(gateway, "POST", "/crawl", json=crawl) as source:
        assert source.response.headers["content-type"].startswith("text/event-stream")
        # what has no data (`retry:`) is no event to a browser
        events = (event for event in source.iter_sse() if event.data)
        first = next(events)
        assert (first.event, first.json()["cached"]) == ("job", False)
        gateway.post(f"/jobs/{first.json()['job_id']}/cancel").raise_for_status()
        last = [*events][-1]
    assert (last.event, last.json()["status"]) == ("end", "cancelled")


def test_without_redis_crawls_are_taken_all_the_same(
    serve: Callable[[Settings], AbstractContextManager[httpx.Client]],
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
