"""Calls a user's URL from inside our network. Only public addresses are called; the address is checked when the
connection is made. Each call has one deadline, even if the receiver stalls.
"""

from __future__ import annotations

import asyncio
import email.utils
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import httpcore2
import httpx2
from attrs import define, field

from gateway.contract.public_address import Network, is_allowed

#: Names and values.
Headers = Sequence[tuple[str, str]]

#: Seconds for a whole call: DNS lookup, connection, TLS, request and answer together.
CALL_SECONDS = 10.0
#: Seconds of a call that connecting may take. All addresses share them, so a dead one leaves time for the others.
CONNECT_SECONDS = 5.0
#: At most this many addresses of one name are tried.
MAX_ADDRESSES = 16
#: At most this many bytes of an answer are read: its status, its headers, and the beginning of its body.
MAX_ANSWER_BYTES = 64 * 1024
#: The first bytes of an answer's body are stored, as a hint at the cause of a failure. They are awaited for this many
#: seconds; the call itself succeeds or fails by its status.
KEPT_BYTES, KEPT_SECONDS = 1024, 1.0
#: Host names that are resolved at the same time for one user.
LOOKUPS = 4

#: The longest pause that a receiver can ask for (`Retry-After`).
MAX_PAUSE = timedelta(days=1)

_HEADERS = (("Content-Type", "application/json"), ("User-Agent", "DiscoveryBot"))


class CallResult(NamedTuple):
    #: Why the call failed; `None` on success.
    problem: str | None = None
    #: The status of the answer, if there was an answer.
    status: int | None = None
    #: The beginning of its body.
    answer: str | None = None
    #: The receiver asked not to be called again before this time has passed.
    pause: timedelta | None = None
    #: The receiver asked not to be called again at all (410).
    is_last: bool = False
    #: The platform could not make the call, so the receiver is not at fault.
    is_ours: bool = False


@define(eq=False, repr=False, slots=False)
class _Resolver:
    """Resolves names with the system's resolver. It cannot be interrupted, so it runs in threads that are never
    joined.
    """

    _ask: Callable[..., Any]
    #: By user: limits the lookups. A lookup counts until it has ended, even if its call was given up.
    _turns: WeakValueDictionary[str, asyncio.Semaphore] = field(init=False, factory=WeakValueDictionary)

    async def addresses(self, user_id: str, host: str, port: int) -> list[str]:
        """The host's addresses, each once. Raises `httpcore2.ConnectError`."""
        turns = self._turns.get(user_id)
        if turns is None:
            turns = self._turns[user_id] = asyncio.Semaphore(LOOKUPS)
        await turns.acquire()
        answer = asyncio.get_running_loop().create_future()

        def tell(found: list[str] | Exception) -> None:
            turns.release()
            if not answer.done():
                answer.set_result(found)

        threading.Thread(
            target=self._look_up, args=(host, port, answer.get_loop(), tell), name="webhook-lookup", daemon=True
        ).start()
        found = await answer
        if isinstance(found, Exception):
            raise httpcore2.ConnectError(f"it has no address ({found})") from found
        return list(dict.fromkeys(found))[:MAX_ADDRESSES]

    def _look_up(
        self, host: str, port: int, loop: asyncio.AbstractEventLoop, tell: Callable[[list[str] | Exception], None]
    ) -> None:
        found: list[str] | Exception
        try:
            found = [str(sockaddr[0]) for *_, sockaddr in self._ask(host, port, type=socket.SOCK_STREAM)]
        except (OSError, UnicodeError) as error:
            found = error
        # if the loop was closed since, no call waits for this any more
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, found)


class _CappedStream(httpcore2.AsyncNetworkStream):
    """Reads at most `MAX_ANSWER_BYTES`."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._left = MAX_ANSWER_BYTES

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore2's
        if not self._left:
            raise httpcore2.RemoteProtocolError(f"the headers of the answer are longer than {MAX_ANSWER_BYTES} bytes")
        read = await self._stream.read(min(max_bytes, self._left), timeout)
        self._left -= len(read)
        return read

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore2's
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(self, *args: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        return _CappedStream(await self._stream.start_tls(*args, **options))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Resolves a name, checks its addresses and connects to one of them, so the address cannot change in between.
    Each call has a backend of its own.
    """

    def __init__(self, resolver: _Resolver, allowed: tuple[Network, ...], user_id: str) -> None:
        self._resolver = resolver
        self._allowed = allowed
        self._user_id = user_id
        self._plain = httpcore2.AnyIOBackend()
        self._opened: httpcore2.AsyncNetworkStream | None = None

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        found = await self._resolver.addresses(self._user_id, host, port)
        public = [address for address in found if is_allowed(address, self._allowed)]
        if not public:
            # the message leaves the address out, because the user must not learn internal addresses
            raise httpcore2.ConnectError("its host has no public address")
        self._opened = await self._connect_to_one(public, port)
        return _CappedStream(self._opened)

    async def _connect_to_one(self, addresses: list[str], port: int) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address that answers. Each address gets an equal part of the
        time that is left.
        """
        time = asyncio.get_running_loop().time
        end, failures = time() + CONNECT_SECONDS, []
        for tried, address in enumerate(addresses):
            patience = (end - time()) / (len(addresses) - tried)
            try:
                return await self._plain.connect_tcp(address, port, timeout=patience)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failures.append(str(error) or f"{address} did not answer")
        raise httpcore2.ConnectError("; ".join(failures))

    async def aclose(self) -> None:
        """Close the connection, which httpcore2 leaves open if it is interrupted during a handshake."""
        if self._opened is not None:
            await self._opened.aclose()


class WebhookCaller:
    """Follows no redirect, and reads little of an answer. For use on one event loop."""

    def __init__(self, allowed: Iterable[Network] = (), look_up: Callable[..., Any] = socket.getaddrinfo) -> None:
        self._allowed = tuple(allowed)
        self._resolver = _Resolver(look_up)
        self._ssl = ssl.create_default_context()

    async def post(self, user_id: str, url: str, body: bytes, headers: Headers = ()) -> CallResult:
        """Succeeds with a 2xx answer within `CALL_SECONDS`. Takes at most `KEPT_SECONDS` longer."""
        try:
            async with asyncio.timeout(CALL_SECONDS) as limit:
                return await self._post(user_id, httpcore2.URL(str(httpx2.URL(url))), body, headers, limit)
        except TimeoutError:
            return CallResult(f"no answer within {CALL_SECONDS:g} s")
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            return CallResult(str(error) or type(error).__name__)
        except (httpcore2.UnsupportedProtocol, httpx2.InvalidURL, ValueError) as error:
            return CallResult(str(error))

    async def _post(
        self, user_id: str, url: httpcore2.URL, body: bytes, headers: Headers, limit: asyncio.Timeout
    ) -> CallResult:
        backend = _CheckedBackend(self._resolver, self._allowed, user_id)
        connection = httpcore2.AsyncHTTPConnection(url.origin, ssl_context=self._ssl, network_backend=backend)
        try:
            async with connection.stream("POST", url, headers=[*_HEADERS, *headers], content=body) as response:
                # the call was in time; the body has a deadline of its own
                limit.reschedule(None)
                answer = await _beginning(response)
                return _result(response.status, httpx2.Headers(response.headers))._replace(answer=answer)
        finally:
            await backend.aclose()


async def _beginning(response: httpcore2.Response) -> str | None:
    """The beginning of the body that arrives within `KEPT_SECONDS`. An error in the body is not an
    error of the call.
    """
    read = b""
    with suppress(TimeoutError, httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError):
        async with asyncio.timeout(KEPT_SECONDS):
            async for piece in response.aiter_stream():
                read += piece
                if len(read) >= KEPT_BYTES:
                    break
    return read[:KEPT_BYTES].decode(errors="replace").replace("\0", "\ufffd") or None


def _result(status: int, headers: httpx2.Headers) -> CallResult:
    match status // 100:
        case 2:
            return CallResult(status=status)
        case 3:
            return CallResult(f"answered {status}, a redirect, and redirects are not followed", status)
        case _:
            pause = pause_of(headers.get("Retry-After", "").strip(), datetime.now(UTC))
            return CallResult(f"answered {status}", status, pause=pause, is_last=status == HTTPStatus.GONE)


def pause_of(asked: str, now: datetime) -> timedelta | None:
    """The pause of a `Retry-After` header, which has seconds or a date (RFC 9110, 10.2.3), but at most `MAX_PAUSE`;
    `None` for a date in the past, or a header that cannot be parsed.
    """
    if asked.isascii() and asked.isdigit():
        return min(timedelta(seconds=int(asked[:9])), MAX_PAUSE)
    try:
        until = email.utils.parsedate_to_datetime(asked)
    except (ValueError, OverflowError):
        return None
    pause = (until if until.tzinfo else until.replace(tzinfo=UTC)) - now
    return min(pause, MAX_PAUSE) if pause > timedelta() else None
