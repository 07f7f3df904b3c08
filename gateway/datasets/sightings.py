"""The items that a run has seen, sorted by the hashes of their keys. They are sorted on disk, so that memory does not
grow with the run.

An external merge sort (Knuth, *The Art of Computer Programming*, volume 3, 5.4): pieces that fit into memory are
sorted and written, then read side by side.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Key hash, position, content hash. Big-endian, so that the bytes sort as the fields do.
_PACKED = struct.Struct(">16sQ16s")
#: How many sightings are sorted in memory: with what Python needs for each, some 5 MB.
PIECE = 50_000
#: Sightings read at a time from each piece.
_READ = 512


class Sighting(NamedTuple):
    """One item of the run."""

    #: 32 hexadecimal digits.
    key_hash: str
    #: The position of the item in the run: a later item replaces an earlier item with the same key.
    position: int
    content_hash: str


class Sightings:
    def __init__(self, folder: Path, piece: int = PIECE) -> None:
        self._folder = folder
        self._piece = piece
        self._buffer: list[bytes] = []
        self._files: list[Path] = []
        #: How many items a later item with the same key has replaced. Complete once `in_order` is read to its end.
        self.repeated = 0

    def add(self, key_hash: str, position: int, content_hash: str) -> None:
        self._buffer.append(_PACKED.pack(bytes.fromhex(key_hash), position, bytes.fromhex(content_hash)))
        if len(self._buffer) >= self._piece:
            self._write()

    def _write(self) -> None:
        self._buffer.sort()
        path = self._folder / f"sightings-{len(self._files)}"
        path.write_bytes(b"".join(self._buffer))
        self._files.append(path)
        self._buffer.clear()

    def in_order(self) -> Iterator[Sighting]:
        """The last sighting of each key, by key hash."""
        self._buffer.sort()
        self.repeated = 0
        last: bytes | None = None
        for packed in heapq.merge(*map(_read, self._files), self._buffer):
            if last is not None and last[:16] == packed[:16]:
                self.repeated += 1
            elif last is not None:
                yield _unpacked(last)
            last = packed
        if last is not None:
            yield _unpacked(last)


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(_PACKED.size * _READ):
            for start in range(0, len(data), _PACKED.size):
                yield data[start : start + _PACKED.size]


def _unpacked(packed: bytes) -> Sighting:
    key, position, content = _PACKED.unpack(packed)
    return Sighting(key.hex(), position, content.hex())
