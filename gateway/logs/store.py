"""Stores the log of each attempt in compressed chunks, so that readers do not need the node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, pairwise
from types import MappingProxyType
from typing import NamedTuple, cast

import orjson
import redis
import zstandard
from attrs import define, field
from pymongo import ASCENDING, DESCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.contract.log_line import LogEntry, Position
from gateway.contract.outbox import AttemptId
from gateway.contract.records import Progress
from gateway.crash_points import state_change
from gateway.jobs.messages import log_event, progress_event
from gateway.logs.volume import LevelLines, LogVolume, coarsened
from gateway.stores.mongo import Document, Repeating, of_job
from gateway.stores.redis import job_channel, log_stream

#: Maximum number of bytes of a chunk before compression. Larger ones are not decompressed: they may be decompression
#: bombs.
MAX_CHUNK = 4 << 20
#: Chunks deleted, or read, at a time.
_BATCH = 200
#: Outlines read at a time.
_OUTLINED = 5000


#: Number of lines by logger (empty for lines without one) and level.
LineCounts = Mapping[tuple[str, str], int]
#: Maximum number of pairs of logger and level for which a chunk's counts are stored: a spider may use any number of
#: names.
_MAX_COUNTS = 100


class LogChunk(NamedTuple):
    """A part of an attempt's log, as one document stores it."""

    job_id: str
    attempt: int
    #: Byte offsets in the attempt's log; a chunk begins and ends at line boundaries.
    start: int
    end: int
    #: Level of the line before `start`, for lines that have none of their own.
    head_level: str
    data: bytes
    #: Logger of the line before `start`, for lines that have none of their own; `None` if it is not known.
    head_logger: str | None = None
    #: How many lines of each logger and level it has; empty if this was not stored.
    lines: LineCounts = MappingProxyType({})
    #: How many lines were written when. Set for storing a chunk; not read with it.
    volume: LogVolume | None = None


class ChunkOutline(NamedTuple):
    """A chunk without its bytes."""

    position: Position
    #: Offset one past its last byte.
    end: int
    lines: LineCounts


def count_lines(entries: Iterable[LogEntry], head_logger: str | None) -> LineCounts:
    """Count entries by logger and level. A line without a head counts for the logger of the line that it continues,
    or for `head_logger` if it is among the first.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        head_logger = head_logger if entry.cont else entry.logger
        counts[head_logger or "", entry.level] += 1
    return counts


class LogStore:
    """The collection `logs`."""

    def __init__(self, database: Database[Document]) -> None:
        self._logs = database["logs"]

    @state_change("logs.append")
    def append(self, chunk: LogChunk) -> None:
        """Store the chunk that begins at `chunk.start`, unless the stored chunk is as long or longer: a delayed write
        must not undo a later one that was acknowledged.
        """
        document = {
            "_id": _id(chunk.job_id, Position(chunk.attempt, chunk.start)),
            "end": chunk.end,
            "head_level": chunk.head_level,
            "head_logger": chunk.head_logger,
            "data": zstandard.compress(chunk.data, 3),
            "counts": _stored_counts(chunk.lines),
        }
        if chunk.volume is not None:
            document["volume"] = zstandard.compress(
                orjson.dumps([chunk.volume.step, list(map(list, chunk.volume.parts))])
            )
        with suppress(DuplicateKeyError):  # the stored chunk is not shorter
            self._logs.replace_one({"_id": document["_id"], "end": {"$lt": chunk.end}}, document, upsert=True)

    def read(self, job_id: str, attempt: int, position: int, limit: int = 1 << 20) -> list[LogChunk]:
        """Adjoining chunks, beginning with the one that contains byte `position`, until they have `limit` bytes
        together; at least one if there is any. If that byte is not stored, they begin after it.
        """
        chunks = self._read(job_id, attempt, position, limit)
        if chunks and chunks[0].start > position:
            # the chunk before may have grown past `position` between the two queries; reading again finds it
            chunks = self._read(job_id, attempt, position, limit)
        return chunks[: _adjoining(chunks)]

    def _read(self, job_id: str, attempt: int, position: int, limit: int) -> list[LogChunk]:
        prefix = _prefix(job_id, attempt)
        at = f"{prefix}{position:015d}"
        before = self._logs.find({"_id": {"$gt": prefix, "$lte": at}}).sort("_id", DESCENDING).limit(1)
        chunks = [_chunk(document) for document in before if document["end"] > position]
        size = sum(len(chunk.data) for chunk in chunks)
        after = self._logs.find({"_id": {"$gt": at, "$lt": f"{prefix[:-1]};"}}).sort("_id", ASCENDING).batch_size(20)
        with after:
            while size < limit and (document := next(after, None)) is not None:
                chunks.append(_chunk(document))
                size += len(chunks[-1].data)
        return chunks

    def outline(self, job_id: str) -> list[ChunkOutline]:
        """All chunks of all attempts, in order. If a chunk grows while this reads, there may be a gap after it."""
        found = self._logs.find(of_job(job_id), {"end": 1, "counts": 1}).sort("_id", ASCENDING).batch_size(_OUTLINED)
        return [_outline(document) for document in found]

    def volume(self, job_id: str, attempt: int) -> LogVolume:
        """The volume of the attempt's log, without chunks that an older release stored without a volume."""
        prefix = _prefix(job_id, attempt)
        query = {"_id": {"$gt": prefix, "$lt": f"{prefix[:-1]};"}, "volume": {"$gt": b""}}
        with self._logs.find(query, {"volume": 1}, batch_size=_OUTLINED) as found:
            each = [_volume(one["volume"]) for one in found]
        return coarsened(chain.from_iterable(one.parts for one in each), max((one.step for one in each), default=1))

    def chunks(self, job_id: str, since: Position, until: Position) -> Iterator[LogChunk]:
        """The chunks that begin at `since` or later, and before `until`, in order."""
        query = {"_id": {"$gte": _id(job_id, since), "$lt": _id(job_id, until)}}
        before: LogChunk | None = None
        with self._logs.find(query).sort("_id", ASCENDING).batch_size(_BATCH) as documents:
            for chunk in map(_chunk, documents):
                if before is not None:
                    yield self._grown(before, chunk)
                before = chunk
        if before is not None:
            yield before

    def _grown(self, chunk: LogChunk, following: LogChunk) -> LogChunk:
        """The chunk, read again if there is a gap before `following`: then it has grown since it was read."""
        if chunk.attempt != following.attempt or chunk.end >= following.start:
            return chunk
        return self.chunk_at(chunk.job_id, Position(chunk.attempt, chunk.start)) or chunk

    def chunk_at(self, job_id: str, position: Position) -> LogChunk | None:
        """The chunk that begins at this position; `None` if there is none."""
        found = self._logs.find_one({"_id": _id(job_id, position)})
        return None if found is None else _chunk(found)

    def end(self, job_id: str, attempt: int) -> int:
        """Byte offset one past the last stored byte; 0 if nothing is stored."""
        prefix = _prefix(job_id, attempt)
        query = {"_id": {"$gt": prefix, "$lt": f"{prefix[:-1]};"}}
        last = self._logs.find_one(query, {"end": 1}, sort=[("_id", DESCENDING)])
        return 0 if last is None else int(last["end"])

    @state_change("logs.delete")
    def delete(self, *job_ids: str) -> None:
        Repeating(self._logs).delete_of_jobs(job_ids, _BATCH)


def _adjoining(chunks: list[LogChunk]) -> int:
    """How many of the first chunks adjoin. A gap means that the chunk before it has grown since it was read."""
    for number, (left, right) in enumerate(pairwise(chunks), start=1):
        if right.start > left.end:
            return number
    return len(chunks)


def _id(job_id: str, position: Position) -> str:
    return f"{_prefix(job_id, position.attempt)}{position.offset:015d}"


def _prefix(job_id: str, attempt: int) -> str:
    return f"{job_id}:{attempt:04d}:"


def _chunk(document: Document) -> LogChunk:
    job_id, attempt, start = document["_id"].split(":")
    data = zstandard.decompress(document["data"], max_output_size=MAX_CHUNK + (1 << 20))
    head_level, head_logger = document["head_level"], document.get("head_logger")
    lines = _counts(document)
    return LogChunk(job_id, int(attempt), int(start), int(document["end"]), head_level, data, head_logger, lines)


def _outline(document: Document) -> ChunkOutline:
    _, attempt, start = document["_id"].split(":")
    return ChunkOutline(Position(int(attempt), int(start)), int(document["end"]), _counts(document))


def _volume(stored: bytes) -> LogVolume:
    step, parts = orjson.loads(zstandard.decompress(stored, max_output_size=1 << 20))
    return LogVolume(step, [LevelLines(*one) for one in parts])


def _stored_counts(lines: LineCounts) -> list[tuple[str, str, int]]:
    return [(*pair, count) for pair, count in lines.items()] if len(lines) <= _MAX_COUNTS else []


def _counts(document: Document) -> LineCounts:
    return {(logger, level): count for logger, level, count in document.get("counts", ())}


# --- the live end of each log: a Redis stream per attempt for new readers, a channel for connected readers

#: About how many entries a stream keeps; readers get older ones from MongoDB.
MAX_ENTRIES = 20_000
#: About how many bytes a stream keeps: it keeps fewer entries if they are long.
MAX_BYTES = 32 << 20
#: How many entries a stream keeps even if their lines have the maximum length.
MIN_ENTRIES = 16
#: Errors of Redis that are ignored: the stream already has the entry, or its key has another type until it expires.
#: Connected readers get the entry by the channel, and later readers find it in MongoDB.
_IN_THE_WAY = ("equal or smaller than the target stream top item", "WRONGTYPE")


@define(eq=False, repr=False, slots=False)
class LogStream:
    """The live end of logs in Redis. All methods raise `redis.RedisError`. They can be repeated: readers ignore
    entries that they have already.
    """

    _redis: redis.Redis = field(alias="client")
    #: Seconds a stream lives after its last line.
    _ttl: int

    @state_change("log_stream.append")
    def append(self, attempt_id: AttemptId, entries: Sequence[LogEntry]) -> None:
        """Add `entries`, in order, and publish them. Entries that the stream already has are published again, because
        it is not known whether they were published before; readers recognize them by their positions.
        """
        key, limit = log_stream(*attempt_id), _max_entries(entries)
        each = [entry.to_json() for entry in entries]
        with self._redis.pipeline(transaction=False) as pipeline:
            for entry, data in zip(entries, each, strict=True):
                name = f"{attempt_id.attempt}-{entry.end}"
                # not by `xadd`, because its checks of the arguments take a tenth of the time
                pipeline.execute_command(  # type: ignore[no-untyped-call]  # redis-py's
                    "XADD", key, "MAXLEN", "~", limit, name, "s", entry.start, "d", data
                )
            # at each write, because a key that was lost and is made again would never expire
            pipeline.expire(key, self._ttl)
            pipeline.publish(job_channel(attempt_id.job_id), log_event(attempt_id.attempt, entries, each))
            answers = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, redis.RedisError) and not any(known in str(answer) for known in _IN_THE_WAY):
                raise answer

    @state_change("log_stream.publish_progress")
    def publish_progress(self, attempt_id: AttemptId, progress: Progress) -> None:
        self._redis.publish(job_channel(attempt_id.job_id), progress_event(attempt_id.attempt, progress))


def _max_entries(entries: Sequence[LogEntry]) -> int:
    """How many entries fit into `MAX_BYTES` if all are as long as these are on average."""
    size = entries[-1].end - entries[0].start
    return max(MIN_ENTRIES, min(MAX_ENTRIES, MAX_BYTES * len(entries) // max(size, 1)))


def live_entries(client: redis.Redis, attempt_id: AttemptId, offset: int) -> list[LogEntry]:
    """The adjoining entries of the stream from byte `offset` of the log on; empty if the stream begins later.

    Raises `redis.RedisError`.
    """
    first = f"({attempt_id.attempt}-{offset}"
    found = client.xrange(log_stream(*attempt_id), first, "+", MAX_ENTRIES)
    entries: list[LogEntry] = []
    for name, fields in cast("list[tuple[bytes, dict[bytes, bytes]]]", found):
        start, end = int(fields[b"s"]), int(name.partition(b"-")[2])
        if start > offset:
            break
        entries.append(LogEntry.from_json(start, end, fields[b"d"]))
        offset = end
    return entries
