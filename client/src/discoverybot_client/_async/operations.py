"""Names that differ between asyncio and blocking code. Only this module is written twice: `_sync` has its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import ParamSpec, TypeVar

import httpx2

Params = ParamSpec("Params")
Result = TypeVar("Result")


async def in_thread(function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
    """Call a blocking function."""
    return await asyncio.to_thread(function, *args, **kwargs)


async def body_of(answer: httpx2.Response) -> bytes:
    return await answer.aread()


def pieces_of(answer: httpx2.Response) -> AsyncIterator[bytes]:
    return answer.aiter_bytes()


async def close(client: httpx2.AsyncClient) -> None:
    await client.aclose()
