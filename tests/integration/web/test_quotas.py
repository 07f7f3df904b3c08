"""How many crawls may wait: one more is refused, but a repeated request is not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from integration.web.board import Board, Serve, open_board, problem
from jobs import make_job
from stack import wait_until

from gateway.clock import to_iso, utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.jobs.job import JobStatus, Trigger
from gateway.settings import Settings

QUEUE_FULL, USER_QUOTA = (429, "queue_full"), (429, "user_quota")


@contextmanager
def limited(serve: Serve, settings: Settings, **limits: int) -> Iterator[Board]:
    """A gateway with these limits, where no job waits yet."""
    with open_board(serve, settings.model_copy(update=limits), f"quotas-{uuid.uuid4().hex[:8]}") as board:
        # Redis may remember requests of another test
        board.redis.flushdb()
        yield board


@pytest.fixture
def two_each(serve: Serve, settings: Settings) -> Iterator[Board]:
    with limited(serve, settings, crawl_user_waiting_max=2) as board:
        yield board


def ask(
    board: Board, name: str, *, user: str = "anne", headers: dict[str, str] | None = None, **fields: Any
) -> httpx2.Response:
    body = {"user_id": user, "spider": "jobs", "start_urls": [f"https://example.com/{name}"], **fields}
    return board.http.post("/crawl", json=body, headers=headers)


def fill(board: Board) -> list[str]:
    """Ask for as many crawls as `anne` may have waiting. Returns their ids."""
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
    # even if Redis has forgotten the request
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
    # the refused request has not taken the first job's place as the answer for repeats
    assert two_each.jobs.get(first).live_key is not None


def test_a_refused_request_leaves_nothing_behind(two_each: Board) -> None:
    one, _ = fill(two_each)
    assert problem(ask(two_each, "three")) == USER_QUOTA
    two_each.http.post(f"/jobs/{one}/cancel").raise_for_status()
    accepted = wait_until(lambda: _accepted(ask(two_each, "three")), what="a free place")
    assert accepted["cached"] is False
    assert two_each.jobs.get(accepted["job_id"]).status is JobStatus.PENDING


def _accepted(answer: httpx2.Response) -> dict[str, Any] | None:
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


def _ahead(**ahead: float) -> str:
    return to_iso(utc_now() + timedelta(**ahead))


def test_what_is_asked_for_later_waits_and_counts_as_what_is_asked_for_now(two_each: Board) -> None:
    at = _ahead(hours=1)
    later = ask(two_each, "one", schedule_at=at).raise_for_status().json()["job_id"]
    ask(two_each, "two").raise_for_status()
    assert problem(ask(two_each, "three", schedule_at=at)) == USER_QUOTA
    assert problem(ask(two_each, "three")) == USER_QUOTA
    assert ask(two_each, "one", schedule_at=at).json()["job_id"] == later
    # the limit of waiting crawls counts for a schedule's runs only when they are due
    assert ask(two_each, "three", interval="@daily").status_code == 202


@pytest.mark.parametrize("when", [{"interval": "@daily"}, {"schedule_at": "2036-06-01T09:00:00Z"}])
def test_a_refused_request_for_later_leaves_what_was_there_as_it_was(
    serve: Serve, settings: Settings, when: dict[str, str]
) -> None:
    with limited(serve, settings, crawl_user_waiting_max=1, crawl_user_schedules_max=1) as board:
        first = ask(board, "one", **when).raise_for_status().json()["job_id"]
        assert problem(ask(board, "one", ignore_cache=True, **when)) == USER_QUOTA
        again = ask(board, "one", **when).raise_for_status().json()
        assert (again["job_id"], again["cached"]) == (first, True)


def test_one_users_later_crawls_leave_room_for_anothers(serve: Serve, settings: Settings) -> None:
    with limited(serve, settings, crawl_user_waiting_max=20, crawl_queue_max=50) as board:
        # so late that all requests are made before that, even on a busy machine
        at = _ahead(hours=1)
        with ThreadPoolExecutor(8) as threads:
            asked = list(threads.map(lambda number: ask(board, str(number), schedule_at=at), range(80)))
        # one that was being inserted may have been counted twice, for a moment
        assert 12 <= sum(answer.is_success for answer in asked) <= 20
        assert {problem(answer) for answer in asked if not answer.is_success} == {USER_QUOTA}
        board.database["jobs"].update_many({"user_id": "anne"}, {"$set": {"not_before": utc_now()}})
        wait_until(lambda: board.http.post("/scheduler/run").json()["promoted"] == [], what="their time")
        assert ask(board, "now", user="bert").status_code == 200
        assert board.database["jobs"].count_documents({"user_id": "anne", "status": "pending"}) <= 20


def test_a_run_by_hand_counts_and_is_refused_like_any_other(serve: Serve, settings: Settings) -> None:
    limits = {"crawl_user_waiting_max": 2, "crawl_user_scheduled_per_minute": 1}
    with limited(serve, settings, **limits) as board:
        ids = [ask(board, name, interval="@yearly", overlap="allow").json()["job_id"] for name in ("a", "b")]
        assert board.http.post(f"/schedules/{ids[0]}/run").is_success
        refused = board.http.post(f"/schedules/{ids[1]}/run")
        assert problem(refused) == USER_QUOTA
        assert "began 1 runs a minute, the limit is 1" in refused.json()["error"]["message"]
        ask(board, "now").raise_for_status()
        assert board.database["jobs"].count_documents({"schedule_id": ids[1]}) == 0
    with limited(serve, settings, crawl_user_waiting_max=2) as board:
        schedule_id = ask(board, "a", interval="@yearly", overlap="allow").json()["job_id"]
        fill(board)
        assert problem(board.http.post(f"/schedules/{schedule_id}/run")) == USER_QUOTA
        assert board.database["jobs"].count_documents({"schedule_id": schedule_id}) == 0


def test_a_user_has_as_many_schedules_as_allowed_however_they_are_asked_for(serve: Serve, settings: Settings) -> None:
    with limited(serve, settings, crawl_user_schedules_max=3) as board, ThreadPoolExecutor(8) as threads:
        asked = list(threads.map(lambda number: ask(board, str(number), interval="@daily"), range(12)))
        assert {answer.status_code for answer in asked} == {202, 429}
        while len(mine := [answer.json()["job_id"] for answer in asked if answer.is_success]) < 3:
            asked.append(ask(board, f"again{len(asked)}", interval="@daily"))
        assert len(mine) == 3
        told = next(answer for answer in asked if not answer.is_success).json()["error"]
        assert " schedules, and the limit is 3 (CRAWL_USER_SCHEDULES_MAX)" in told["message"]
        board.http.post(f"/schedules/{mine[0]}/pause").raise_for_status()
        assert problem(ask(board, "more", interval="@daily")) == USER_QUOTA
        assert ask(board, "more", interval="@daily", user="bert").status_code == 202
        board.http.delete(f"/schedules/{mine[0]}").raise_for_status()
        wait_until(lambda: ask(board, "more", interval="@daily").is_success, what="room for another")
        # schedules of sites and targets belong to `operator`; the site `board` has one already
        targets = [board.http.post("/targets", json={"site": "board", "keywords": str(n)}) for n in range(4)]
        assert [answer.status_code for answer in targets][-1] == 429
        assert problem(targets[-1]) == USER_QUOTA


def _refused_at(answer: httpx2.Response, limit: int) -> bool:
    """Whether the request was refused by a count that is right again."""
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


def test_acts_on_many_jobs_stop_at_the_limit_and_go_on_later(two_each: Board) -> None:
    ended = {"status": JobStatus.ERROR, "settled": True, "live_key": None}
    for _ in range(3):
        two_each.jobs.insert(make_job(user_id="anne", spider="jobs", **ended))
    body = {"filter": {"user_id": "anne", "status": ["error"]}, "action": "retry", "expect": 3}
    report = two_each.http.post("/jobs/bulk", json=body).json()
    assert (report["done"], report["refused"]) == (2, 0)
    assert "CRAWL_USER_WAITING_MAX" in report["stopped"]
    further = {**body, "after": report["next"]}
    assert problem(two_each.http.post("/jobs/bulk", json=further)) == USER_QUOTA
    two_each.database["jobs"].update_many({"status": "pending"}, {"$set": {"status": "cancelled"}})
    wait_until(lambda: two_each.http.post("/jobs/bulk", json=further).json().get("done") == 1, what="room again")
