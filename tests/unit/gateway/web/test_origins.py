from __future__ import annotations

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.contract.public_address import is_loopback
from gateway.web.guard import Origins


async def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


INNER = Starlette(routes=[Route("/", hello, methods=["GET", "POST"])])


async def status(
    method: str, headers: dict[str, str], *, host: str = "127.0.0.1", client: tuple[str, int] = ("127.0.0.1", 5),
    origins: tuple[str, ...] = (),
) -> int:  # fmt: skip
    guard = Origins(host, origins)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        await (guard.refusal(scope) or INNER)(scope, receive, send)

    transport = httpx2.ASGITransport(guarded, client=client)
    async with httpx2.AsyncClient(transport=transport, base_url="http://unset") as http:
        return (await http.request(method, "/", headers=headers)).status_code


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8001", "localhost:8001", "LOCALHOST", "[::1]:8001", "[::1]", "127.0.0.1"]
)
async def test_it_answers_to_its_own_names(host: str) -> None:
    assert await status("POST", {"Host": host}) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8001", "", "localhost:x", "[::2]"]
)
async def test_a_name_that_was_rebound_to_this_machine_is_refused(host: str) -> None:
    assert await status("GET", {"Host": host}) == 403


async def test_the_address_it_was_told_to_listen_at_is_a_name_too() -> None:
    assert await status("GET", {"Host": "127.0.0.2:80"}, host="127.0.0.2") == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:3000", "http://127.0.0.1:8002"])
async def test_a_page_of_another_origin_may_read_nothing_and_change_nothing(origin: str) -> None:
    assert await status("POST", {"Host": "localhost:8001", "Origin": origin}) == 403


async def test_a_listed_origin_may_change_things_and_its_neighbours_may_not() -> None:
    host, listed = "localhost:8001", ("http://localhost:3000",)
    for origin, expected in (("http://localhost:3000", 200), ("http://localhost:3001", 403), ("null", 403)):
        assert await status("POST", {"Host": host, "Origin": origin}, origins=listed) == expected


async def test_its_own_pages_may_change_things() -> None:
    assert await status("POST", {"Host": "localhost:8001", "Origin": "http://localhost:8001"}) == 200


async def test_reading_across_origins_is_left_to_the_browser() -> None:
    assert await status("GET", {"Host": "localhost:8001", "Origin": "http://evil.example"}) == 200


async def test_other_machines_are_refused_whatever_name_they_use() -> None:
    assert await status("GET", {"Host": "localhost"}, client=("192.0.2.7", 5)) == 403


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("[::1]", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("192.0.2.7", False), ("example.com", False)],
)  # fmt: skip
def test_what_counts_as_this_machine(host: str, expected: bool) -> None:  # noqa: FBT001 - a table's column
    assert is_loopback(host) is expected
