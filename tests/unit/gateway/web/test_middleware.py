from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gateway.web.middleware import AnswerMiddleware, ProcessMetrics


async def context(_: Request) -> Response:
    return JSONResponse(structlog.contextvars.get_contextvars())


async def broken(_: Request) -> Response:
    raise ZeroDivisionError


async def torn(_: Request) -> Response:
    async def half() -> AsyncIterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    return StreamingResponse(half())


ROUTES = [Route("/", context), Route("/broken", broken), Route("/torn", torn)]
INNER = AnswerMiddleware(Starlette(routes=ROUTES).router, ProcessMetrics())


async def get(path: str, request_id: str = "r1") -> httpx2.Response:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(INNER), base_url="http://gateway") as http:
        return await http.get(path, headers={b"X-Request-ID": request_id.encode()})


async def test_a_sane_id_is_taken_bound_and_echoed() -> None:
    response = await get("/", "mine-1.2_3")
    assert response.headers["X-Request-ID"] == "mine-1.2_3"
    assert response.json() == {"request_id": "mine-1.2_3", "correlation_id": "mine-1.2_3"}


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "<script>", "é"])
async def test_any_other_is_replaced(given: str) -> None:
    response = await get("/", given)
    assert len(response.headers["X-Request-ID"]) == 32
    assert set(response.json().values()) == {response.headers["X-Request-ID"]}


async def test_what_nobody_foresaw_is_answered_with_the_id_to_look_for() -> None:
    response = await get("/broken", "find-me")
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert response.json()["request_id"] == response.headers["X-Request-ID"] == "find-me"


async def test_half_an_answer_is_never_passed_off_as_a_whole() -> None:
    with pytest.raises(ZeroDivisionError):
        await get("/torn")
