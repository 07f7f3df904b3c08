"""See `_async`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import httpx2

Params = ParamSpec("Params")
Result = TypeVar("Result")


def in_thread(function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
    return function(*args, **kwargs)


def body_of(answer: httpx2.Response) -> bytes:
    return answer.read()


def pieces_of(answer: httpx2.Response) -> Iterator[bytes]:
    return answer.iter_bytes()


def close(client: httpx2.Client) -> None:
    client.close()
