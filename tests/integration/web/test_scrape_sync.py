"""Runs of sites whose callers wait for the end. The test does what a worker would do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from integration.web.board import RECORD, Board, Serve, open_board, problem
from stores import free_port

from gateway.jobs.job import JobStatus
from gateway.settings import Settings
from gateway.web.routes.scrape import ScrapeAnswer


@pytest.fixture(scope="module")
def board(serve: Serve, settings: Settings) -> Iterator[Board]:
    with open_board(serve, settings, "waiting") as board:
        yield board


def test_who_waits_for_a_run_is_answered_with_its_results(board: Board, user: str) -> None:
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(board.scrape, mode="sync", user_id=user)
        job = board.waiting(user)
        assert job.spec.params["results_wanted"] == 25
        asked = time.monotonic()
        assert board.http.get("/health/live").is_success, "whoever waits keeps nobody else waiting"
        assert time.monotonic() - asked < 15
        board.end(job, JobStatus.FINISHED, {"title": "Beekeeper"}, {"title": "Cook"})
        told = answer.result().json()
    assert ScrapeAnswer.model_validate(told).status == "success"
    data = told["data"]
    assert set(data) == {*RECORD, "execution_mode", "results", "next", "items_url"}
    assert (data["run_id"], data["status"], data["execution_mode"]) == (f"manual_{job.id}", "succeeded", "sync")
    assert data["results"] == [{"title": "Beekeeper"}, {"title": "Cook"}]


def test_the_end_of_a_run_is_seen_though_nobody_announces_it(board: Board, user: str) -> None:
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(board.scrape, mode="sync", user_id=user)
        board.end(board.waiting(user), JobStatus.FINISHED, {"title": "Cook"}, announced=False)
        assert answer.result().json()["data"]["results"] == [{"title": "Cook"}]


def test_without_redis_whoever_waits_is_answered_all_the_same(
    serve: Serve, settings: Settings, board: Board, user: str
) -> None:
    nowhere = {"redis_url": f"redis://127.0.0.1:{free_port()}/0"}
    own = {"mongo_uri": settings.mongo_uri.replace("/discoverybot", "/waiting"), "scrape_sync_timeout": 60}
    with serve(settings.model_copy(update={**own, **nowhere})) as deaf, ThreadPoolExecutor() as threads:
        body = {"site_name": "board", "user_id": user}
        answer = threads.submit(deaf.post, "/jobs/scrape?mode=sync", json=body)
        board.end(board.waiting(user), JobStatus.FINISHED, {"title": "Cook"}, announced=False)
        assert answer.result().json()["data"]["results"] == [{"title": "Cook"}]


def test_a_run_that_fails_says_so_though_the_call_did_well(board: Board, user: str) -> None:
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(board.scrape, mode="sync", user_id=user)
        board.end(board.waiting(user), JobStatus.ERROR)
        told = answer.result()
    assert (told.status_code, told.json()["status"], told.json()["data"]["status"]) == (200, "failed", "failed")
    assert told.json()["data"]["message"] == "3 pages"


def test_a_run_that_takes_too_long_is_named_and_goes_on(
    serve: Serve, settings: Settings, board: Board, user: str
) -> None:
    uri = settings.mongo_uri.replace("/discoverybot", "/waiting")
    with serve(settings.model_copy(update={"mongo_uri": uri, "scrape_sync_timeout": 0.3})) as hasty:
        begun = time.monotonic()
        answer = hasty.post("/jobs/scrape?mode=sync", json={"site_name": "board", "user_id": user})
        assert 0.3 <= time.monotonic() - begun < 60
    assert problem(answer) == (504, "run_goes_on")
    detail = answer.json()["error"]["detail"]
    job = board.waiting(user)
    assert (detail["run_id"], detail["status"]) == (f"manual_{job.id}", "queued")
    assert job.cancel_requested_at is None
    assert board.http.get(detail["run_url"]).json()["status"] == "queued"


def test_who_waits_may_want_only_a_few(board: Board) -> None:
    answer = board.scrape(mode="sync", results_wanted=26)
    assert problem(answer) == (422, "invalid_request")
    assert answer.json()["error"]["detail"]["field"] == "results_wanted"
    assert board.scrape(mode="soon").status_code == 422
