"""Calls a user's URL from inside: to public addresses only, checked where the connection is made."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore

from gateway.domain.public_address import Network, is_allowed

#: Seconds for each step of a call.
_TIMEOUT = {"connect": 5.0, "read": 10.0, "write": 5.0, "pool": 5.0}


class _CheckedBackend(httpcore.SyncBackend):
    """Resolves, checks, and connects to what was checked: a name cannot lead elsewhere in between."""

    def __init__(self, allowed: Iterable[Network]) -> None:
        super().__init__()
        self._allowed = tuple(allowed)

    def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> httpcore.NetworkStream:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} has no address ({error})") from error
        addresses = [str(sockaddr[0]) for *_, sockaddr in found]
        for address in addresses:
            if not is_allowed(address, self._allowed):
                raise httpcore.ConnectError(f"{host} leads to {address}, which is not a public address")
        return super().connect_tcp(addresses[0], port, *args, **options)


class WebhookCaller:
    """Follows no redirect and reads no answer but its status."""

    def __init__(self, allowed: Iterable[Network] = ()) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=ssl.create_default_context(),
            network_backend=_CheckedBackend(allowed),
            max_connections=16,
            max_keepalive_connections=0,
        )

    def post(self, url: str, body: bytes) -> str | None:
        """`None` for a 2xx answer, else why it did not arrive."""
        headers = [("Content-Type", "application/json"), ("User-Agent", "DiscoveryBot")]
        try:
            with self._pool.stream(
                "POST", url, headers=headers, content=body, extensions={"timeout": _TIMEOUT}
            ) as response:
                status: int = response.status
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            return f"{type(error).__name__}: {error}"
        except (httpcore.UnsupportedProtocol, ValueError) as error:
            return str(error)
        return None if status // 100 == 2 else f"answered {status}"  # noqa: PLR2004 - 2xx
