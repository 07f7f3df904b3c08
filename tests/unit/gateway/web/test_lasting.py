"""A download whose client goes away."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from gateway.web.lasting import Download, LastingAnswers


class Reader:
    """A client that reads `most` chunks, and then goes away or reads no more."""

    def __init__(self, most: int, *, goes: bool = True) -> None:
        self.read: list[bytes] = []
        self._most, self._goes, self._gone = most, goes, asyncio.Event()
        #: It reads no more.
        self.waits = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.read += [message["body"]] if message.get("body") else []
        if len(self.read) >= self._most:
            if self._goes:
                self._gone.set()
            self.waits.set()
            await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def take(reader: Reader, chunks: AsyncIterator[bytes]) -> weakref.ref[Download]:
    download = Download(chunks, LastingAnswers(9, 9), headers={})
    await download({"type": "http"}, reader.receive, reader.send)
    return weakref.ref(download)


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b"chunk"


async def fails() -> AsyncIterator[bytes]:
    yield b"chunk"
    raise LookupError


async def test_it_is_let_go_at_once_when_its_client_goes_away() -> None:
    reader = Reader(3)
    assert (await take(reader, endless()))() is None
    assert reader.read == [b"chunk"] * 3


async def test_it_is_let_go_at_once_when_it_fails() -> None:
    download = Download(fails(), LastingAnswers(9, 9), headers={})
    left, reader = weakref.ref(download), Reader(9)
    with pytest.raises(LookupError):
        await download({"type": "http"}, reader.receive, reader.send)
    del download
    assert left() is None


async def test_it_ends_with_its_request() -> None:
    reader = Reader(1, goes=False)
    taking = asyncio.create_task(take(reader, endless()))
    await reader.waits.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert [one for one in asyncio.all_tasks() if one is not asyncio.current_task()] == []
