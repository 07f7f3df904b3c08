"""Lines without a hole between them, ready to be sent."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from gateway.web.event_stream.position import Position

#: Bytes sent in one piece; more than that and a single line goes alone.
CHUNK_BYTES = 256 << 10
#: Places for which the joined chunk is kept: most clients stand at one or two.
_SHARED_CHUNKS = 8


class Chunk(NamedTuple):
    #: Encoded events.
    data: bytes
    #: Offset one past the last line in it.
    end: int


class Run:
    """Lines of one attempt that lie side by side, each encoded once as the event it becomes."""

    def __init__(self, attempt: int, start: int) -> None:
        self.attempt = attempt
        self.start = start
        #: Bytes held.
        self.size = 0
        self._ends: list[int] = []
        self._events: list[bytes] = []
        self._chunks: dict[int, Chunk] = {}

    @property
    def end(self) -> int:
        return self._ends[-1] if self._ends else self.start

    def __len__(self) -> int:
        return len(self._ends)

    def covers(self, position: Position) -> bool:
        """Whether the line that comes next at `position` is held."""
        return self.attempt == position.attempt and self.start <= position.offset < self.end

    def append(self, end: int, event: bytes) -> None:
        self._ends.append(end)
        self._events.append(event)
        self.size += len(event)
        self._chunks.clear()

    def chunk(self, offset: int) -> Chunk:
        """What follows `offset`, up to `CHUNK_BYTES`. Clients at the same place share one object."""
        chunk = self._chunks.get(offset)
        if chunk is None:
            if len(self._chunks) >= _SHARED_CHUNKS:
                self._chunks.clear()
            chunk = self._chunks[offset] = self._join(bisect_right(self._ends, offset))
        return chunk

    def after(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """(end, event) of each line that follows `offset`."""
        index = bisect_right(self._ends, offset)
        return zip(self._ends[index:], self._events[index:], strict=True)

    def _join(self, first: int) -> Chunk:
        stop, size = first + 1, len(self._events[first])
        while stop < len(self._events) and (size := size + len(self._events[stop])) <= CHUNK_BYTES:
            stop += 1
        return Chunk(b"".join(self._events[first:stop]), self._ends[stop - 1])

    def _drop(self, count: int) -> None:
        """Forget the oldest `count` lines."""
        if count:
            self.size -= sum(map(len, self._events[:count]))
            self.start = self._ends[count - 1]
            del self._ends[:count], self._events[:count]
            self._chunks.clear()
