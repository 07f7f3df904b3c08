"""Requests that are answered or fail for a reason, pages that follow each other, and streams that go on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx2

from discoverybot_client.errors import DiscoveryBotError, NoGatewayError, error_of
from discoverybot_client.records import Event
from discoverybot_client.rules import (
    SILENCE,
    Address,
    Deadline,
    Retries,
    given,
    is_retried,
    may_repeat,
    retry_after,
    unreachable,
)

from .operations import body_of, close, in_thread, pieces_of

_CONNECT = 5.0
#: How many times as long as another call a page may take.
_PAGE_TIMES = 10
_NO_CONTENT = 204
_ERRORS = 400
#: The longest event that is taken: a line of a log may have a megabyte, and more as JSON.
_MAX_EVENT = 64 << 20


class Transport:
    """One gateway. `timeout` is for a whole request, with all its retries, in seconds."""

    def __init__(
        self,
        address: Address,
        timeout: float,
        retries: Retries,
        transport: httpx2.AsyncBaseTransport | None,
    ) -> None:
        self.url = address.url
        self.timeout = timeout
        self.retries = retries
        self.http = httpx2.AsyncClient(
            base_url=address.url,
            headers=address.headers,
            trust_env=address.trust_env,
            verify=address.verify,
            transport=transport,
        )

    async def call(
        self,
        method: str,
        path: str,
        *,
        deadline: Deadline | None = None,
        repeatable: bool = False,
        **options: Any,
    ) -> Any:
        """The answer as JSON; `None` if there is none. `repeatable`: it may be sent again though it may have been
        carried out. Raises `ApiError`, `GatewayUnreachableError`, `NoGatewayError`.
        """
        sent_again = repeatable or may_repeat(method, options.get("headers") or {})
        body = await self._read(method, path, deadline or Deadline(self.timeout), options, repeatable=sent_again)
        if not body:
            return None
        try:
            return json.loads(body)
        except ValueError:
            raise NoGatewayError(f"{self.url} answers, but it is not a gateway") from None

    async def _read(
        self,
        method: str,
        path: str,
        until: Deadline,
        options: dict[str, Any],
        *,
        repeatable: bool,
    ) -> bytes:
        """The body of the answer, complete."""
        number = 0
        while True:
            after: float | None = None
            try:
                status, headers, body = await self._once(method, path, until, options)
            except httpx2.TransportError as error:
                failed: DiscoveryBotError = unreachable(self.url, error)
                if not repeatable and not isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout)):
                    raise failed from None  # it may have been sent
            else:
                if status < _ERRORS:
                    return body
                after = retry_after(headers)
                failed = error_of(status, body, after)
                if not is_retried(status, body, repeatable=repeatable):
                    raise failed
            number += 1
            pause, left = self.retries.pause(number, after), until.left()
            if number >= self.retries.most or (left is not None and pause >= left):
                raise failed from None
            await asyncio.sleep(pause)

    async def _once(
        self, method: str, path: str, until: Deadline, options: dict[str, Any]
    ) -> tuple[int, httpx2.Headers, bytes]:
        """Each operation has what is left of the time, and the body is read piece by piece: a server that sends a
        byte now and then holds nobody for ever.
        """
        timeout = httpx2.Timeout(until.within(until.silence), connect=until.within(_CONNECT))
        async with self.http.stream(method, path, timeout=timeout, **options) as answer:
            pieces = []
            async for piece in pieces_of(answer):
                pieces.append(piece)
                if until.is_over():
                    raise httpx2.ReadTimeout("the answer did not come in time")
            return answer.status_code, answer.headers, b"".join(pieces)

    async def pages(self, path: str, cursor: str = "after", **query: Any) -> AsyncIterator[dict[str, Any]]:
        """Each page of a list. One whose answer breaks off is asked for again: none is left out or comes twice."""
        asked = given(**query)
        while True:
            # a page of large items may take its time, as long as something comes
            long = Deadline(_PAGE_TIMES * self.timeout)
            page: dict[str, Any] = await self.call("GET", path, params=asked, deadline=long)
            yield page
            following = page.get("next")
            if following is None:
                return
            if following == asked.get(cursor):
                raise NoGatewayError(f"the page after {following!r} of {path} is the same again")
            asked[cursor] = following

    async def events(
        self, path: str, after: str = "", patience: float | None = None, **query: Any
    ) -> AsyncIterator[Event]:
        """Each event of a stream, from the one after `after` on, to its end. Whenever the connection breaks, it goes
        on after the last event. Raises `GatewayUnreachableError` or `UnavailableError` if the gateway is away for
        `patience` seconds, and `ApiError` if it refuses.
        """
        last_id, pause, number = after, 2.0, 0
        away_since: float | None = None
        while True:
            try:
                async with aclosing(self._connected(path, last_id, given(**query))) as connected:
                    async for sent in connected:
                        away_since, number = None, 0
                        last_id = sent.id or last_id
                        pause = pause if sent.retry is None else sent.retry / 1000
                        if sent.data:
                            yield Event(sent.event, sent.id, json.loads(sent.data))
                        if sent.event == "end":
                            return
                failed: DiscoveryBotError = unreachable(self.url, EOFError("the stream broke off"))
                away = pause
            except _OverError:
                return
            except httpx2.TransportError as error:
                failed, away = unreachable(self.url, error), max(pause, self.retries.pause(number))
            except _AwayError as error:
                failed, away = error.reason, self.retries.pause(number, error.reason.retry_after)
            away_since = time.monotonic() if away_since is None else away_since
            if patience is not None and time.monotonic() - away_since > patience:
                raise failed from None
            number += 1
            await asyncio.sleep(away)

    async def _connected(
        self, path: str, last_id: str, query: dict[str, Any]
    ) -> AsyncGenerator[httpx2.ServerSentEvent, None]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last_id} if last_id else {})}
        timeout = httpx2.Timeout(SILENCE, connect=_CONNECT)
        async with self.http.stream("GET", path, params=query, headers=headers, timeout=timeout) as answer:
            if answer.status_code == _NO_CONTENT:
                raise _OverError
            if answer.status_code >= _ERRORS:
                body = await body_of(answer)
                failed = error_of(answer.status_code, body, retry_after(answer.headers))
                if is_retried(answer.status_code, body, repeatable=True):
                    raise _AwayError(failed)
                raise failed
            async for sent in httpx2.EventSource(answer, _MAX_EVENT):
                yield sent

    async def download(self, path: str, target: Path, **query: Any) -> Path:
        """The body in a file, which is there only if it is complete."""
        partial = target.with_name(f"{target.name}.part")
        number = 0
        while True:
            try:
                await self._to_file(path, partial, given(**query))
                return partial.replace(target)
            except httpx2.TransportError as error:
                number += 1
                if number >= self.retries.most:
                    raise unreachable(self.url, error) from None
                await asyncio.sleep(self.retries.pause(number))
            except _AwayError as error:
                number += 1
                if number >= self.retries.most:
                    raise error.reason from None
                await asyncio.sleep(self.retries.pause(number, error.reason.retry_after))
            finally:
                partial.unlink(missing_ok=True)

    async def _to_file(self, path: str, partial: Path, query: dict[str, Any]) -> None:
        timeout = httpx2.Timeout(self.timeout, connect=_CONNECT)
        async with self.http.stream("GET", path, params=query, timeout=timeout) as answer:
            if answer.status_code >= _ERRORS:
                body = await body_of(answer)
                failed = error_of(answer.status_code, body, retry_after(answer.headers))
                if is_retried(answer.status_code, body, repeatable=True):
                    raise _AwayError(failed)
                raise failed
            with partial.open("wb") as file:
                async for piece in pieces_of(answer):
                    await in_thread(file.write, piece)

    async def close(self) -> None:
        await close(self.http)


class _OverError(Exception):
    """204: there is nothing left to see."""


class _AwayError(Exception):
    """The gateway answers, but cannot serve now."""

    def __init__(self, reason: Any) -> None:
        super().__init__(str(reason))
        self.reason = reason
