"""`?wait=`: the answer comes once the job has ended. The test does what a worker would do."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from integration.web.board import Board, Serve, open_board, problem
from stack import wait_until

from gateway.jobs.job import JobStatus
from gateway.settings import Settings

PATHS = ["/jobs/{job}", "/jobs/{job}/status"]


@pytest.fixture(scope="module")
def board(serve: Serve, settings: Settings) -> Iterator[Board]:
    with open_board(serve, settings, "waits") as board:
        yield board


def kinds(answer: httpx2.Response) -> tuple[str, str]:
    told: dict[str, Any] = answer.raise_for_status().json()
    return told["kind"], told["status"]


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("path", PATHS)
def test_who_waits_is_answered_when_the_job_has_ended(board: Board, path: str, *, announced: bool) -> None:
    job = board.started()
    with ThreadPoolExecutor() as threads:
        begun = time.monotonic()
        answer = threads.submit(board.http.get, path.format(job=job.id), params={"wait": 30})
        board.end(job, JobStatus.PARTIAL, announced=announced)
        assert kinds(answer.result()) == ("job", "partial")
    assert time.monotonic() - begun < 25
    assert kinds(board.http.get(path.format(job=job.id), params={"wait": 30})) == ("job", "partial")


def test_when_the_time_is_over_the_job_is_as_it_is(board: Board) -> None:
    job, begun = board.started(), time.monotonic()
    assert kinds(board.http.get(f"/jobs/{job.id}", params={"wait": 1})) == ("job", "pending")
    assert time.monotonic() - begun >= 1


def test_those_who_wait_hold_no_thread(board: Board) -> None:
    job, number = board.started(), 40
    assert number > Settings.model_fields["gateway_user_calls"].default * 4
    with ThreadPoolExecutor(number) as threads:
        path = f"/jobs/{job.id}/status"
        answers = [threads.submit(board.http.get, path, params={"wait": 30}) for _ in range(number)]
        wait_until(lambda: problem_of_one_more(board, job.id) == "too_many_requests", timeout=20)
        assert kinds(board.http.get(path)) == ("job", "pending")
        board.end(job, JobStatus.FINISHED)
        assert {kinds(answer.result()) for answer in answers} == {("job", "finished")}


def problem_of_one_more(board: Board, job: str) -> str:
    """The error of the one that is too many of eleven further calls; empty if there is none."""
    with ThreadPoolExecutor(11) as threads:
        more = [threads.submit(board.http.get, f"/jobs/{job}", params={"wait": 1}) for _ in range(11)]
    return next((problem(one.result())[1] for one in more if one.result().is_error), "")


def test_a_client_that_leaves_waits_no_more(serve: Serve, settings: Settings, board: Board) -> None:
    uri, job = settings.mongo_uri.replace("/discoverybot", "/waits"), board.started()
    with serve(settings.model_copy(update={"mongo_uri": uri, "gateway_user_streams": 1})) as http:

        def has_the_place() -> socket.socket | None:
            connection = socket.create_connection((http.base_url.host, http.base_url.port))
            connection.sendall(f"GET /jobs/{job.id}?wait=30 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            if http.get(f"/jobs/{job.id}?wait=1").status_code == 429:
                return connection
            connection.close()  # the call above came first and took the place
            return None

        wait_until(has_the_place).close()
        begun = time.monotonic()
        wait_until(lambda: http.get(f"/jobs/{job.id}?wait=1").status_code == 200)
        assert time.monotonic() - begun < 20


def test_what_cannot_be_waited_for_is_named(board: Board) -> None:
    job = board.started()
    for seconds in (31, -1, "long"):
        answer = board.http.get(f"/jobs/{job.id}", params={"wait": seconds})
        assert (problem(answer), answer.json()["error"]["detail"]["field"]) == ((422, "invalid_request"), "wait")
    crawl = {"user_id": "ada", "spider": "jobs", "start_urls": ["https://example.com"], "interval": "@daily"}
    schedule = board.http.post("/crawl", json=crawl).json()["job_id"]
    answer = board.http.get(f"/jobs/{schedule}", params={"wait": 1})
    assert (problem(answer), answer.json()["error"]["detail"]["field"]) == ((422, "invalid_request"), "wait")
    assert kinds(board.http.get(f"/jobs/{schedule}")) == ("schedule", "scheduled")
    assert problem(board.http.get(f"/jobs/{'0' * 32}?wait=1")) == (404, "job_not_found")
