"""What a client asks a forward proxy for: the head of its first request, read and written anew for the site."""

from __future__ import annotations

import base64
import hmac
from typing import NamedTuple, Self
from urllib.parse import urlsplit

_HTTPS_PORT = 443
_HTTP_PORT = 80
#: Between the client and the proxy alone; `Connection` is written anew.
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
        """Raises `ValueError` for what is no such request."""
        first, *lines = head.decode("latin-1").split("\r\n")
        method, url, version = first.split(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"{version} is not spoken here")
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
        """The same request to the site itself. It is the connection's only one, unless it becomes a WebSocket's."""
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
