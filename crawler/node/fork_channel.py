"""The zygote's end of its socket: frames of a length (4 bytes, big-endian) and JSON, with descriptors."""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

#: Bytes of a frame; a request is the names of a crawl and its environment.
MAX_FRAME = 1 << 20
#: Descriptors that go with a request: where its output goes, and its mark.
FDS = 2
_LENGTH = struct.Struct("!I")
_READ = 1 << 16
_MAX_FDS = 64


class ForkRequest(NamedTuple):
    id: int
    argv: list[str]
    env: dict[str, str]
    output_fd: int
    mark_fd: int

    def close(self) -> None:
        for fd in (self.output_fd, self.mark_fd):
            with suppress(OSError):
                os.close(fd)


class ForkChannel:
    """Blocks where it writes; reads what is there, whatever part of a frame that is."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()
        self._fds: deque[int] = deque()
        self.ended = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, **message: Any) -> None:
        content = json.dumps(message).encode()
        self._connection.sendall(_LENGTH.pack(len(content)) + content)

    def receive(self) -> Iterator[ForkRequest]:
        """The requests that are whole now. Raises `ValueError` for one that is larger than may be."""
        self._read()
        while (content := self._frame()) is not None:
            message = json.loads(content)
            if message.get("ping"):
                self.send(pong=True)
                continue
            output_fd, mark_fd = (self._fds.popleft() for _ in range(FDS))
            yield ForkRequest(message["id"], message["argv"], message["env"], output_fd, mark_fd)

    def is_deserted(self) -> bool:
        """Whether nobody is at the other end any more, though there may still be something to read."""
        poll = select.poll()
        poll.register(self._connection, 0)  # POLLHUP is told without being asked for
        return bool(poll.poll(0))

    def forget(self) -> None:
        """Let nobody close by accident, in a child, what has the number of this socket by then."""
        self._connection.detach()

    def _read(self) -> None:
        room = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
        data, ancillary, *_ = self._connection.recvmsg(_READ, room, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i", content)
                self._fds.extend(fds)
        self._buffer += data
        self.ended = not data

    def _frame(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > MAX_FRAME:
            raise ValueError(f"a frame of {length} bytes")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        content = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return content
