"""Logs, twice: the live end to Redis, everything to MongoDB. Neither waits for the other."""

from __future__ import annotations

from collections import Counter

from gateway.domain.log_line import MAX_LINE
from gateway.domain.node_files import LOG
from gateway.redis.log_stream import LogStream
from gateway.storage.logs import LogChunk, LogStore
from gateway.tailer.attempt import Attempt
from gateway.tailer.log_reader import LogPiece, cut, read_piece

#: Bytes of log in one write to Redis: some milliseconds' work, so that no log makes another one wait.
LIVE_PIECE = 64 << 10
#: Bytes that Redis may lag behind. What lies further back is left to MongoDB, so that "live" stays live.
MAX_LAG = 4 << 20
#: Bytes of a full chunk in MongoDB. A chunk that has fewer grows with every flush.
CHUNK = 64 << 10
#: Full chunks shipped before other attempts have their turn.
CHUNKS_PER_TURN = 16


class LiveLogShipper:
    def __init__(self, stream: LogStream) -> None:
        self._stream = stream

    def ship(self, attempt: Attempt) -> bool:
        """Ship one piece; whether there may be more. Raises `redis.RedisError`, and then nothing has moved on."""
        if LOG in attempt.checkpoint.lost:
            return False
        log_end = attempt.log_bound
        start = attempt.checkpoint.log_redis
        if attempt.log_size - start.offset > MAX_LAG:
            # read, not jumped over: a line without a head has the level of one that may lie far back
            piece = read_piece(attempt.log_path, start, MAX_LINE, log_end)
        else:
            piece = read_piece(attempt.log_path, start, LIVE_PIECE, log_end)
            if piece.entries:
                self._stream.append(attempt.id, piece.entries)
        attempt.checkpoint.log_redis = piece.end
        return piece.more


class LogShipper:
    """Chunks begin and end where the bytes alone decide: at the first entry that ends `CHUNK` or more bytes after
    the chunk's start. So those of a tailer that was killed, and shipped more than it remembers, are the same.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def ship(self, attempt: Attempt) -> bool:
        """Ship what there is; whether there may be more. Raises PyMongo's errors, having moved on as far as they let.

        To be called twice a second or so: the growing chunk is written anew each time.
        """
        log_end = attempt.log_bound
        for _ in range(CHUNKS_PER_TURN):
            piece = _next_chunk(attempt, log_end)
            if piece.end.offset > attempt.log_stored:
                self._append(attempt, piece)
            if len(piece.data) < CHUNK:
                return False
            attempt.checkpoint.log_mongo = piece.end
        return True

    def is_complete(self, attempt: Attempt) -> bool:
        log_end = attempt.log_end
        return LOG in attempt.checkpoint.lost or (log_end is not None and attempt.log_stored >= log_end)

    def _append(self, attempt: Attempt, piece: LogPiece) -> None:
        start, lines = piece.start, Counter(entry.level for entry in piece.entries)
        self._store.append(LogChunk(*attempt.id, start.offset, piece.end.offset, start.level, piece.data, lines))
        attempt.log_stored = piece.end.offset


def _next_chunk(attempt: Attempt, log_end: int | None) -> LogPiece:
    """The full chunk from the checkpoint on, or whatever there is of it."""
    start = attempt.checkpoint.log_mongo
    piece = read_piece(attempt.log_path, start, 2 * CHUNK, log_end)
    chunk = cut(piece, CHUNK)
    if chunk is None and piece.more:
        piece = read_piece(attempt.log_path, start, CHUNK + MAX_LINE, log_end)
        chunk = cut(piece, CHUNK)
    return chunk or piece
