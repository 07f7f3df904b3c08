"""Event streams that go on after the last event, however often the connection breaks."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import httpx2

from discoverybot_client.errors import NoGatewayError, stranger
from discoverybot_client.records import Event
from discoverybot_client.rules import AWAY, SILENCE, Patience, given, unreachable

from .operations import body_of
from .transport import Transport

_logger = logging.getLogger("discoverybot_client")
_OK, _NO_CONTENT = 200, 204
_STREAM = "text/event-stream"
#: Maximum bytes of an event: a line of a log may have a megabyte, and more as JSON.
_MAX_EVENT = 64 << 20


class _OverError(Exception):
    """A 204: the stream has nothing left to send."""


async def events(
    transport: Transport, path: str, after: str = "", patience: float | None = None, **query: Any
) -> AsyncGenerator[Event, None]:
    """Each event of a stream, from the one after `after` on, to its end. Whenever the connection breaks, it goes
    on after the last event, and an event `dropped` says so. Raises `GatewayUnreachableError` or
    `UnavailableError` if the gateway is away for `patience` seconds, `ApiError` if it refuses, and
    `NoGatewayError` if the answer is no stream.
    """
    last_id, pause = after, 2.0
    outage = Patience(transport.retries, patience, was_there=transport.was_there)
    while True:
        try:
            async with aclosing(_connected(transport, path, last_id, given(**query))) as connected:
                async for sent in connected:
                    outage.is_heard()
                    last_id = sent.id or last_id
                    pause = pause if sent.retry is None else sent.retry / 1000
                    if sent.data:
                        yield Event(sent.event, sent.id, _data_of(transport.url, sent.data))
                    if sent.event == "end":
                        return
            raise unreachable(transport.url, EOFError("the stream was closed before its end"))
        except _OverError:
            return
        except AWAY as error:
            after_pause = outage.pause(error, pause)
        _logger.info("the stream %s broke off after %r; again in %.1f s", path, last_id, after_pause)
        yield Event("dropped", last_id, {})
        await asyncio.sleep(after_pause)


def _data_of(url: str, text: str) -> dict[str, Any]:
    with suppress(ValueError):
        data = json.loads(text)
        if isinstance(data, dict):
            return data
    raise NoGatewayError(stranger(url, text.encode("utf-8", "replace"), _OK))


async def _connected(
    transport: Transport, path: str, last_id: str, query: dict[str, Any]
) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
    headers = {"Accept": _STREAM, **({"Last-Event-ID": last_id} if last_id else {})}
    async with transport.opened(path, SILENCE, query, headers) as answer:
        if answer.status_code == _NO_CONTENT:
            raise _OverError
        if answer.headers.get("Content-Type", "").partition(";")[0].strip().lower() != _STREAM:
            raise NoGatewayError(stranger(transport.url, await body_of(answer), answer.status_code))
        async for sent in httpx2.EventSource(answer, _MAX_EVENT):
            yield sent
