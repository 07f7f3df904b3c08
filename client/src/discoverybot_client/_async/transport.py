"""Requests that are answered or fail for a reason, pages that follow each other, and downloads."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from copy import copy
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import httpx2

from discoverybot_client.errors import ApiError, GatewayUnreachableError, NoGatewayError, error_of, stranger
from discoverybot_client.rules import (
    Address,
    Deadline,
    Retries,
    Told,
    given,
    has_field,
    is_page,
    may_repeat,
    misshapen,
    retry_after,
    unreachable,
)

from .operations import body_of, close, in_thread, pieces_of

_logger = logging.getLogger("discoverybot_client")
_CONNECT = 5.0
#: Entries of a page: the maximum of most lists of the gateway.
PAGE = 200
_OK = 200
#: Statuses from here on are errors, also redirections, because the gateway sends none.
_ERRORS = 300
#: Formats that the gateway sends only once the file is complete, and the seconds that this may take: a million rows
#: as XLSX take minutes.
_WHOLE_FORMATS, _WHOLE = frozenset({"xlsx", "parquet"}), 3600.0


class Transport:
    """One gateway. `timeout` is for a whole request, with all its retries, in seconds."""

    def __init__(
        self,
        address: Address,
        timeout: float,
        retries: int | Retries,
        headers: Mapping[str, str],
        transport: httpx2.AsyncBaseTransport | None,
    ) -> None:
        self.url = address.url
        self.timeout, self.retries = timeout, Retries.of(retries)
        #: Whether there was an answer.
        self.was_there = False
        self.http = httpx2.AsyncClient(
            base_url=address.url,
            headers=address.headers,
            trust_env=address.trust_env,
            verify=address.verify,
            transport=transport,
        )
        self.http.headers.update(headers)

    def with_options(self, timeout: float | None, retries: int | Retries | None) -> Self:
        """The same with another time limit or other retries, over the same connections."""
        other = copy(self)
        other.timeout = self.timeout if timeout is None else timeout
        other.retries = self.retries if retries is None else Retries.of(retries)
        return other

    async def call(self, method: str, path: str, **options: Any) -> Any:
        """As `request`, for an answer that is an object, or is not looked at. Raises `NoGatewayError` for any other
        answer, and at a field that is missing in it.
        """
        told = await self.request(method, path, **options)
        if told is None or isinstance(told, dict):
            return Told(self.url, told or {})
        raise misshapen(self.url, told)

    async def request(
        self,
        method: str,
        path: str,
        *,
        deadline: Deadline | None = None,
        repeatable: bool = False,
        answers: Mapping[int, str] = MappingProxyType({}),
        **options: Any,
    ) -> Any:
        """The answer as JSON; `None` if there is none. `repeatable`: the request may be sent again even after it may
        have been carried out. `answers`: statuses that are no errors here if the answer has this field. Raises
        `ApiError`, `GatewayUnreachableError`, `NoGatewayError`.
        """
        repeatable = repeatable or may_repeat(method, options.get("headers") or {})
        until = deadline or Deadline(self.timeout)
        body = await self._read(method, path, until, options, repeatable=repeatable, answers=answers)
        if not body:
            return None
        try:
            return json.loads(body)
        except ValueError:
            raise NoGatewayError(stranger(self.url, body, _OK)) from None

    async def _read(
        self,
        method: str,
        path: str,
        until: Deadline,
        options: dict[str, Any],
        *,
        repeatable: bool,
        answers: Mapping[int, str],
    ) -> bytes:
        """The body of the answer, complete."""
        number = 0
        while True:
            failed: ApiError | GatewayUnreachableError
            cause: Exception | None = None
            try:
                status, headers, body = await self._once(method, path, until, options)
            except httpx2.RequestError as error:
                was_sent = not isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))
                failed, cause = unreachable(self.url, error, was_sent=was_sent), error
            else:
                if status < _ERRORS or (status in answers and has_field(body, answers[status])):
                    return body
                refused = error_of(self.url, status, body, retry_after(headers))
                if isinstance(refused, NoGatewayError):
                    raise refused
                failed = refused
            number += 1
            pause, left = self.retries.pause(number, failed.retry_after), until.left()
            if not self.retries.cover(number, failed, repeatable=repeatable) or (left is not None and pause >= left):
                raise failed from cause
            await self.sleep(pause, method, path, failed)

    async def sleep(self, pause: float, method: str, path: str, failed: Exception) -> None:
        """Wait before the request is sent again."""
        _logger.info("%s %s: %s; again in %.1f s", method, path, failed, pause)
        await asyncio.sleep(pause)

    async def _once(
        self, method: str, path: str, until: Deadline, options: dict[str, Any]
    ) -> tuple[int, httpx2.Headers, bytes]:
        """Send the request once. The body is read piece by piece, and the time is checked after each, so that a
        server which sends a byte now and then cannot block the caller for ever.
        """
        timeout = httpx2.Timeout(until.within(until.silence), connect=until.within(_CONNECT))
        async with self.http.stream(method, path, timeout=timeout, **options) as answer:
            self.was_there = True
            pieces = []
            async for piece in pieces_of(answer):
                pieces.append(piece)
                if until.is_over():
                    raise httpx2.ReadTimeout("the answer did not come in time")
            return answer.status_code, answer.headers, b"".join(pieces)

    async def pages(self, path: str, cursor: str = "after", **query: Any) -> AsyncIterator[Told]:
        """Each page of a list. If an answer breaks off, its page is requested again: none is missing or doubled."""
        asked = given(**query)
        while True:
            page: Told = await self.call("GET", path, params=asked)
            yield page
            following = page.get("next")
            if following is None:
                return
            if following == asked.get(cursor):
                raise NoGatewayError(f"the page after {following!r} of {path} is the same again")
            asked[cursor] = following

    async def entries(
        self, path: str, name: str, query: Mapping[str, Any], *, page: int = PAGE, cursor: str = "after"
    ) -> AsyncIterator[dict[str, Any]]:
        """Each entry of a list, page by page: all, or as many as the `limit` of the query."""
        left = query.get("limit")
        if left == 0:
            return
        size = page if left is None else min(page, left)
        async for one in self.pages(path, cursor, **{**query, "limit": size}):
            for entry in one.objects(name):
                yield entry
                left = None if left is None else left - 1
                if left == 0:
                    return

    async def pieces(
        self, path: str, headers: dict[str, str] | None = None, **query: Any
    ) -> AsyncGenerator[bytes, None]:
        """The body of a `GET`, piece by piece, of any length. The request is not repeated."""
        silence = _WHOLE if query.get("format") in _WHOLE_FORMATS else self.timeout
        async with self.opened(path, silence, given(**query), headers or {}) as answer:
            async for piece in pieces_of(answer):
                yield piece

    @asynccontextmanager
    async def opened(
        self, path: str, silence: float, query: dict[str, Any], headers: dict[str, str]
    ) -> AsyncIterator[httpx2.Response]:
        """An answer whose body is still to be read. Raises `ApiError`, `NoGatewayError` for a page such as that of
        a login, and `GatewayUnreachableError` also while the body is read.
        """
        timeout = httpx2.Timeout(silence, connect=_CONNECT)
        try:
            async with self.http.stream("GET", path, params=query, headers=headers, timeout=timeout) as answer:
                self.was_there = True
                if answer.status_code >= _ERRORS:
                    body, after = await body_of(answer), retry_after(answer.headers)
                    raise error_of(self.url, answer.status_code, body, after)
                if is_page(answer.headers):
                    raise NoGatewayError(stranger(self.url, await body_of(answer), answer.status_code))
                yield answer
        except httpx2.RequestError as error:
            raise unreachable(self.url, error) from error

    async def download(self, path: str, target: Path, **query: Any) -> Path:
        """Save the body as the file `target`, which exists only once it is complete."""
        partial = target.with_name(f"{target.name}.part")
        number = 0
        while True:
            try:
                with partial.open("wb") as file:
                    async with aclosing(self.pieces(path, **query)) as pieces:
                        async for piece in pieces:
                            await in_thread(file.write, piece)
                return partial.replace(target)
            except (ApiError, GatewayUnreachableError) as error:
                number += 1
                pause = self.retries.pause(number, error.retry_after)
                if not self.retries.cover(number, error, repeatable=True) or pause >= self.timeout:
                    raise
                await self.sleep(pause, "GET", path, error)
            finally:
                partial.unlink(missing_ok=True)

    def __deepcopy__(self, _memo: object) -> Self:
        # a copy of a record asks over the same connections
        return self

    async def close(self) -> None:
        await close(self.http)
