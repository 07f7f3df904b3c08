"""The wire format: https://html.spec.whatwg.org/multipage/server-sent-events.html, encoded once for all clients.

`data` is always JSON on one line, so it never holds a raw newline.
"""

from __future__ import annotations

from typing import Any

import orjson

from gateway.web.event_stream.position import Position

#: Milliseconds after which a client whose connection broke comes back.
RETRY = b"retry: 2000\n\n"
#: Another process, or the next one, takes over: come back soon.
FAREWELL = b"retry: 500\n: the gateway is shutting down\n\n"
_DATA = b"\ndata: "


def log_event(attempt: int, end: int, data: bytes) -> bytes:
    return b"event: log\nid: %d-%d%b%b\n\n" % (attempt, end, _DATA, data)


def event(name: str, data: Any, position: Position | None = None) -> bytes:
    """`data` is anything that orjson takes."""
    identity = "" if position is None else f"\nid: {position}"
    return f"event: {name}{identity}".encode() + _DATA + orjson.dumps(data) + b"\n\n"


def data_of(encoded: bytes) -> bytes:
    """The JSON in an encoded event."""
    return encoded[encoded.index(_DATA) + len(_DATA) : -2]
