"""Answers that are none of a gateway, or none that was expected."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx2
import pytest

from discoverybot_client import Client, Dataset, Job, NoGatewayError, UnavailableError


def answered_with(status: int, content: object, kind: str = "application/json") -> Client:
    """A client, with no retries, whose every request is answered so."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()

    def answer(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(status, content=body, headers={"Content-Type": kind})

    return Client("http://gw.test", transport=httpx2.MockTransport(answer), retries=0)


def test_a_503_of_a_proxy_is_no_health_and_no_wrong_address() -> None:
    with answered_with(503, b"<html>nginx", "text/html") as client, pytest.raises(UnavailableError) as raised:
        client.health()
    assert "answers 503, but not as a gateway does: <html>nginx" in str(raised.value)


def test_a_gateways_own_503_is_its_error() -> None:
    told = {"error": {"code": "store_away", "message": "MongoDB is away"}, "request_id": "0b9f"}
    with answered_with(503, told) as client, pytest.raises(UnavailableError) as raised:
        client.health()
    assert (raised.value.code, raised.value.request_id) == ("store_away", "0b9f")


def test_a_platform_that_is_down_has_its_health() -> None:
    with answered_with(503, {"status": "down", "checks": {}}) as client:
        assert client.health().status == "down"


@pytest.mark.parametrize("follow", [True, False])
def test_changes_that_are_the_same_again_are_no_news(*, follow: bool) -> None:
    page = {"changes": [{"seq": 5}], "next": 5, "pending": 1}
    with answered_with(200, page) as client:
        feed = Dataset({"name": "prices", "user_id": "ada"}, client._transport).changes(follow=follow)
        told = []
        with pytest.raises(NoGatewayError, match=r"^the page after 5 of /datasets/prices/changes is the same again$"):
            told.extend(change.seq for change in feed)
        assert (told, feed.cursor) == ([5], 5)


@pytest.mark.parametrize("data", [b"{bad", b"[1]", b"{}", b'{"msg": "x", "level": "INFO", "ts": "soon"}'])
def test_a_line_of_a_log_that_is_none_is_no_gateways(data: bytes) -> None:
    with answered_with(200, b"event: log\nid: 1-1\ndata: " + data + b"\n\n", "text/event-stream") as client:
        job = Job({"job_id": "5f0c"}, client._transport)
        with pytest.raises(NoGatewayError, match="not as a gateway does: ") as raised:
            next(job.follow())
        assert data.decode() in str(raised.value)


@pytest.mark.parametrize("listed", [None, "abc", [1], {"a": 1}])
@pytest.mark.parametrize(
    "ask",
    [
        lambda client, job: job.errors(),
        lambda client, job: job.timeline(),
        lambda client, job: job.runs(),
        lambda client, job: list(job.search_log("x")),
        lambda client, job: list(client.jobs()),
        lambda client, job: list(client.projects.list()),
        lambda client, job: list(client.alert_rules.list()),
        lambda client, job: list(Dataset({"name": "prices", "user_id": "ada"}, client._transport).changes()),
    ],
)
def test_a_list_of_another_kind_is_no_gateways(ask: Callable[[Client, Job], object], listed: object) -> None:
    names = ("errors", "moments", "runs", "lines", "jobs", "projects", "rules", "changes")
    page = {**dict.fromkeys(names, listed), "next": None, "pending": 0}
    with answered_with(200, page) as client, pytest.raises(NoGatewayError, match="does: there is no '"):
        ask(client, Job({"job_id": "5f0c"}, client._transport))


@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
def test_a_stream_that_is_none_is_no_gateways_and_not_asked_for_again(kind: str) -> None:
    with answered_with(200, {"job_id": "5f0c"}, kind) as client, pytest.raises(NoGatewayError) as raised:
        next(Job({"job_id": "5f0c"}, client._transport).events())
    assert 'answers 200, but not as a gateway does: {"job_id": "5f0c"}' in str(raised.value)
