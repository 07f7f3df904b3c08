"""How many crawls may wait: whoever asks for one more is told so, and nobody who only repeats is."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
from integration.web.board import Board, Serve, open_board, problem
from jobs import make_job
from stack import wait_until

from gateway.domain.clock import to_iso, utc_now
from gateway.domain.job import CrawlSpec, JobStatus
from gateway.domain.slot import Trigger
from gateway.settings import Settings

QUEUE_FULL, USER_QUOTA = (429, "queue_full"), (429, "user_quota")


@contextmanager
def limited(serve: Serve, settings: Settings, **limits: int) -> Iterator[Board]:
    """A gateway with these limits, and nobody who waits there yet."""
    with open_board(serve, settings.model_copy(update=limits), f"quotas-{uuid.uuid4().hex[:8]}") as board:
        # it may know requests of another test
        board.redis.flushdb()
        yield board


@pytest.fixture
def two_each(serve: Serve, settings: Settings) -> Iterator[Board]:
    with limited(serve, settings, crawl_user_waiting_max=2) as board:
        yield board


def ask(
    board: Board, name: str, *, user: str = "anne", headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    body = {"user_id": user, "spider": "jobs", "start_urls": [f"https://example.com/{name}"], **fields}
    return board.http.post("/crawl", json=body, headers=headers)


def fill(board: Board) -> list[str]:
    """As many crawls as `anne` may have."""
    return [ask(board, name).raise_for_status().json()["job_id"] for name in ("one", "two")]


def test_a_user_with_as_many_waiting_as_allowed_is_told_when_to_ask_again(two_each: Board) -> None:
    fill(two_each)
    refused = ask(two_each, "three")
    error = refused.json()["error"]
    assert problem(refused) == USER_QUOTA
    assert 5 <= int(refused.headers["retry-after"]) <= 15
    assert error["detail"] == {"limit": 2, "waiting": 2}
    for told in ("2 crawls of 'anne' wait", "CRAWL_USER_WAITING_MAX", refused.headers["retry-after"]):
        assert told in error["message"]
    assert two_each.database["jobs"].count_documents({"user_id": "anne"}) == 2
    assert ask(two_each, "three", user="bert").status_code == 200


def test_who_repeats_a_request_is_answered_however_many_wait(two_each: Board) -> None:
    one, two = fill(two_each)
    assert ask(two_each, "one").json()["job_id"] == one
    # also where Redis has forgotten it
    for key in two_each.redis.scan_iter("crawl:anne:*"):
        two_each.redis.delete(key)
    again = ask(two_each, "two").json()
    assert (again["job_id"], again["cached"]) == (two, True)


def test_an_idempotency_key_is_answered_however_many_wait(two_each: Board) -> None:
    headers = {"Idempotency-Key": "again"}
    first = ask(two_each, "one", headers=headers, ignore_cache=True).json()["job_id"]
    ask(two_each, "two")
    assert ask(two_each, "one", headers=headers, ignore_cache=True).json()["job_id"] == first
    assert problem(ask(two_each, "one", ignore_cache=True)) == USER_QUOTA
    # who was refused has overtaken nobody
    assert two_each.jobs.get(first).live_key is not None


def test_a_refused_request_leaves_nothing_behind(two_each: Board) -> None:
    one, _ = fill(two_each)
    assert problem(ask(two_each, "three")) == USER_QUOTA
    two_each.http.post(f"/jobs/{one}/cancel").raise_for_status()
    accepted = wait_until(lambda: _accepted(ask(two_each, "three")), what="a free place")
    assert accepted["cached"] is False
    assert two_each.jobs.get(accepted["job_id"]).status is JobStatus.PENDING


def _accepted(answer: httpx.Response) -> dict[str, Any] | None:
    return dict(answer.json()) if answer.is_success else None


def test_what_a_person_asks_for_again_is_a_submission_too(two_each: Board) -> None:
    ended = {"status": JobStatus.ERROR, "settled": True, "live_key": None, "user_id": "anne"}
    spec = CrawlSpec(spider="jobs", start_urls=("https://example.com/old",))
    letter = make_job(spec=spec, dead=True, trigger=Trigger.MANUAL, **ended)
    two_each.jobs.insert(letter)
    fill(two_each)
    assert problem(two_each.http.post(f"/jobs/{letter.id}/retry")) == USER_QUOTA
    assert problem(two_each.http.post(f"/dead-letters/{letter.id}/requeue")) == USER_QUOTA
    assert problem(two_each.scrape(user_id="anne")) == USER_QUOTA
    assert two_each.jobs.get(letter.id).dead


def test_a_run_that_an_idempotency_key_names_is_answered_however_many_wait(two_each: Board) -> None:
    headers = {"Idempotency-Key": "again"}
    first = two_each.scrape(user_id="anne", headers=headers).json()
    ask(two_each, "one")
    assert two_each.scrape(user_id="anne", headers=headers).json() == first
    assert problem(two_each.scrape(user_id="anne")) == USER_QUOTA


def test_what_is_asked_for_later_waits_for_its_time_and_is_not_refused(two_each: Board) -> None:
    fill(two_each)
    ahead = to_iso(utc_now() + timedelta(hours=1))
    assert ask(two_each, "three", schedule_at=ahead).status_code == 202
    assert ask(two_each, "three", interval="@daily").status_code == 202


def _refused_at(answer: httpx.Response, limit: int) -> bool:
    """By a count that is right."""
    assert problem(answer) == QUEUE_FULL
    return bool(answer.json()["error"]["detail"] == {"limit": limit, "waiting": limit})


def test_a_full_queue_takes_no_more_from_anybody_and_not_one_too_many(serve: Serve, settings: Settings) -> None:
    with limited(serve, settings, crawl_queue_max=7) as board, ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: ask(board, str(number), user=f"user{number}"), range(24)))
        accepted = sum(answer.is_success for answer in answers)
        assert {problem(answer) for answer in answers if not answer.is_success} == {QUEUE_FULL}
        for number in range(accepted, 7):
            # one that was being inserted may have been counted twice, for a moment
            wait_until(lambda: _accepted(ask(board, f"late{number}")), what="a free place")  # noqa: B023 - called at once
        wait_until(lambda: _refused_at(ask(board, "one-too-many"), 7), what="a count without those that were refused")
        assert board.database["jobs"].count_documents({}) == 7
