"""How a route's function is called is not the choice of who writes it."""

from __future__ import annotations

import threading
from typing import Annotated

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI

from gateway.application import check_routes
from gateway.web.call_queue import Threads
from gateway.web.dependencies import Parts, Router


def blocking() -> str:
    return "there"


class FewParts:
    def __init__(self, threads: Threads) -> None:
        self.threads = threads


def name_of_thread(parts: Parts) -> str:
    return f"{threading.current_thread().name} of {type(parts).__name__}"


@pytest.mark.parametrize("path", ["/things", "/things/{name}"])
async def test_a_blocking_function_is_called_in_a_place_of_its_user(path: str) -> None:
    router, app, threads = Router(), FastAPI(), Threads(1, lambda: None)
    router.get(path)(name_of_thread)
    app.include_router(router)
    app.state.parts = FewParts(threads)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1") as http:
        answer = await http.get(path.format(name="one"))
    assert answer.json().startswith("call_")
    assert answer.json().endswith("of FewParts")
    threads.close()


def test_a_blocking_function_takes_the_parts_that_have_the_threads() -> None:
    with pytest.raises(TypeError, match="it has to take `parts`"):
        Router().get("/things")(blocking)


def test_a_blocking_dependency_is_an_error_at_the_start() -> None:
    async def asks(found: Annotated[str, Depends(blocking)]) -> str:
        return found

    with pytest.raises(TypeError, match="has to be a coroutine function"):
        Router().get("/things")(asks)


def test_a_route_of_another_kind_is_an_error_at_the_start() -> None:
    router = APIRouter()

    router.get("/things")(blocking)
    with pytest.raises(TypeError, match="/things: its router has to be a `Router`"):
        check_routes(router.routes)
