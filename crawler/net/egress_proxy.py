"""The only way from the browser to the network: a forward proxy that checks every address it connects to.

Only the browser knows what a page loads: redirects, workers, WebSockets, prefetches. All of it has to come through
this proxy. It resolves a name once, checks its addresses, and connects to one of the checked addresses.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import secrets
import socket
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from gateway.contract.public_address import Network, is_allowed

_HTTPS_PORT = 443
_HTTP_PORT = 80
#: Headers that are not forwarded: they concern the client and the proxy alone, or are rewritten.
_HOP_BY_HOP = frozenset({"proxy-authorization", "proxy-connection", "connection", "keep-alive", "host"})


class ProxyRequest(NamedTuple):
    """`CONNECT host:port`, or any method with an absolute `http://` URL."""

    method: str
    host: str
    port: int
    #: Path and query, empty for a tunnel.
    target: str
    headers: list[tuple[str, str]]

    @classmethod
    def parse(cls, head: bytes) -> Self:
        """The request with this head. Raises `ValueError` if it is malformed or of another kind."""
        first, *lines = head.decode("latin-1").split("\r\n")
        method, url, version = first.split(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"{version} is not supported")
        headers = [_header(line) for line in lines if line]
        tunnel = method == "CONNECT"
        parts = urlsplit(f"//{url}" if tunnel else url)
        if not parts.hostname or parts.scheme != ("" if tunnel else "http") or "@" in parts.netloc:
            raise ValueError("neither CONNECT to a host and port nor an absolute http:// URL")
        target = "" if tunnel else (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(method, parts.hostname, parts.port or (_HTTPS_PORT if tunnel else _HTTP_PORT), target, headers)

    @property
    def is_tunnel(self) -> bool:
        return self.method == "CONNECT"

    def has_password(self, user: str, password: str) -> bool:
        expected = base64.b64encode(f"{user}:{password}".encode()).decode()
        kind, _, given = self._header("proxy-authorization").partition(" ")
        return kind.lower() == "basic" and hmac.compare_digest(given.strip().encode(), expected.encode())

    def head_for_site(self) -> bytes:
        """The head of the request to the site. The connection serves one request only, or becomes a WebSocket's."""
        upgrade = "upgrade" in self._header("connection").lower()
        host = f"[{self.host}]" if ":" in self.host else self.host
        netloc = host if self.port == _HTTP_PORT else f"{host}:{self.port}"
        kept = [(name, value) for name, value in self.headers if name.lower() not in _HOP_BY_HOP]
        connection = ("Connection", "Upgrade" if upgrade else "close")
        lines = [f"{name}: {value}" for name, value in [("Host", netloc), *kept, connection]]
        return "\r\n".join([f"{self.method} {self.target} HTTP/1.1", *lines, "", ""]).encode("latin-1")

    def _header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or name != name.strip():
        raise ValueError("a header line is malformed")
    return name, value.strip()


logger = logging.getLogger(__name__)

#: Maximum number of bytes of a request's head; even many cookies do not need more.
MAX_HEAD_BYTES = 64 << 10
#: Maximum number of connections at once. Chromium opens up to 32 to a proxy by itself, and WebSockets come on top.
MAX_CONNECTIONS = 256
HEAD_SECONDS = 30.0
RESOLVE_SECONDS = 10.0
CONNECT_SECONDS = 10.0
IDLE_SECONDS = 120.0
#: How many addresses of a name are tried.
MAX_ADDRESSES = 4
#: A connection may carry as many bytes as this many of the largest responses: those in a tunnel cannot be counted.
RESPONSES_PER_CONNECTION = 16
#: Header that marks the proxy's own refusals.
REFUSED_HEADER = "X-Egress-Refused"
#: A host for which the proxy itself answers, so that the browser can send its password before the first page.
PRIMING_HOST = "egress.invalid"
PRIMING_URL = f"http://{PRIMING_HOST}/"
_REFUSALS_KEPT = 1000
_CHUNK = 64 << 10


class EgressRefusedError(Exception):
    """The connection is refused. The message says why; `status` is the HTTP status for the client."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class EgressProxy:
    """Listens on a port of loopback, and refuses clients without its password."""

    def __init__(self, allowed: Iterable[Network], max_response_bytes: int) -> None:
        self._allowed = tuple(allowed)
        self._max_bytes = max_response_bytes * RESPONSES_PER_CONNECTION
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        #: Every user of this machine can reach the port.
        self.user = "crawl"
        self.password = secrets.token_urlsafe(24)
        #: Host → why it was last refused.
        self.refused: OrderedDict[str, str] = OrderedDict()
        #: How many connections were refused because of where they went.
        self.refusals = 0

    @property
    def url(self) -> str:
        if self._server is None:
            raise RuntimeError("the proxy has not been started")
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=MAX_HEAD_BYTES)

    async def close(self) -> None:
        if self._server:
            self._server.close()
        connections = tuple(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._forward(reader, writer)
        except EgressRefusedError as refusal:
            writer.write(_answer(refusal.status, str(refusal)))
            with suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.drain(), HEAD_SECONDS)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # the browser itself reports a connection that broke or was idle too long
        finally:
            writer.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await self._read_request(reader)
        if request.host == PRIMING_HOST:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        site_reader, site_writer = await self._connect(request.host, request.port)
        try:
            if request.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                site_writer.write(request.head_for_site())
            await self._exchange((reader, site_writer), (site_reader, writer))
        finally:
            site_writer.close()

    async def _read_request(self, reader: asyncio.StreamReader) -> ProxyRequest:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HEAD_SECONDS)
            request = ProxyRequest.parse(head[:-4])
        except asyncio.LimitOverrunError:
            raise EgressRefusedError("431 Request Header Fields Too Large", "the head is too large") from None
        except ValueError as error:
            raise EgressRefusedError("400 Bad Request", str(error)) from None
        if not request.has_password(self.user, self.password):
            raise EgressRefusedError("407 Proxy Authentication Required", "this proxy belongs to a crawl")
        if len(self._connections) > MAX_CONNECTIONS:
            raise EgressRefusedError("503 Service Unavailable", "too many connections at once")
        return request

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        problem: Exception | None = None
        for address in await self._allowed_addresses(host, port):
            try:
                return await asyncio.wait_for(asyncio.open_connection(address, port), CONNECT_SECONDS)
            except (OSError, TimeoutError) as error:
                problem = error
        raise EgressRefusedError("502 Bad Gateway", f"{host} did not answer: {problem}")

    async def _allowed_addresses(self, host: str, port: int) -> list[str]:
        """The addresses of the host that may be connected to. The name itself is not used for that, because it could
        resolve to another address the second time.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await asyncio.wait_for(loop.getaddrinfo(host, port, type=socket.SOCK_STREAM), RESOLVE_SECONDS)
        except (OSError, UnicodeError, TimeoutError) as error:
            raise EgressRefusedError("502 Bad Gateway", f"{host} could not be resolved: {error}") from None
        addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
        allowed = [address for address in addresses if is_allowed(address, self._allowed)]
        if not allowed:
            raise self._refusal(host, addresses[0])
        return allowed[:MAX_ADDRESSES]

    def _refusal(self, host: str, address: str) -> EgressRefusedError:
        where = host if host == address else f"{host} ({address})"
        reason = f"{where} is not a public address"
        self.refusals += 1
        if host not in self.refused:
            logger.warning("The page may not load from there: %s", reason)
        self.refused[host] = reason
        if len(self.refused) > _REFUSALS_KEPT:
            self.refused.popitem(last=False)
        return EgressRefusedError("403 Forbidden", reason)

    async def _exchange(
        self,
        upward: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        downward: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Copy in both directions until either side closes. Browsers do not use half-closed connections."""
        async with asyncio.timeout(IDLE_SECONDS) as idle:
            pumps = [asyncio.ensure_future(self._pump(*way, idle)) for way in (upward, downward)]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, idle: asyncio.Timeout) -> None:
        left = self._max_bytes
        loop = asyncio.get_running_loop()
        while left > 0 and (chunk := await reader.read(min(_CHUNK, left))):
            left -= len(chunk)
            idle.reschedule(loop.time() + IDLE_SECONDS)
            writer.write(chunk)
            await writer.drain()
        if left <= 0:
            logger.warning("A connection of the page was cut: it had carried %d bytes", self._max_bytes)


def _answer(status: str, reason: str) -> bytes:
    body = f"{reason}\n".encode()
    headers = {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": str(len(body)),
        "Connection": "close",
        REFUSED_HEADER: "1",
    }
    if status.startswith("407"):
        headers["Proxy-Authenticate"] = 'Basic realm="crawl"'
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body
