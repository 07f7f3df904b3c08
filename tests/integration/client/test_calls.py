"""What the client does when answers are late, cut, refused or missing."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from scripted_server import Answer, Asked, StandIn, nothing, part, stand_in, whole
from stores import free_port

from discoverybot_client import (
    ApiError,
    AsyncClient,
    AsyncCrawlFailedError,
    AsyncWaitTimeoutError,
    Changes,
    Client,
    ConflictError,
    CrawlFailedError,
    CursorExpiredError,
    GatewayUnreachableError,
    InvalidRequestError,
    KeyRefusedError,
    NoGatewayError,
    NotAJobError,
    NotFoundError,
    RequestTimeoutError,
    Retries,
    TooManyRequestsError,
    UnavailableError,
    WaitTimeoutError,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pauses are short; a gateway's `Retry-After` counts all the same."""
    monkeypatch.setattr("discoverybot_client.rules._FIRST", 0.01)


JOB = {"job_id": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a", "status": "running"}
PAGES = [
    {"items": [{"n": 1}, {"n": 2}], "next": "1-20"},
    {"items": [{"n": 3}], "next": "1-30"},
    {"items": [{"n": 4}], "next": None},
]
AWAY = {"error": {"code": "unavailable", "message": "MongoDB is away"}, "request_id": "r1"}


@contextmanager
def client_of(
    *answers: Answer, timeout: float = 20, retries: int | Retries = 5, user_id: str | None = None
) -> Iterator[tuple[Client, StandIn]]:
    made = stand_in(*answers)
    with made as server, Client(server.url, "db_a_b", timeout=timeout, retries=retries, user_id=user_id) as client:
        yield client, server


@pytest.mark.parametrize("size", [0, 1, 20])
def test_a_page_that_is_cut_is_asked_for_again(size: int) -> None:
    cut = part(PAGES[1], size)
    answers = (whole(JOB), whole(PAGES[0]), cut, nothing, cut, whole(PAGES[1]), whole(PAGES[2]))
    with client_of(*answers) as (client, server):
        assert list(client.job(JOB["job_id"]).items()) == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
        cursors = [asked.target.partition("after=")[2] for asked in server.asked[1:]]
    assert cursors == ["", "1-20", "1-20", "1-20", "1-20", "1-30"]


def test_a_job_that_is_printed_is_short() -> None:
    with client_of(whole({**JOB, "spec": {"spider": "seo"}})) as (client, _):
        assert str(client.job(JOB["job_id"])) == f"Job('{JOB['job_id']}', status='running')"


def test_an_answer_that_breaks_off_is_not_an_absent_gateway(tmp_path: Path) -> None:
    with client_of(part(JOB, 9), retries=1) as (client, server):
        with pytest.raises(GatewayUnreachableError, match=f"the answer of {server.url} broke off: ") as raised:
            client.job(JOB["job_id"])
        assert (isinstance(raised.value.__cause__, httpx2.RemoteProtocolError), raised.value.was_sent) == (True, True)
    with client_of(whole(JOB), part(b"egg", 1), retries=1) as (client, server):
        job = client.job(JOB["job_id"])
        with pytest.raises(GatewayUnreachableError, match=f"the answer of {server.url} broke off: ") as raised:
            job.export(tmp_path / "items")
        assert isinstance(raised.value.__cause__, httpx2.RemoteProtocolError)


def test_a_list_that_is_none_is_not_a_gateways() -> None:
    none = whole({"jobs": None, "next": None})
    with client_of(none) as (client, _), pytest.raises(NoGatewayError, match="there is no 'jobs'"):
        list(client.jobs())


def test_a_cursor_that_leads_nowhere_is_no_loop() -> None:
    with client_of(whole(JOB), whole(PAGES[0])) as (client, _):
        items = client.job(JOB["job_id"]).items()
        with pytest.raises(NoGatewayError, match="is the same again"):
            list(items)


def test_a_crawl_is_asked_for_again_by_the_same_key() -> None:
    receipt = {"job_id": JOB["job_id"], "cached": False}
    with client_of(nothing, part(receipt, 9), whole(AWAY, 503, retry_after="0"), whole(receipt)) as (client, server):
        assert client.start_crawl("https://example.com/", spider="seo", depth=1, tags=None).id == JOB["job_id"]
    keys = {asked.headers["idempotency-key"] for asked in server.asked}
    assert (len(server.asked), len(keys)) == (4, 1)
    assert {asked.body for asked in server.asked} == {server.asked[0].body}
    sent = json.loads(server.asked[0].body)
    assert sent == {"spider": "seo", "start_urls": ["https://example.com/"], "depth": 1}
    assert server.asked[0].headers["authorization"] == "Bearer db_a_b"


def test_an_idempotency_key_may_be_given() -> None:
    receipt = whole({"job_id": JOB["job_id"], "cached": False})
    schedule = whole({"schedule_id": "s1"})
    ended = whole({**JOB, "status": "finished"})
    with client_of(receipt, receipt, ended, schedule) as (client, server):
        client.start_crawl("https://example.com/", idempotency_key="order-17")
        client.crawl("https://example.com/", idempotency_key="order-18")
        client.schedules.create("https://example.com/", interval="@daily", idempotency_key="order-19")
    keys = [asked.headers.get("idempotency-key") for asked in server.asked if asked.method == "POST"]
    assert keys == ["order-17", "order-18", "order-19"]


def test_what_may_have_been_done_is_not_done_again() -> None:
    with client_of(whole(JOB), nothing) as (client, server):
        job = client.job(JOB["job_id"])
        with pytest.raises(GatewayUnreachableError):
            job.pause()
    assert [str(asked) for asked in server.asked[1:]] == [f"POST /jobs/{JOB['job_id']}/pause"]


def test_what_was_certainly_not_done_is_asked_for_again() -> None:
    with client_of(whole(JOB), whole(AWAY, 503), whole(JOB)) as (client, _):
        assert client.job(JOB["job_id"]).pause().status == "running"


def test_the_gateway_says_when_to_ask_again() -> None:
    limit = {"error": {"code": "too_many_requests", "message": "60 a minute"}}
    with client_of(whole(limit, 429, retry_after="1"), whole(JOB)) as (client, _):
        begun = time.monotonic()
        client.job(JOB["job_id"])
        assert time.monotonic() - begun >= 1
    with client_of(whole(limit, 429, retry_after="60"), timeout=5) as (client, server):
        begun = time.monotonic()
        with pytest.raises(TooManyRequestsError) as raised:
            client.job(JOB["job_id"])
        assert (raised.value.retry_after, len(server.asked)) == (60, 1)
        assert time.monotonic() - begun < 4, "it would have been in vain"


def test_who_says_nothing_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discoverybot_client.rules.Deadline.__init__.__defaults__", (0.3,))
    with client_of(silent, whole(JOB)) as (client, server):
        assert client.job(JOB["job_id"]).status == "running"
        assert len(server.asked) == 2


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_what_may_be_repeated_is_sent_again_after_each_failure_of_a_server(status: int, tmp_path: Path) -> None:
    failed = whole({"error": {"code": "internal_error", "message": "a bug"}, "request_id": "r1"}, status)
    with client_of(failed, whole(JOB), failed, whole(b"{}")) as (client, server):
        job = client.job(JOB["job_id"])
        assert job.export(tmp_path / "items").read_bytes() == b"{}"
        assert len(server.asked) == 4
    with client_of(failed, retries=2) as (client, server):
        with pytest.raises(ApiError, match="a bug") as raised:
            client.job(JOB["job_id"])
        assert (raised.value.status, len(server.asked)) == (status, 3)
    with client_of(whole(JOB), failed, retries=0) as (client, server):
        job = client.job(JOB["job_id"])
        with pytest.raises(ApiError):
            job.export(tmp_path / "other")
        assert len(server.asked) == 2
    if status != 503:
        with client_of(whole(JOB), failed) as (client, server):
            job = client.job(JOB["job_id"])
            with pytest.raises(ApiError):
                job.pause()
            assert len(server.asked) == 2, "it may be paused by now"


def test_with_no_retries_a_request_is_sent_once() -> None:
    with client_of(whole(AWAY, 503, retry_after="0"), retries=0) as (client, server):
        with pytest.raises(UnavailableError):
            client.whoami()
        assert len(server.asked) == 1


def test_retries_are_counted() -> None:
    with client_of(whole(AWAY, 503, retry_after="0"), retries=2) as (client, server):
        with pytest.raises(UnavailableError) as raised:
            list(client.projects.list())
        assert (raised.value.code, raised.value.request_id, len(server.asked)) == ("unavailable", "r1", 3)


def test_a_call_may_have_options_of_its_own() -> None:
    with client_of(whole(AWAY, 503, retry_after="0"), user_id="ada") as (client, server):
        hurried = client.with_options(retries=1)
        for call in (hurried.whoami, lambda: list(hurried.schedules.list())):
            before = len(server.asked)
            with pytest.raises(UnavailableError):
                call()
            assert len(server.asked) - before == 2
        assert (hurried.user_id, client.with_options(timeout=9).user_id) == ("ada", "ada")
        before = len(server.asked)
        with pytest.raises(UnavailableError):
            client.whoami()
        assert len(server.asked) - before == 6, "the client itself is as it was"


def test_a_platform_that_starts_is_waited_for_until_the_time_is_over() -> None:
    starting = whole({"error": {"code": "starting", "message": "no node yet"}}, 503, retry_after="0")
    receipt = whole({"job_id": JOB["job_id"]})
    with client_of(*[starting] * 4, receipt, retries=Retries(1, waits=False)) as (client, server):
        assert client.start_crawl("https://example.com/").id == JOB["job_id"]
        assert len(server.asked) == 5
    # with a pause that the time does not cover: a try that is cut off by the end would be another error
    late = whole({"error": {"code": "starting", "message": "no node yet"}}, 503, retry_after="60")
    with client_of(late, retries=1, timeout=30) as (client, _), pytest.raises(UnavailableError):
        client.start_crawl("https://example.com/")


def test_no_retries_are_none_also_while_a_platform_starts() -> None:
    starting = whole({"error": {"code": "starting", "message": "no node yet"}}, 503, retry_after="0")
    with client_of(starting, retries=0) as (client, server):
        with pytest.raises(UnavailableError):
            client.start_crawl("https://example.com/")
        assert len(server.asked) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_who_does_not_wait_asks_again_only_for_a_lost_answer(status: int) -> None:
    with client_of(nothing, whole(AWAY, status), whole([]), retries=Retries(2, waits=False)) as (client, server):
        with pytest.raises((TooManyRequestsError, UnavailableError)):
            list(client.projects.list())
        assert len(server.asked) == 2
    with Client(f"http://127.0.0.1:{free_port()}", retries=Retries(19, waits=False)) as client:
        begun = time.monotonic()
        with pytest.raises(GatewayUnreachableError) as raised:
            list(client.projects.list())
        assert (time.monotonic() - begun < 5, raised.value.was_sent) == (True, False)


@pytest.mark.parametrize("content", [b"<html>", {"error": "busy"}])
def test_a_503_of_a_proxy_is_no_health(content: object) -> None:
    with client_of(whole(content, 503), retries=1) as (client, server):
        with pytest.raises(UnavailableError, match="answers 503, but not as a gateway does: "):
            client.health()
        assert len(server.asked) == 2


def test_what_is_wrong_with_a_platform_is_an_answer() -> None:
    report = {"status": "starting", "checks": {"nodes": {"status": "down", "message": "none"}}}
    with client_of(whole(report, 503), retries=0) as (client, _):
        health = client.health()
    assert (health.status, health.checks["nodes"].message, health.raw) == ("starting", "none", report)


def test_the_id_of_a_schedule_is_no_job() -> None:
    message = f"{JOB['job_id']} is a schedule, not a job: client.schedules.get"
    with client_of(whole({**JOB, "kind": "schedule"})) as (client, _), pytest.raises(NotAJobError, match=message):
        client.job(JOB["job_id"])


@pytest.mark.parametrize(("limit", "pages"), [(0, 0), (1, 1), (2, 1), (3, 2), (9, 3)])
def test_a_list_ends_after_so_many(limit: int, pages: int) -> None:
    with client_of(whole(JOB), *map(whole, PAGES)) as (client, server):
        items = list(client.job(JOB["job_id"]).items(limit=limit))
        assert (items, len(server.asked)) == ([{"n": n + 1} for n in range(min(limit, 4))], 1 + pages)


def test_many_jobs_are_acted_on_in_parts() -> None:
    counted = {"action": "cancel", "matched": 3, "as_of": "2027-06-01T09:00:00Z", "done": 0}
    parts = (
        {"matched": 3, "done": 2, "next": "5"},
        {"matched": None, "done": 0, "refused": 1, "refusals": [{}], "next": None},
    )
    with client_of(whole(counted), *map(whole, parts)) as (client, server):
        report = client.act_on_jobs("cancel", expect=client.act_on_jobs("cancel", tag="old"), tag="old")
        bodies = [json.loads(asked.body) for asked in server.asked]
    assert (report.matched, report.done, report.refused, len(report.refusals or ())) == (3, 2, 1, 1)
    begun = {"action": "cancel", "filter": {"tag": "old"}, "expect": 3, "as_of": "2027-06-01T09:00:00Z"}
    assert bodies == [{"action": "cancel", "filter": {"tag": "old"}}, begun, {**begun, "after": "5"}]


def test_what_is_sent_again_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "discoverybot_client")
    with client_of(whole(AWAY, 503), whole(JOB)) as (client, server):
        client.job(JOB["job_id"])
        assert repr(client) == f"Client({server.url!r}, user_id=None)", "no key is shown"
    lines = [record.getMessage() for record in caplog.records if record.name == "discoverybot_client"]
    assert [line.partition("; again in")[0] for line in lines] == [
        f"GET /jobs/{JOB['job_id']}: MongoDB is away (unavailable, request r1)"
    ]


def test_a_download_and_changes_that_are_asked_for_again_are_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level("INFO", "discoverybot_client")
    dataset, away = whole({"name": "prices", "user_id": "ada"}), whole(AWAY, 503)
    with client_of(dataset, away, whole(b"{}"), retries=1) as (client, _):
        client.datasets.get("prices").export(tmp_path / "prices.jsonl")
    with client_of(dataset, away, whole(SECOND), retries=0) as (client, _):
        next(numbers_of(client.datasets.get("prices").changes(follow=True)))
    lines = [record.getMessage() for record in caplog.records if record.name == "discoverybot_client"]
    assert [line.partition(":")[0] for line in lines] == [
        "GET /datasets/prices/items/download",
        "GET /datasets/prices/changes",
    ]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, KeyRefusedError), (404, NotFoundError), (409, ConflictError), (410, CursorExpiredError), (405, ApiError)],
)
def test_a_refusal_is_an_error_of_its_kind(status: int, kind: type[ApiError]) -> None:
    with client_of(whole({"error": {"code": "some_code", "message": "no"}}, status)) as (client, server):
        with pytest.raises(kind) as raised:
            client.health()
        assert (raised.value.status, raised.value.code, raised.value.message) == (status, "some_code", "no")
        assert len(server.asked) == 1


def test_an_invalid_field_is_named() -> None:
    error = {"code": "forbidden_address", "message": "start_urls.0: no", "detail": {"field": "start_urls.0"}}
    with client_of(whole({"error": error}, 422)) as (client, _), pytest.raises(InvalidRequestError) as raised:
        client.start_crawl("http://10.0.0.1/", spider="seo")
    assert (raised.value.field, raised.value.code) == ("start_urls.0", "forbidden_address")


@pytest.mark.parametrize("content", [b"<html>", b"[", b"\xff"])
def test_what_is_no_gateway_is_named(content: bytes) -> None:
    with client_of(whole(content)) as (client, _), pytest.raises(NoGatewayError, match="not as a gateway does: "):
        client.health()


@pytest.mark.parametrize("content", [[1], {}, "text"])
@pytest.mark.parametrize(
    "call",
    [
        lambda client: list(client.jobs()),
        lambda client: client.job(JOB["job_id"]),
        lambda client: client.start_crawl("https://example.com/"),
        lambda client: client.count_jobs(),
        lambda client: client.projects.get("shop"),
        lambda client: client.schedules.create("https://example.com/", interval="@daily"),
    ],
)
def test_json_of_another_shape_is_no_gateways(call: Callable[[Client], object], content: object) -> None:
    with client_of(whole(content)) as (client, _), pytest.raises(NoGatewayError, match="not as a gateway does"):
        call(client)


@pytest.mark.parametrize(
    ("status", "content", "told"),
    [
        (
            404,
            b"<html>\n <h1>Not Found</h1>",
            "answers 404, but not as a gateway does: <html> <h1>Not Found</h1>. Is",
        ),
        (
            404,
            b'{"detail":"Not Found"}',
            'answers 404, but not as a gateway does: {"detail":"Not Found"}. Is the address right',
        ),
        (405, b"x" * 999, f"answers 405, but not as a gateway does: {'x' * 80}…. Is the address right"),
        (301, b"", "answers 301, but not as a gateway does. Is the address right, with its path?"),
    ],
)
def test_a_stranger_that_does_not_know_a_path_says_nothing_of_a_job(status: int, content: bytes, told: str) -> None:
    with client_of(whole(content, status)) as (client, server):
        with pytest.raises(NoGatewayError) as raised:
            client.job(JOB["job_id"])
        assert f"{server.url} {told}" in str(raised.value)
        assert len(server.asked) == 1


@pytest.mark.parametrize(("status", "kind"), [(401, KeyRefusedError), (413, ApiError), (502, UnavailableError)])
def test_a_proxy_that_fails_is_no_stranger(status: int, kind: type[ApiError]) -> None:
    with client_of(whole(b"<html>", status), retries=0) as (client, server), pytest.raises(kind) as raised:
        client.health()
    message = f"{server.url} answers {status}, but not as a gateway does: <html>"
    assert (raised.value.code, raised.value.message) == ("http_error", message)


def test_a_list_takes_no_longer_than_other_calls() -> None:
    with client_of(trickle, timeout=0.5) as (client, _):
        begun = time.monotonic()
        with pytest.raises(GatewayUnreachableError):
            list(client.jobs())
        assert time.monotonic() - begun < 4


def test_a_time_that_is_over_is_no_absent_gateway() -> None:
    with client_of(silent) as (client, _), pytest.raises(TimeoutError, match="no answer from http") as raised:
        client.crawl("https://example.com/", wait=0.1)
    assert isinstance(raised.value, RequestTimeoutError)


def test_a_gateway_that_is_not_there_is_named() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with Client(url, retries=1) as client:
        with pytest.raises(GatewayUnreachableError, match=f"no gateway at {url}") as raised:
            client.health()
        assert isinstance(raised.value.__cause__, httpx2.ConnectError)
        with pytest.raises(GatewayUnreachableError, match=f"no gateway at {url}") as raised:
            list(client.pieces("/health"))
        assert isinstance(raised.value.__cause__, httpx2.ConnectError)
    with pytest.raises(ValueError, match="is not the address of a gateway"):
        Client("localhost:8001")
    with pytest.raises(ValueError, match="key: it has characters"):
        Client(url, "db_a_ключ")


# --- waiting


def trickle(_asked: Asked, connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 .\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.05)


def silent(_asked: Asked, connection: socket.socket) -> None:
    connection.recv(1)


@pytest.mark.parametrize("answer", [trickle, silent, whole(JOB), whole(AWAY, 503, retry_after="0"), nothing])
def test_a_wait_has_one_deadline_whatever_the_gateway_does(answer: Answer) -> None:
    with client_of(whole(JOB), answer) as (client, _):
        job, begun = client.job(JOB["job_id"]), time.monotonic()
        with pytest.raises(TimeoutError, match=f"^job {JOB['job_id']} has not ended within 1.5 seconds$") as raised:
            job.wait(1.5)
        assert 1.4 <= time.monotonic() - begun < 6
        assert isinstance(raised.value, WaitTimeoutError)
        assert raised.value.job is job


def test_a_wait_asks_the_gateway_to_wait_and_goes_on_after_trouble() -> None:
    ended = {**JOB, "status": "partial"}
    with client_of(whole(JOB), whole(JOB), nothing, whole(AWAY, 503), whole(ended)) as (client, server):
        assert client.job(JOB["job_id"]).wait().is_good
        assert {asked.target.partition("?")[2] for asked in server.asked[1:]} == {"wait=30"}


@pytest.mark.parametrize("away", [nothing, whole(AWAY, 503)])
def test_a_wait_for_a_gateway_that_is_away_asks_now_and_then(away: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("discoverybot_client.rules._FIRST", 0.25)
    with client_of(whole(JOB), away, retries=0) as (client, server):
        job = client.job(JOB["job_id"])
        with pytest.raises(WaitTimeoutError):
            job.wait(1)
        assert len(server.asked) < 8
    with client_of(whole(JOB), away, retries=0) as (client, server):
        job = client.job(JOB["job_id"])
        with pytest.raises(WaitTimeoutError):
            job.wait(0)
        assert len(server.asked) == 2, "it has asked once"


def test_a_wait_that_is_answered_at_once_asks_now_and_then() -> None:
    """A cache before the gateway answers so, and many stand-ins of tests do."""
    with client_of(whole(JOB)) as (client, server):
        job = client.job(JOB["job_id"])
        with pytest.raises(WaitTimeoutError):
            job.wait(0.5)
        assert len(server.asked) < 15


async def test_who_follows_changes_asks_now_and_then_if_there_are_none() -> None:
    nothing_new = whole({"changes": [], "next": 3, "pending": 0})
    with stand_in(whole({"name": "prices", "user_id": "ada"}), nothing_new) as server:
        async with AsyncClient(server.url) as client:
            feed = (await client.datasets.get("prices")).changes(since=3, follow=True)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(aiter(feed)), 0.5)
        assert len(server.asked) < 15


@pytest.mark.parametrize("dataset", [None, {"name": "prices"}])
def test_a_run_of_a_job_without_the_dataset_is_not_waited_for(dataset: object) -> None:
    pages, job = whole({"name": "pages", "user_id": "ada"}), {**JOB, "spec": {"spider": "seo", "dataset": dataset}}
    with client_of(pages, whole(job)) as (client, server):
        asked, running = client.datasets.get("pages"), client.job(JOB["job_id"])
        with pytest.raises(ValueError, match=r"start it with dataset='pages'$"):
            asked.wait_for(running)
        assert len(server.asked) == 2
    listed = {"jobs": [{**JOB, "status": "finished"}], "next": None}
    with client_of(pages, whole(listed), whole({**job, "status": "finished"})) as (client, server):
        asked, (ended,) = client.datasets.get("pages"), client.jobs()
        with pytest.raises(ValueError, match=f"job {ended.id} has (no dataset|the dataset prices): "):
            asked.wait_for(ended)
        assert len(server.asked) == 3


def test_a_wait_for_a_run_holds_its_time_also_if_nobody_answers() -> None:
    ended = whole({**JOB, "status": "finished", "spec": {"dataset": {"name": "pages"}}})
    dataset_found = whole({"name": "pages", "user_id": "ada"})
    with client_of(dataset_found, ended, silent, timeout=600) as (client, server):
        dataset = client.datasets.get("pages")
        with pytest.raises(WaitTimeoutError, match="has no run of job"):
            dataset.wait_for(JOB["job_id"], 0.3)
        assert len(server.asked) == 3


def test_a_crawl_that_nobody_takes_is_given_up_in_time() -> None:
    with client_of(silent) as (client, _):
        begun = time.monotonic()
        with pytest.raises(GatewayUnreachableError):
            client.crawl("https://example.com/", spider="seo", wait=1)
        assert time.monotonic() - begun < 6


def test_what_was_there_before_is_as_it_is() -> None:
    done = {**JOB, "status": "finished", "items_count": 3}
    with client_of(whole({"job_id": JOB["job_id"], "cached": True, "scheduled": False}), whole(done)) as (client, _):
        job = client.start_crawl("https://example.com/", spider="seo")
        assert (job.cached, job.scheduled, job.status, job.items_count) == (True, False, "finished", 3)
    later = {**JOB, "status": "scheduled", "kind": "schedule"}
    with client_of(whole({"job_id": JOB["job_id"], "cached": False, "scheduled": True}), whole(later)) as (client, _):
        job = client.start_crawl("https://example.com/", spider="seo", schedule_at="2027-06-01T09:00:00Z")
        assert (job.scheduled, job.status) == (True, "scheduled")
    receipt = {"job_id": JOB["job_id"], "cached": True, "scheduled": False}
    with client_of(whole(receipt), whole({"error": {"code": "job_not_found"}}, 404)) as (client, _):
        assert client.start_crawl("https://example.com/", spider="seo").status is None, "nothing is made up"


def test_a_dataset_is_waited_for_until_a_run_is_decided() -> None:
    none = whole({"error": {"code": "dataset_run_not_found", "message": "no"}}, 404)
    runs = [whole({"job_id": JOB["job_id"], "state": state}) for state in ("planned", "published")]
    ended = whole({**JOB, "status": "finished", "spec": {"dataset": {"name": "pages"}}})
    with client_of(whole({"name": "pages", "user_id": "ada"}), ended, none, *runs) as (client, server):
        run = client.datasets.get("pages").wait_for(JOB["job_id"], 30)
        assert (run.state, len(server.asked)) == ("published", 5)
    with client_of(whole({"name": "pages", "user_id": "ada"}), ended, none) as (client, _):
        dataset = client.datasets.get("pages")
        with pytest.raises(WaitTimeoutError, match="has no run of job"):
            dataset.wait_for(JOB["job_id"], 0.5)


def test_a_log_is_searched_to_its_end() -> None:
    lines = [
        {"id": f"1-{end}", "start": 0, "ts": None, "level": "ERROR", "logger": "seo", "msg": "no"} for end in "12"
    ]
    # the gateway looks for two seconds at a time, and may have found nothing until then
    pages = [{"lines": lines[:1], "next": "1-9"}, {"lines": [], "next": "1-20"}, {"lines": lines[1:], "next": None}]
    with client_of(whole(JOB), *map(whole, pages)) as (client, server):
        assert [line.id for line in client.job(JOB["job_id"]).search_log("no", level="ERROR")] == ["1-1", "1-2"]
        asked = [parse_qs(urlsplit(one.target).query) for one in server.asked[1:]]
    assert [one.get("from") for one in asked] == [None, ["1-9"], ["1-20"]]
    assert all((one["q"], one["level"]) == (["no"], ["ERROR"]) for one in asked)


# --- changes, files, and the asynchronous twin


def test_who_follows_changes_waits_for_a_gateway_that_is_away() -> None:
    away, dataset = whole(AWAY, 503), whole({"name": "prices", "user_id": "ada"})
    with client_of(dataset, away, nothing, away, whole(SECOND), retries=0) as (client, server):
        assert next(numbers_of(client.datasets.get("prices").changes(follow=True))) == 8
        assert len(server.asked) == 5
    with client_of(dataset, away, retries=0) as (client, server):
        feed = client.datasets.get("prices").changes(since=7, follow=True, patience=0.1)
        with pytest.raises(UnavailableError):
            list(feed)
        assert (feed.cursor, len(server.asked) > 2) == (7, True)
    with client_of(dataset, away, retries=0) as (client, server):
        with pytest.raises(UnavailableError):
            list(client.datasets.get("prices").changes())
        assert len(server.asked) == 2, "who does not follow has only the retries of every call"


def numbers_of(changes: Changes) -> Iterator[int]:
    return (change.seq for change in changes)


def test_a_call_of_any_path_is_sent_as_it_is() -> None:
    with stand_in(whole([])) as server, Client(server.url, user_id="ada") as client:
        client.request("GET", "/nodes")
        client.request("GET", "/jobs", params={"user_id": client.user_id})
    assert [asked.target for asked in server.asked] == ["/nodes", "/jobs?user_id=ada"]


CHANGES = [{"seq": number, "type": "new", "item": {"n": number}} for number in (3, 5, 8)]
FIRST = {"changes": CHANGES[:2], "next": 6, "pending": 2}
SECOND = {"changes": CHANGES[2:], "next": 9, "pending": 0}


def test_the_cursor_is_that_of_the_last_change_that_was_done_with() -> None:
    with client_of(whole({"name": "prices", "user_id": "ada"}), whole(FIRST)) as (client, _):
        feed = client.datasets.get("prices").changes(since=2)
        assert next(change.seq for change in feed if change.seq == 5) == 5
        assert feed.cursor == 3, "5 was handed out, but nobody has come back for more"


def test_all_changes_come_once_and_the_cursor_moves_past_what_is_left_out() -> None:
    dataset = {"name": "a/b", "user_id": "ada"}
    with client_of(whole(dataset), whole(FIRST), nothing, whole(SECOND)) as (client, server):
        feed = client.datasets.get("a/b").changes(since=2, types=["new"])
        assert [change.seq for change in feed] == [3, 5, 8]
        assert feed.cursor == 9
    assert [asked.target.partition("?")[0] for asked in server.asked[1:]] == ["/datasets/a%2Fb/changes"] * 3
    assert ["since=6" in asked.target for asked in server.asked[1:]] == [False, True, True]


def test_a_body_and_a_stream_of_any_address_come_as_they_are() -> None:
    events = whole(b"event: change\nid: 7\ndata: {}\n\nevent: end\ndata: {}\n\n", content_type="text/event-stream")
    with client_of(whole(b"log"), events) as (client, server):
        assert b"".join(client.pieces("/jobs/1/logs", headers={"Accept": "text/plain"}, level=None)) == b"log"
        assert server.asked[0].headers["accept"] == "text/plain"
        assert [event.name for event in client.stream("/datasets/a/changes", since=3)] == ["change", "end"]
        assert server.asked[1].target == "/datasets/a/changes?since=3"
    with client_of(part(b"half", 2)) as (client, _), pytest.raises(GatewayUnreachableError):
        b"".join(client.pieces("/jobs/1/logs"))
    with client_of(whole({"error": {"code": "job_not_found"}}, 404)) as (client, _), pytest.raises(NotFoundError):
        next(client.pieces("/jobs/1/logs"))


def test_a_file_is_there_only_if_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    with client_of(whole(JOB), part(b"<html>" * 99, 50), whole(b"<html>" * 99)) as (client, server):
        assert client.job(JOB["job_id"]).download("a b/page#1?.html", target).read_bytes() == b"<html>" * 99
        assert server.asked[-1].target.endswith("/files/a%20b/page%231%3F.html")
    with client_of(whole(JOB), part(b"<html>" * 99, 50), retries=1) as (client, _):
        job = client.job(JOB["job_id"])
        with pytest.raises(GatewayUnreachableError):
            job.download("page.html", tmp_path / "other")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_an_export_has_what_is_asked_for(tmp_path: Path) -> None:
    with client_of(whole(JOB), whole(b"url\n")) as (client, server):
        job = client.job(JOB["job_id"])
        job.export(tmp_path / "items.csv", "csv", fields=["url", "title"], q="bees", attempt=2, escape_formulas=False)
        job.export(tmp_path / "items.jsonl")
    asked = [urlsplit(one.target).query for one in server.asked[1:]]
    assert parse_qs(asked[0]) == {
        "format": ["csv"],
        "fields": ["url,title"],
        "q": ["bees"],
        "attempt": ["2"],
        "escape_formulas": ["false"],
    }
    assert asked[1] == "format=jsonl"


def test_a_login_page_is_not_taken_for_a_file(tmp_path: Path) -> None:
    login = whole(b"<html>login</html>", content_type="text/html; charset=utf-8")
    with client_of(whole(JOB), login) as (client, _):
        job = client.job(JOB["job_id"])
        with pytest.raises(NoGatewayError, match="<html>login"):
            job.export(tmp_path / "items.csv", "csv")
        with pytest.raises(NoGatewayError, match="<html>login"):
            list(job.follow())
    assert not list(tmp_path.iterdir())
    saved = whole(b"<html>", content_type="text/html", content_disposition="attachment; filename=page.html")
    with client_of(whole(JOB), saved) as (client, _):
        assert client.job(JOB["job_id"]).download("page.html", tmp_path / "page.html").read_bytes() == b"<html>"


async def test_the_asynchronous_client_does_the_same() -> None:
    ended = {**JOB, "status": "finished"}
    answers = (whole(JOB), whole(AWAY, 503), whole(ended), whole(PAGES[0]), part(PAGES[1], 9), *map(whole, PAGES[1:]))
    with stand_in(*answers) as server:
        async with AsyncClient(server.url, user_id="ada") as client:
            job = await client.crawl("https://example.com/", spider="seo", wait=20)
            assert [item["n"] async for item in job.require_good().items()] == [1, 2, 3, 4]
    assert json.loads(server.asked[0].body)["user_id"] == "ada"


def test_what_is_raised_for_a_job_has_it() -> None:
    failed = {**JOB, "status": "error", "reason": "spider_error", "message": "it broke"}
    with client_of(whole(failed)) as (client, _):
        job = client.job(JOB["job_id"])
        with pytest.raises(CrawlFailedError, match="error: it broke") as raised:
            job.require_good()
    assert (raised.value.job, raised.value.reason, type(raised.value)) == (job, "spider_error", CrawlFailedError)


async def test_what_the_asynchronous_client_raises_is_the_same_with_its_own_job() -> None:
    failed = {**JOB, "status": "error", "reason": "spider_error"}
    with stand_in(whole(JOB), whole(JOB), whole(failed)) as server:
        async with AsyncClient(server.url) as client:
            job = await client.job(JOB["job_id"])
            with pytest.raises(WaitTimeoutError) as late:
                await job.wait(0)
            with pytest.raises(CrawlFailedError) as raised:
                (await job.wait()).require_good()
    assert (type(late.value), late.value.job) == (AsyncWaitTimeoutError, job)
    assert (type(raised.value), raised.value.job, raised.value.reason) == (AsyncCrawlFailedError, job, "spider_error")
