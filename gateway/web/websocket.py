"""The gateway has no WebSockets: it accepts each one and closes it at once.

Firecrawl's clients watch a job through a WebSocket. When it is closed, they poll by HTTP instead; but if it is
refused, their JavaScript client gives up.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Any, cast

#: RFC 6455, section 1.3.
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#: A closing frame with the status "normal closure", which is no error for any client.
_CLOSED = b"\x88\x02\x03\xe8"
#: Seconds that a client has to close its side.
_PATIENCE = 2.0


class ClosingWebSocket(asyncio.Protocol):
    """Takes over a connection from uvicorn, which calls it with more than it needs. Nobody is asked for a key, as
    nothing is said or done.
    """

    _transport: asyncio.Transport
    _deadline: asyncio.TimerHandle

    def __init__(self, **_: Any) -> None:
        self._is_answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = asyncio.get_running_loop().call_later(_PATIENCE, self._transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        """The request's head, and then the client's own closing frame."""
        if self._is_answered:
            self._transport.close()
            return
        self._is_answered = True
        lines = (line.partition(b":") for line in data.split(b"\r\n\r\n", 1)[0].split(b"\r\n")[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in lines}
        key = base64.b64encode(hashlib.sha1(headers.get(b"sec-websocket-key", b"") + _GUID).digest())  # noqa: S324 - the protocol's
        answer = [b"HTTP/1.1 101 Switching Protocols", b"Upgrade: websocket", b"Connection: Upgrade"]
        answer.append(b"Sec-WebSocket-Accept: " + key)
        # the JavaScript client sends its key as a subprotocol, and a browser fails unless the answer names it
        if named := headers.get(b"sec-websocket-protocol", b"").split(b",")[0].strip():
            answer.append(b"Sec-WebSocket-Protocol: " + named)
        self._transport.write(b"\r\n".join(answer) + b"\r\n\r\n" + _CLOSED)
