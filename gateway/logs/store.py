"""Logs: the bytes of each attempt's log in compressed chunks, so that no reader needs the node for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

import redis
import zstandard
from attrs import define, field
from pymongo import ASCENDING, DESCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.contract.log_line import LogEntry
from gateway.contract.outbox import AttemptId
from gateway.contract.records import Progress
from gateway.contract.redis_keys import job_channel, log_stream
from gateway.crash_points import state_change
from gateway.jobs.messages import log_event, progress_event
from gateway.stores.mongo import Document

#: A chunk is never larger than this before compression, so a bomb cannot hide in one.
MAX_CHUNK = 4 << 20
#: Chunks deleted at a time.
_BATCH = 200


class LogChunk(NamedTuple):
    job_id: str
    attempt: int
    #: Byte offsets in the attempt's log; a chunk begins and ends at line boundaries.
    start: int
    end: int
    #: Level in force at `start`, for lines that have none of their own.
    head_level: str
    data: bytes
    #: How many lines of each level it holds; empty if that was not stored.
    lines: Mapping[str, int] = MappingProxyType({})


class LogStore:
    def __init__(self, database: Database[Document]) -> None:
        self._logs = database["logs"]

    @state_change("logs.append")
    def append(self, chunk: LogChunk) -> None:
        """Store the chunk that begins at `chunk.start`, unless the stored one is as long or longer: a write that was
        delayed on its way must not take back what was acknowledged since.
        """
        document = {
            "_id": f"{_prefix(chunk.job_id, chunk.attempt)}{chunk.start:015d}",
            "end": chunk.end,
            "head_level": chunk.head_level,
            "data": zstandard.compress(chunk.data, 3),
            "lines": dict(chunk.lines),
        }
        with suppress(DuplicateKeyError):  # the stored chunk is not shorter
            self._logs.replace_one({"_id": document["_id"], "end": {"$lt": chunk.end}}, document, upsert=True)

    def read(self, job_id: str, attempt: int, position: int, limit: int = 1 << 20) -> list[LogChunk]:
        """Adjoining chunks from the one that holds byte `position` on, until they make `limit` bytes; at least one if
        there is any. If that byte is not stored, they begin behind it.
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

    def end(self, job_id: str, attempt: int) -> int:
        """Byte offset one past the last stored byte; 0 if nothing is stored."""
        prefix = _prefix(job_id, attempt)
        query = {"_id": {"$gt": prefix, "$lt": f"{prefix[:-1]};"}}
        last = self._logs.find_one(query, {"end": 1}, sort=[("_id", DESCENDING)])
        return 0 if last is None else int(last["end"])

    @state_change("logs.delete")
    def delete(self, job_id: str) -> None:
        """Delete in batches: other writes must not wait until a gigabyte is deleted."""
        query = {"_id": {"$gt": f"{job_id}:", "$lt": f"{job_id};"}}
        while ids := [found["_id"] for found in self._logs.find(query, {"_id": 1}).sort("_id", 1).limit(_BATCH)]:
            self._logs.delete_many({"_id": {"$gte": ids[0], "$lte": ids[-1]}})


def _adjoining(chunks: list[LogChunk]) -> int:
    """How many chunks adjoin. A gap means that the chunk before it has grown since it was read."""
    for number, (left, right) in enumerate(pairwise(chunks), start=1):
        if right.start > left.end:
            return number
    return len(chunks)


def _prefix(job_id: str, attempt: int) -> str:
    return f"{job_id}:{attempt:04d}:"


def _chunk(document: Document) -> LogChunk:
    job_id, attempt, start = document["_id"].split(":")
    data = zstandard.decompress(document["data"], max_output_size=MAX_CHUNK + (1 << 20))
    end, lines = int(document["end"]), document.get("lines", {})
    return LogChunk(job_id, int(attempt), int(start), end, document["head_level"], data, lines)


# --- the live end of every log: a stream per attempt for new readers, a channel for readers who are connected

#: Entries that a stream keeps, roughly; readers get older ones from MongoDB.
MAX_ENTRIES = 20_000
#: Bytes that a stream keeps, roughly: it keeps fewer entries if they are long.
MAX_BYTES = 32 << 20
#: Entries that a stream keeps even if their lines have the greatest length.
MIN_ENTRIES = 16
_NOT_NEWER = "equal or smaller than the target stream top item"


@define(eq=False, repr=False, slots=False)
class LogStream:
    """All methods raise `redis.RedisError`; repeating any of them changes nothing that a reader could see."""

    _redis: redis.Redis = field(alias="client")
    #: Seconds a stream lives after its last line.
    _ttl: int

    @state_change("log_stream.append")
    def append(self, attempt_id: AttemptId, entries: Sequence[LogEntry]) -> None:
        """Add `entries`, in order, and publish them. Entries that the stream already has are published again, because
        it is not known whether they were published before; readers go by the positions of entries.
        """
        key = log_stream(*attempt_id)
        limit = _max_entries(entries)
        with self._redis.pipeline(transaction=False) as pipeline:
            for entry in entries:
                name = f"{attempt_id.attempt}-{entry.end}"
                pipeline.xadd(key, {"s": entry.start, "d": entry.to_json()}, id=name, maxlen=limit, approximate=True)
            # each write renews the time to live: a key that was lost and made anew has lost it as well
            pipeline.expire(key, self._ttl)
            pipeline.publish(job_channel(attempt_id.job_id), log_event(attempt_id.attempt, list(entries)))
            answers = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, redis.RedisError) and _NOT_NEWER not in str(answer):
                raise answer

    @state_change("log_stream.publish_progress")
    def publish_progress(self, attempt_id: AttemptId, progress: Progress) -> None:
        self._redis.publish(job_channel(attempt_id.job_id), progress_event(attempt_id.attempt, progress))


def _max_entries(entries: Sequence[LogEntry]) -> int:
    """As many entries as fit into `MAX_BYTES` if all were as long as these."""
    size = entries[-1].end - entries[0].start
    return max(MIN_ENTRIES, min(MAX_ENTRIES, MAX_BYTES * len(entries) // max(size, 1)))
