"""Ships an attempt's log twice: the live end to Redis, everything to MongoDB. Neither waits for the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gateway.contract import outbox as files
from gateway.contract.log_line import MAX_LINE, LogEntry, end_of_entries, split_entries, survey
from gateway.logs.store import LineCounts, LogChunk, LogStore, LogStream
from gateway.logs.volume import volume_of
from gateway.tailer.outbox import AttemptFolder, LogPosition


class LogPiece(NamedTuple):
    """Complete entries; `data` is exactly their bytes. Use `entries` only to ship them singly: a piece of empty lines
    has as many entries as bytes.
    """

    data: bytes
    lines: LineCounts
    #: The position of the first entry, and the position at which the next piece begins.
    start: LogPosition
    end: LogPosition
    #: Whether there may be more.
    more: bool
    #: As in `Survey`.
    times: Mapping[tuple[bytes, str], tuple[int, int]]

    @property
    def entries(self) -> list[LogEntry]:
        return split_entries(self.data, self.start.offset, self.start.level, final=True)[0]


def read_piece(path: Path, start: LogPosition, size: int, log_end: int | None, most: int | None = None) -> LogPiece:
    """The entries in about `size` bytes from `start` on, at most `most` lines; the last entry may exceed `size`.
    Without a `log_end`, an incomplete last line is left for later. With a `log_end`, the last line ends there, and
    later bytes are not read.
    """
    # a second try with `MAX_LINE`, because a line may be longer than `size`, but an entry is never longer than that
    for size_read in (size, MAX_LINE):
        data, final = _read(path, start, size_read, log_end)
        end = end_of_entries(data, len(data) if size_read == size else 1, final=final)
        more = len(data) == size_read
        if end or not more:
            break
    if most is not None and len(parts := data[:end].split(b"\n", most)) > most and parts[-1]:
        end, more = end - len(parts[-1]), True
    return _piece(data[:end], start, more=more)


def read_chunk(path: Path, start: LogPosition, least: int, log_end: int | None) -> LogPiece:
    """The entries from `start` on, up to the first entry that ends `least` or more bytes after it; all entries if
    there are fewer bytes. Only the bytes decide where the chunk ends, so two chunks with the same start are the same.
    """
    for size in (2 * least, least + MAX_LINE):
        data, final = _read(path, start, size, log_end)
        end = end_of_entries(data, least, final=final)
        more = len(data) == size
        if end >= least or not more:
            break
    return _piece(data[:end], start, more=more or end < len(data))


def _read(path: Path, start: LogPosition, size: int, log_end: int | None) -> tuple[bytes, bool]:
    """Up to `size` bytes from `start` on, and whether the log ends with them."""
    data = files.read_part(path, start.offset, size if log_end is None else min(size, log_end - start.offset))
    return data, log_end is not None and start.offset + len(data) >= log_end


def _piece(data: bytes, start: LogPosition, *, more: bool) -> LogPiece:
    found = survey(data, start.level, start.logger)
    end = LogPosition(offset=start.offset + len(data), level=found.level, logger=found.logger)
    return LogPiece(data, found.lines, start, end, more, found.times)


#: One write to Redis has at most this many bytes, and lines, of a log. It takes a few milliseconds, so that other
#: logs do not wait.
LIVE_PIECE, LIVE_LINES = 64 << 10, 1000
#: The live log may lag behind by at most this many bytes. Older lines are not sent to Redis, so that the live log
#: stays live; MongoDB has them.
MAX_LAG = 4 << 20
#: A chunk in MongoDB is complete with this many bytes. Until then, each flush extends it.
CHUNK = 64 << 10
#: After this many complete chunks, it is another attempt's turn.
CHUNKS_PER_TURN = 16


def ship_live_log(stream: LogStream, attempt: AttemptFolder) -> bool:
    """Ship one piece. Returns whether there may be more. Raises `redis.RedisError`; the checkpoint
    is unchanged then.
    """
    if files.LOG in attempt.checkpoint.lost:
        return False
    log_end = attempt.log_bound
    start = attempt.checkpoint.log_redis
    if attempt.log_size - start.offset > MAX_LAG:
        # the skipped lines are read all the same, because a line without a head has the level of an earlier line
        piece = read_piece(attempt.log_path, start, MAX_LINE, log_end)
    else:
        piece = read_piece(attempt.log_path, start, LIVE_PIECE, log_end, LIVE_LINES)
        if piece.data:
            stream.append(attempt.id, piece.entries)
    attempt.checkpoint.log_redis = piece.end
    return piece.more


def ship_log(store: LogStore, attempt: AttemptFolder) -> bool:
    """Ship new entries. Returns whether there may be more. Raises PyMongo's errors; chunks that were shipped before
    the error count.

    Only the bytes decide where a chunk ends: at the first entry that ends `CHUNK` or more bytes after the chunk's
    start. So a tailer that was killed before it saved its checkpoint makes the same chunks again. To be called about
    twice a second, because the growing chunk is rewritten each time.
    """
    log_end = attempt.log_bound
    for _ in range(CHUNKS_PER_TURN):
        piece = read_chunk(attempt.log_path, attempt.checkpoint.log_mongo, CHUNK, log_end)
        start, end = piece.start, piece.end.offset
        if end > attempt.log_stored:
            chunk = LogChunk(*attempt.id, start.offset, end, start.level, piece.data, start.logger, piece.lines)
            store.append(chunk._replace(volume=volume_of(piece.times, start.offset)))
            attempt.log_stored = end
        if len(piece.data) < CHUNK:
            return False
        attempt.checkpoint.log_mongo = piece.end
    return True
