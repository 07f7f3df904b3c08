from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.web.guard import BodyLimit


async def size(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


INNER = Starlette(routes=[Route("/{path:path}", size, methods=["POST"])])
LIMIT = BodyLimit(limit=10, egg_limit=20)


async def limited(scope: Scope, receive: Receive, send: Send) -> None:
    answer = LIMIT.refusal(scope) or INNER
    await answer(scope, LIMIT.counted(scope, receive), send)


async def post(
    content: bytes | AsyncIterator[bytes], headers: dict[str, str] | None = None, path: str = "/"
) -> httpx2.Response:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(limited), base_url="http://gateway") as http:
        return await http.post(path, content=content, headers=headers)


async def pieces(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"12345"


async def test_a_body_may_be_as_large_as_the_limit() -> None:
    assert (await post(b"x" * 10)).text == "10"
    assert (await post(pieces(2))).text == "10"


async def test_one_that_says_it_is_larger_is_not_even_read() -> None:
    response = await post(b"x" * 11)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"
    assert response.headers["connection"] == "close"


async def test_one_that_does_not_say_is_counted() -> None:
    assert (await post(pieces(3))).status_code == 413


@pytest.mark.parametrize("declared", ["9" * 5000, "99999999999999999999"])
async def test_an_absurd_length_is_too_large_too(declared: str) -> None:
    assert (await post(b"x", {"content-length": declared})).status_code == 413


async def test_an_egg_alone_may_be_larger() -> None:
    egg = "/projects/shop/versions"
    assert (await post(b"x" * 20, path=egg)).text == "20"
    assert (await post(pieces(4), path=egg)).text == "20"
    assert (await post(b"x" * 21, path=egg)).status_code == 413
    assert (await post(pieces(5), path=egg)).status_code == 413
    for path in (
        "/projects//versions",
        "/projects/a/b/versions",
        "/projects/shop/versions/",
        "/x/projects/a/versions",
    ):
        assert (await post(b"x" * 20, path=path)).status_code == 413
