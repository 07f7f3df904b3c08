"""Reads a growing log in pieces that are bounded whatever is in it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from gateway.domain.log_line import MAX_LINE, LogEntry, split_entries
from gateway.domain.node_files import read_part
from gateway.tailer.checkpoint import LogPosition


class LogPiece(NamedTuple):
    """Whole entries; `data` is exactly their bytes."""

    entries: list[LogEntry]
    data: bytes
    #: Where they begin, and where to go on.
    start: LogPosition
    end: LogPosition
    #: Whether the file held more than was asked for.
    more: bool


def read_piece(path: Path, start: LogPosition, size: int, log_end: int | None) -> LogPiece:
    """The entries in about `size` bytes from `start` on, of which the last may be long. Without a `log_end` a torn
    last line is left for later; with one it ends there, and nothing after it is read.
    """
    data = read_part(path, start.offset, _bounded(start, size, log_end))
    piece = _split(data, start, size, log_end)
    if not piece.entries and piece.more:
        # a line that is longer than what was asked for: an entry never is longer than this
        data = read_part(path, start.offset, _bounded(start, MAX_LINE, log_end))
        piece = _split(data, start, MAX_LINE, log_end)
    return piece


def cut(piece: LogPiece, minimum: int) -> LogPiece | None:
    """The first entries of `piece` that together have `minimum` bytes; `None` if all of them have not.

    Where a piece is cut depends on the bytes alone: whoever cuts again from the same start, cuts there.
    """
    start = piece.start.offset
    for index, entry in enumerate(piece.entries):
        if entry.end - start >= minimum:
            end = LogPosition(offset=entry.end, level=entry.level)
            more = piece.more or index + 1 < len(piece.entries)
            return LogPiece(piece.entries[: index + 1], piece.data[: entry.end - start], piece.start, end, more)
    return None


def _bounded(start: LogPosition, size: int, log_end: int | None) -> int:
    return size if log_end is None else min(size, log_end - start.offset)


def _split(data: bytes, start: LogPosition, size: int, log_end: int | None) -> LogPiece:
    final = log_end is not None and start.offset + len(data) >= log_end
    entries, level = split_entries(data, start.offset, start.level, final=final)
    end = LogPosition(offset=entries[-1].end if entries else start.offset, level=level)
    return LogPiece(entries, data[: end.offset - start.offset], start, end, more=len(data) == size)
