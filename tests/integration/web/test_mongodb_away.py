"""MongoDB goes away and comes back: calls that need it are refused at once, however many come at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from jobs import make_job
from relay import MongoRelay, Refuse, failure
from stack import wait_until
from stores import StoreProcess, embedded_mongo, valkey_server

from gateway.contract.records import SpiderInfo
from gateway.jobs.store import JobStore
from gateway.projects.eggs import SpiderStore
from gateway.settings import Settings
from gateway.stores.mongo import connect

CLIENTS = 100


class Board(NamedTuple):
    http: httpx2.Client
    mongo: StoreProcess
    #: A crawl that was requested before.
    job_id: str

    def ask(self, page: object) -> httpx2.Response:
        body = {"user_id": "tester", "spider": "seo", "start_urls": [f"https://site.example/{page}"]}
        return self.http.post("/crawl", json=body)

    def known_to_be_away(self) -> bool:
        return "is away" in self.http.get(f"/jobs/{self.job_id}/status").text


@pytest.fixture
def board(tmp_path: Path, serve: Callable[[Settings], AbstractContextManager[httpx2.Client]]) -> Iterator[Board]:
    with valkey_server(tmp_path / "valkey") as redis, embedded_mongo(tmp_path / "mongo") as mongo:
        database = connect(mongo)
        SpiderStore(database).publish("n1", [SpiderInfo(project="default", name="seo", params_schema={})])
        database.client.close()
        with serve(Settings(redis_url=redis, mongo_uri=mongo)) as http:
            board = Board(http, mongo, "")
            job_id = wait_until(lambda: board.ask("old").json().get("job_id"), what="the first job")
            yield board._replace(job_id=job_id)


def at_once(call: Callable[[int], httpx2.Response]) -> list[httpx2.Response]:
    ready = threading.Barrier(CLIENTS)

    def one(number: int) -> httpx2.Response:
        ready.wait(60)
        return call(number)

    with ThreadPoolExecutor(CLIENTS) as clients:
        return list(clients.map(one, range(CLIENTS)))


def assert_refused(answers: list[httpx2.Response]) -> None:
    assert {(answer.status_code, answer.headers["Retry-After"]) for answer in answers} == {(503, "2")}


def test_a_crowd_is_refused_at_once_and_served_when_mongodb_is_back(board: Board) -> None:
    with board.mongo.away():
        # not known yet: some calls wait for their own timeout, but none for another's (clients give up after 20 s)
        assert_refused(at_once(board.ask))
        wait_until(board.known_to_be_away, what="the gateway to know it")
        answers = at_once(board.ask)
        assert_refused(answers)
        # refused before the call gets a thread
        assert {answer.json()["error"]["message"] for answer in answers} == {"the database is away"}
        assert_refused(at_once(lambda _: board.http.get(f"/jobs/{board.job_id}/status")))
        paths = ("/jobs", "/spiders", "/nodes", "/jobs/queue/status", "/events", f"/jobs/{board.job_id}/logs")
        assert_refused([board.http.get(path) for path in paths])
        # calls are answered that need only Redis, or no store
        assert board.ask("old").json()["job_id"] == board.job_id
        assert board.http.get("/health").json()["status"] == "down"
        assert board.http.get("/metrics").status_code == HTTPStatus.OK
    back = wait_until(lambda: board.ask("new").json().get("job_id"), what="a crawl to be accepted")
    assert board.http.get(f"/jobs/{back}/status").status_code == HTTPStatus.OK


def test_a_frozen_mongodb_does_not_hold_up_the_crowd(board: Board) -> None:
    with board.mongo.frozen():
        wait_until(board.known_to_be_away, what="the gateway to know it")
        assert_refused(at_once(board.ask))
    wait_until(lambda: board.ask("new").json().get("job_id"), what="a crawl to be accepted")


class Answering(NamedTuple):
    http: httpx2.Client
    relay: MongoRelay
    jobs: JobStore


@pytest.fixture
def answering(
    tmp_path: Path, settings: Settings, serve: Callable[[Settings], AbstractContextManager[httpx2.Client]]
) -> Iterator[Answering]:
    """A gateway whose MongoDB answers as the test wants."""
    with embedded_mongo(tmp_path / "mongo") as mongo, MongoRelay.before(mongo).running() as relay:
        database = connect(mongo)
        with serve(settings.model_copy(update={"mongo_uri": relay.url(mongo)})) as http:
            wait_until(lambda: http.get("/jobs").status_code == HTTPStatus.OK, what="the gateway to be ready")
            yield Answering(http, relay, JobStore(database))
        database.client.close()


#: Codes of errors that pass, without those by which PyMongo itself knows that the server is away.
PASSING = (262, 11601, 112, 43, 175, 50)


def test_what_mongodb_fails_for_reasons_of_its_own_may_be_asked_again(answering: Answering) -> None:
    def fault(command: dict[str, Any]) -> Refuse | None:
        return failure(code) if command.get("find") == "jobs" else None

    answering.relay.fault = fault
    answers = {}
    for code in PASSING:
        answer = answering.http.get("/jobs/" + "0" * 32)
        answers[code] = (answer.status_code, answer.json()["error"]["code"], answer.headers.get("Retry-After"))
    assert answers == dict.fromkeys(PASSING, (503, "unavailable", "2"))


def test_a_list_whose_cursor_is_lost_may_be_asked_for_again(answering: Answering) -> None:
    for _ in range(150):
        answering.jobs.insert(make_job())
    assert len(answering.http.get("/jobs?limit=150").json()["jobs"]) == 150
    assert answering.relay.asked["getMore"] == 1
    answering.relay.fault = lambda command: failure(43) if "getMore" in command else None
    answer = answering.http.get("/jobs?limit=150")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
