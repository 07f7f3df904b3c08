"""Many slow calls of one user delay only this user's other calls."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import pytest
from integration.web.board import Serve, problem
from integration.web.signed_in import anne, job, keys, own, own_settings, url
from jobs import make_job
from pymongo.database import Database
from stack import wait_until

from gateway.access.key_store import Issued, KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.items.items import ItemStore
from gateway.jobs.bulk import BulkActs
from gateway.jobs.job import Attempt, JobStatus
from gateway.jobs.queries import JobQueries
from gateway.jobs.store import JobStore
from gateway.logs.store import LogChunk, LogStore
from gateway.requests.store import RequestStore
from gateway.settings import Settings

__all__ = ["anne", "job", "keys", "own", "own_settings", "url"]

#: Calls of one user at a time (`GATEWAY_USER_CALLS`).
EACH = Settings.model_fields["gateway_user_calls"].default
TOO_MANY = (429, "too_many_requests")


class Gate:
    """Calls of a store's method wait at the gate until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.came = 0

    def hold(self, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, which: Callable[..., bool]) -> None:
        method = getattr(kind, name)

        def held(*args: Any, **options: Any) -> Any:
            if which(*args, **options):
                self.came += 1
                self.opened.wait(90)
            return method(*args, **options)

        monkeypatch.setattr(kind, name, held)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def root(keys: KeyStore) -> Issued:
    return KeyIssue(keys).issue("root", [Scope.ADMIN])


class Door:
    """Calls the gateway with a key, any number of calls at once."""

    def __init__(self, http: httpx2.Client, issued: Issued, threads: ThreadPoolExecutor) -> None:
        self._http = http
        self._headers = {"Authorization": f"Bearer {issued.token}"}
        self._threads = threads

    def get(self, path: str) -> httpx2.Response:
        return self._http.get(path, headers=self._headers)

    def post(self, path: str, body: Any) -> httpx2.Response:
        return self._http.post(path, headers=self._headers, json=body)

    def posted(self, path: str, body: Any) -> socket.socket:
        """The connection of a client that has sent this request, and waits for the answer."""
        content = json.dumps(body)
        sent = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": len(content)}
        head = "".join(f"{name}: {value}\r\n" for name, value in {**sent, **self._headers}.items())
        connection = socket.create_connection((self._http.base_url.host, self._http.base_url.port))
        connection.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n{content}".encode())
        return connection

    def begin(self, count: int, call: Callable[[], httpx2.Response]) -> list[Future[httpx2.Response]]:
        return [self._threads.submit(call) for _ in range(count)]


@contextmanager
def door_of(url: str, issued: Issued) -> Iterator[Door]:
    limits = httpx2.Limits(max_connections=None, keepalive_expiry=None)
    with (
        ThreadPoolExecutor(120) as threads,
        httpx2.Client(base_url=url, timeout=90, trust_env=False, limits=limits) as http,
    ):
        yield Door(http, issued, threads)


@pytest.fixture
def annes(url: str, anne: Issued) -> Iterator[Door]:
    with door_of(url, anne) as door:
        yield door


@pytest.fixture
def roots(url: str, root: Issued) -> Iterator[Door]:
    with door_of(url, root) as door:
        yield door


def test_expensive_reads_of_one_user_hold_up_no_other_and_not_its_own_looks(
    annes: Door, roots: Door, job: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.hold(monkeypatch, RequestStore, "chunks", lambda *_: not gate.opened.is_set())
    held = annes.begin(12, lambda: annes.get(f"/jobs/{job}/requests?status=599"))
    wait_until(lambda: gate.came == EACH)
    for path in (
        f"/jobs/{job}", f"/jobs/{job}/status", "/jobs", "/jobs/count", "/jobs?q=x", f"/jobs/{job}/logs/search?q=x",
        f"/jobs/{job}/items", "/schedules/calendar", "/spiders", "/console/jobs",
    ):  # fmt: skip
        assert roots.get(path).status_code == 200, path
    assert annes.get(f"/jobs/{job}").status_code == 200
    assert annes.post(f"/jobs/{job}/cancel", {}).status_code == 200
    assert gate.came == EACH
    gate.opened.set()
    assert [one.result().status_code for one in held] == [200] * len(held)


def test_a_call_too_many_is_refused_until_the_others_are_over(
    annes: Door, job: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.web.call_queue.MOST_WAITING", 2)
    gate.hold(monkeypatch, RequestStore, "chunks", lambda *_: not gate.opened.is_set())
    held = annes.begin(EACH, lambda: annes.get(f"/jobs/{job}/requests"))
    wait_until(lambda: gate.came == EACH)
    further = annes.begin(3, lambda: annes.get("/jobs"))
    wait_until(lambda: any(one.done() for one in further))
    (refused,) = [one.result() for one in further if one.done()]
    assert problem(refused) == TOO_MANY
    assert int(refused.headers["retry-after"]) > 0
    gate.opened.set()
    assert [one.result().status_code for one in held] == [200] * EACH
    assert annes.get("/jobs").status_code == 200


def test_bulk_acts_of_one_user_hold_up_no_other_and_end_with_their_clients(
    annes: Door, roots: Door, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.hold(monkeypatch, BulkActs, "act", lambda _self, _action, wanted, *_: wanted.user_id == "anne")
    act = {"filter": {"user_id": "anne"}, "action": "cancel", "expect": 10**6}
    with ExitStack() as clients:
        for _ in range(30):
            clients.enter_context(annes.posted("/jobs/bulk", act))
        wait_until(lambda: gate.came == EACH)
        other = roots.post("/jobs/bulk", {"filter": {"user_id": "bert"}, "action": "cancel", "expect": 0})
        assert other.status_code == 200
    wait_until(lambda: gone(roots) == 30 - EACH)
    gate.opened.set()
    assert problem(annes.post("/jobs/bulk", act)) == (409, "count_changed")
    assert gate.came == EACH + 1


def gone(door: Door) -> float:
    """How many calls were not made because their clients were gone."""
    sample = r'discoverybot_http_requests_total{method="POST",route="[^"]*",status="499"} (.*)'
    found = re.search(sample, door.get("/metrics").text)
    return float(found[1]) if found else 0


def log_of(own: Database[dict[str, Any]], user_id: str, chunks: int = 1) -> str:
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    running = {"status": JobStatus.RUNNING, "attempt": 1, "attempts": {"1": attempt}}
    job = make_job(user_id=user_id, live_key=None, **running)
    JobStore(own).insert(job)
    data = b"2027-06-01 09:00:00 [seo] INFO: Spider opened\n" * 1000
    for start in range(0, len(data) * chunks, len(data)):
        LogStore(own).append(LogChunk(job.id, 1, start, start + len(data), "INFO", data))
    return job.id


def test_downloads_of_one_user_hold_up_no_other_and_are_limited(
    annes: Door, roots: Door, own: Database[dict[str, Any]], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    hers, other = log_of(own, "anne"), log_of(own, "bert")
    gate.hold(monkeypatch, LogStore, "read", lambda _self, job_id, *_: job_id == hers)
    begun = annes.begin(100, lambda: annes.get(f"/jobs/{hers}/logs?format=text&q=nowhere"))
    most = Settings.model_fields["gateway_user_streams"].default
    wait_until(lambda: sum(one.done() for one in begun) == 100 - most, timeout=90)
    assert all(problem(one.result()) == TOO_MANY for one in begun if one.done())
    assert gate.came == EACH
    assert len(roots.get(f"/jobs/{other}/logs?format=text&q=spider").content) > 500
    gate.opened.set()
    assert sorted(one.result().status_code for one in begun) == [200] * most + [429] * (100 - most)
    assert annes.get(f"/jobs/{hers}/logs?format=text").status_code == 200


def test_streams_are_counted_by_user(
    serve: Serve, own_settings: Settings, anne: Issued, root: Issued, job: str
) -> None:
    settings = own_settings.model_copy(update={"gateway_user_streams": 2})
    with serve(settings) as http:
        mine = {"Authorization": f"Bearer {anne.token}"}
        with http.stream("GET", "/events", headers=mine) as one:
            assert one.status_code == 200
            with http.stream("GET", f"/jobs/{job}/logs", headers=mine) as two:
                assert two.status_code == 200
                refused = http.get("/events", headers=mine)
                assert problem(refused) == TOO_MANY
                assert int(refused.headers["retry-after"]) > 0
                crawl = {"spider": "seo", "start_urls": ["https://example.com/"]}
                streamed = http.post("/crawl", json=crawl, headers={**mine, "Accept": "text/event-stream"})
                assert problem(streamed) == TOO_MANY
                with http.stream("GET", "/events", headers={"Authorization": f"Bearer {root.token}"}) as other:
                    assert other.status_code == 200
        wait_until(lambda: opens(http, mine))


@pytest.mark.parametrize("path", ["/events", "/jobs/{job}/items?format=csv", "/jobs/{job}/requests?format=csv"])
def test_of_a_crowd_at_once_only_as_much_is_read_as_can_be_open(
    annes: Door, job: str, gate: Gate, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    most = Settings.model_fields["gateway_user_streams"].default
    for kind, name in ((JobQueries, "page"), (ItemStore, "page"), (RequestStore, "chunks")):
        gate.hold(monkeypatch, kind, name, lambda *_, **__: True)
    begun = annes.begin(most + 10, lambda: annes.get(path.format(job=job)))
    wait_until(lambda: sum(one.done() for one in begun) == 10)
    assert {problem(one.result()) for one in begun if one.done()} == {TOO_MANY}


def test_a_download_that_nobody_reads_ends(
    serve: Serve, own_settings: Settings, own: Database[dict[str, Any]], anne: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.web.http_protocol.READ_SECONDS", 0.5)
    job_id, mine = log_of(own, "anne", 200), {"Authorization": f"Bearer {anne.token}"}
    with serve(own_settings.model_copy(update={"gateway_user_streams": 1})) as http:
        path = f"/jobs/{job_id}/logs?format=text"
        connection = socket.create_connection((http.base_url.host, http.base_url.port))
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {anne.token}\r\n\r\n"
        connection.sendall(head.encode())
        with connection:
            assert connection.recv(12) == b"HTTP/1.1 200"
            assert problem(http.get(path, headers=mine)) == TOO_MANY
            wait_until(lambda: http.get(path, headers=mine).status_code == 200)


def opens(http: httpx2.Client, headers: dict[str, str]) -> bool:
    with http.stream("GET", "/events", headers=headers) as stream:
        return stream.status_code == 200
