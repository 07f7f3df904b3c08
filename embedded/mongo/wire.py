"""The bytes of the protocol: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/."""

from __future__ import annotations

import struct
from typing import NamedTuple

import bson
from bson.errors import BSONError

from embedded.mongo.collection import CODEC
from embedded.mongo.errors import Code, MongoError
from embedded.mongo.paths import Document

MAX_MESSAGE_BYTES = 48_000_000

_OP_REPLY, _OP_QUERY, _OP_MSG = 1, 2004, 2013
_HEADER = struct.Struct("<iiii")
_CHECKSUM_PRESENT, _MORE_TO_COME = 1 << 0, 1 << 1
#: Flags that a receiver must understand (bits 0 to 15), but that this server does not know: such messages are
#: refused.
_UNKNOWN_REQUIRED = 0xFFFF & ~(_CHECKSUM_PRESENT | _MORE_TO_COME)
_LEGACY_HELLO = frozenset({"isMaster", "ismaster", "hello"})


class WireError(Exception):
    """The bytes are not a valid message, so their connection must end."""


class Request(NamedTuple):
    command: Document
    request_id: int
    #: Whether the request was an OP_QUERY, which is answered with an OP_REPLY.
    is_legacy: bool
    wants_reply: bool


class Messages:
    """Splits the bytes of a connection into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Request]:
        """The requests that are complete now. Raises `WireError`."""
        self._buffer += data
        requests: list[Request] = []
        while len(self._buffer) >= _HEADER.size:
            length = int.from_bytes(self._buffer[:4], "little", signed=True)
            if not _HEADER.size <= length <= MAX_MESSAGE_BYTES:
                raise WireError(f"a message of {length} bytes")
            if len(self._buffer) < length:
                break
            requests.append(parse(bytes(memoryview(self._buffer)[:length])))
            del self._buffer[:length]
        return requests


def parse(message: bytes) -> Request:
    """The request in one whole message. Raises `WireError`."""
    _, request_id, _, opcode = _HEADER.unpack_from(message)
    try:
        if opcode == _OP_MSG:
            return _parse_msg(message, request_id)
        if opcode == _OP_QUERY:
            return _parse_query(message, request_id)
    except (BSONError, struct.error, ValueError, IndexError, KeyError, RecursionError) as error:
        raise WireError(f"a malformed message: {error}") from error
    raise WireError(f"the unsupported operation {opcode}")


def _parse_msg(message: bytes, request_id: int) -> Request:
    (flags,) = struct.unpack_from("<I", message, 16)
    if flags & _UNKNOWN_REQUIRED:
        raise WireError(f"unknown flags {flags:#x}")
    command: Document | None = None
    sequences: dict[str, list[Document]] = {}
    position, end = 20, len(message) - (4 if flags & _CHECKSUM_PRESENT else 0)
    while position < end:
        kind, (size,) = message[position], struct.unpack_from("<i", message, position + 1)
        section = message[position + 1 : position + 1 + size]
        if size < 5 or len(section) != size or position + 1 + size > end:  # noqa: PLR2004 - the smallest BSON document
            raise WireError("a section of the wrong size")
        if kind == 0 and command is None:
            command = bson.decode(section, CODEC)
        elif kind == 1:
            name, documents = _parse_sequence(section)
            sequences[name] = documents
        else:
            raise WireError(f"an unexpected section of kind {kind}")
        position += 1 + size
    if command is None or set(command) & set(sequences):
        raise WireError("no body, or a field twice")
    return Request({**command, **sequences}, request_id, is_legacy=False, wants_reply=not flags & _MORE_TO_COME)


def _parse_sequence(section: bytes) -> tuple[str, list[Document]]:
    end = section.index(b"\0", 4)
    return section[4:end].decode(), bson.decode_all(section[end + 1 :], CODEC)


def _parse_query(message: bytes, request_id: int) -> Request:
    """An OP_QUERY: flags, collection name, skip, limit, query. Drivers use it for the first `hello` to a server."""
    start = message.index(b"\0", 20) + 9
    (size,) = struct.unpack_from("<i", message, start)
    command = bson.decode(message[start : start + size], CODEC)
    if next(iter(command), "") not in _LEGACY_HELLO:
        raise WireError("OP_QUERY for anything but hello")
    return Request({**command, "$db": "admin"}, request_id, is_legacy=True, wants_reply=True)


def encode_reply(request: Request, reply: Document) -> bytes:
    """The message with the reply. Raises `MongoError` if it is too long, and `bson`'s errors if it is not BSON."""
    body = bson.encode(reply)
    if len(body) > MAX_MESSAGE_BYTES:
        raise MongoError(Code.BSONObjectTooLarge, f"an answer of {len(body)} bytes, the most is {MAX_MESSAGE_BYTES}")
    if request.is_legacy:
        payload, opcode = struct.pack("<iqii", 8, 0, 0, 1) + body, _OP_REPLY
    else:
        payload, opcode = bytes(5) + body, _OP_MSG
    return _HEADER.pack(_HEADER.size + len(payload), 0, request.request_id, opcode) + payload
