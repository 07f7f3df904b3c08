"""The record of a crawl's requests: the bytes of each attempt's `requests.jsonl`, in compressed chunks like a log.

A chunk's id has the offset at which it begins. One document for each request would need ten times the space and the
writes. A search reads the whole record; the crawl limits the size of the record.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import Any, Literal, NamedTuple

import orjson
import zstandard
from pymongo import ASCENDING, DESCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.crash_points import state_change
from gateway.stores.documents import Documents
from gateway.stores.mongo import Document, Repeating

#: A chunk never has more bytes than this before compression, so a decompression bomb is refused.
MAX_CHUNK = 1 << 20
#: Chunks read, and deleted, at a time.
_READ_BATCH = 16
_BATCH = 200


class RequestChunk(NamedTuple):
    job_id: str
    attempt: int
    #: Byte offsets in the attempt's `requests.jsonl`; a chunk begins and ends at line boundaries.
    start: int
    end: int
    data: bytes

    @property
    def id(self) -> str:
        return _id(self.job_id, self.attempt, self.start)


class RequestStore:
    def __init__(self, database: Database[Document]) -> None:
        self._requests = database["requests"]
        self._documents = Documents(self._requests, read_chunk)

    @state_change("requests.append")
    def append(self, chunk: RequestChunk) -> None:
        """Store the chunk that begins at `chunk.start`, unless the stored one is as long or longer: a delayed write
        must not replace a longer chunk that was acknowledged since.
        """
        document = {"_id": chunk.id, "end": chunk.end, "data": zstandard.compress(chunk.data, 3)}
        with suppress(DuplicateKeyError):  # the stored chunk is not shorter
            self._requests.replace_one({"_id": chunk.id, "end": {"$lt": chunk.end}}, document, upsert=True)

    def chunks(self, job_id: str, attempt: int | None, since: RequestPlace | None = None) -> Iterator[RequestChunk]:
        """The chunks in order, from the one with `since` on; of all attempts if `attempt` is `None`."""
        first, end = _range(job_id, attempt)
        if since is not None:
            at = {"_id": {"$gte": first, "$lte": _id(job_id, *since)}}
            last = self._requests.find_one(at, {"_id": 1}, sort=[("_id", DESCENDING)])
            first = last["_id"] if last else first
        after = "$gte"
        while found := self._documents.find({"_id": {after: first, "$lt": end}}, _READ_BATCH, [("_id", ASCENDING)]):
            yield from found
            first, after = found[-1].id, "$gt"

    def has_any(self, job_id: str) -> bool:
        first, end = _range(job_id, None)
        return self._requests.find_one({"_id": {"$gte": first, "$lt": end}}, {"_id": 1}) is not None

    @state_change("requests.delete")
    def delete(self, *job_ids: str) -> None:
        Repeating(self._requests).delete_of_jobs(job_ids, _BATCH)


def _id(job_id: str, attempt: int, start: int) -> str:
    return f"{job_id}:{attempt:04d}:{start:015d}"


def _range(job_id: str, attempt: int | None) -> tuple[str, str]:
    """A half-open interval of ids that has all ids with the prefix: `;` is the character after `:`."""
    prefix = f"{job_id}:" if attempt is None else f"{job_id}:{attempt:04d}:"
    return prefix, prefix[:-1] + ";"


def read_chunk(document: Document) -> RequestChunk:
    job_id, attempt, start = document["_id"].split(":")
    try:
        data = zstandard.decompress(document["data"], max_output_size=MAX_CHUNK)
    except zstandard.ZstdError as error:
        raise ValueError("damaged") from error
    if len(data) > MAX_CHUNK:
        raise ValueError("too large")
    return RequestChunk(job_id, int(attempt), int(start), int(document["end"]), data)


# --- queries on a record

Facts = dict[str, Any]
#: The facts of a request in the order of a table's columns: name, type, and the default if a line does not have it.
_KNOWN: tuple[tuple[str, type, Any], ...] = (
    ("url", str, ""),
    ("status", int, None),
    ("ms", int, None),
    ("bytes", int, None),
    ("cached", bool, False),
    ("failed", bool, False),
    ("reason", str, None),
    ("code", str, None),
    ("redirected_to", str, None),
    ("retries", int, 0),
    ("parent", str, None),
    ("attempt", int, 1),
    ("at", int, None),
)
#: The end of the last year of `datetime`, in milliseconds since the epoch, like the times in a record.
_END_OF_TIME = 253_402_300_800_000
COLUMNS = tuple(name for name, _, _ in _KNOWN)
Sort = Literal["at", "-ms", "-bytes"]


class RequestPlace(NamedTuple):
    """The place of a request: the attempt whose record has its line, and the offset at which the line ends."""

    attempt: int
    end: int


class Recorded(NamedTuple):
    place: RequestPlace
    facts: Facts


class RequestFilter(NamedTuple):
    """Which requests are wanted. A field that is `None` is no condition."""

    failed: bool | None = None
    redirected: bool | None = None
    cached: bool | None = None
    slow_ms: int | None = None
    #: The first and the last status of a range.
    status: tuple[int, int] | None = None
    code: str | None = None
    #: Text in the URL, or in the URL of the redirection; case does not matter.
    q: str | None = None

    def takes(self, facts: Facts) -> bool:
        return (
            self.failed in (None, facts["failed"])
            and self.redirected in (None, facts["redirected_to"] is not None)
            and self.cached in (None, facts["cached"])
            and self.code in (None, facts["code"])
            and (self.slow_ms is None or (facts["ms"] or 0) >= self.slow_ms)
            and (self.status is None or self.status[0] <= (facts["status"] or 0) <= self.status[1])
            and (self.q is None or self._is_in(facts, self.q.casefold()))
        )

    def _is_in(self, facts: Facts, text: str) -> bool:
        return text in facts["url"].casefold() or text in (facts["redirected_to"] or "").casefold()


class Cursor(NamedTuple):
    """The last request of a page."""

    place: RequestPlace
    #: The value by which the requests are sorted; `None` if they are in the order of time.
    value: int | None = None


class RequestsFound(NamedTuple):
    requests: list[Recorded]
    #: The cursor of the next page; `None` on the last page.
    next: Cursor | None
    #: How many requests this page has read, without those of earlier pages.
    looked_at: int


class Question(NamedTuple):
    """The query for a page of a record: in the order of time (`at`), or with the largest values first."""

    wanted: RequestFilter
    sort: Sort
    after: Cursor | None
    limit: int

    @property
    def field(self) -> str:
        return self.sort.removeprefix("-")


#: A page in the order of time ends early after `SECONDS`. The time is checked after each `LOOKED_AT_ONCE` requests.
SECONDS = 2.0
LOOKED_AT_ONCE = 500


def find_requests(store: RequestStore, job_id: str, attempt: int | None, question: Question) -> RequestsFound:
    """A page of requests. Memory holds this page and one batch of chunks. In the order of time, a page can end early,
    and its cursor goes on. For any other order, the whole record is read.

    With `attempt`: the requests in the record of this attempt, which include those of earlier attempts if it
    continued them. Without: the requests of all attempts, each request once.
    """
    if question.sort == "at":
        return _next(recorded(store, job_id, attempt, question.after.place if question.after else None), question)
    lines, looked_at = recorded(store, job_id, attempt, None), count()
    wanted = (one for one, _ in zip(lines, looked_at, strict=False) if question.wanted.takes(one.facts))
    page = _largest(wanted, question, question.limit + 1)
    looked = next(looked_at) if not question.after else 0
    if len(page) <= question.limit:
        return RequestsFound(page, None, looked)
    last = page[question.limit - 1]
    return RequestsFound(page[: question.limit], Cursor(last.place, _value(last, question.field)), looked)


def _next(lines: Iterator[Recorded], question: Question) -> RequestsFound:
    """The next of them in the order of time."""
    page, looked, began = list[Recorded](), 0, time.monotonic()
    for looked, one in enumerate(lines, 1):
        if question.wanted.takes(one.facts):
            if len(page) == question.limit:
                return RequestsFound(page, Cursor(page[-1].place), looked)
            page.append(one)
        if looked % LOOKED_AT_ONCE == 0 and time.monotonic() - began > SECONDS:
            return RequestsFound(page, Cursor(one.place), looked)
    return RequestsFound(page, None, looked)


def _largest(found: Iterator[Recorded], question: Question, most: int) -> list[Recorded]:
    after = question.after
    beyond = (-(after.value or 0), after.place) if after else None
    ranked = (((-_value(one, question.field), one.place), one) for one in found)
    return [one for _, one in heapq.nsmallest(most, (pair for pair in ranked if beyond is None or pair[0] > beyond))]


def _value(one: Recorded, name: str) -> int:
    """The value to sort by; -1, which comes last, for a request that was not sent or not answered."""
    value: int | None = one.facts[name]
    return -1 if value is None else value


def recorded(
    store: RequestStore, job_id: str, attempt: int | None, after: RequestPlace | None = None
) -> Iterator[Recorded]:
    """All requests after a place, one after the other, chosen by `attempt` as in `find_requests`."""
    for chunk in store.chunks(job_id, attempt, after):
        end = chunk.start
        for line in chunk.data.splitlines(keepends=True):
            end += len(line)
            place = RequestPlace(chunk.attempt, end)
            if after is not None and place <= after:
                continue
            facts = read_line(line)
            if facts and (attempt is not None or facts["attempt"] == chunk.attempt):
                yield Recorded(place, facts)


def read_line(line: bytes) -> Facts | None:
    """The request in a line; `None` if the line is not a request, because the spider's code may
    write anything there.
    """
    try:
        found = orjson.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or type(found.get("url")) is not str:
        return None
    if type(at := found.get("at")) is not int or not 0 <= at < _END_OF_TIME:
        found["at"] = None
    return {name: value if type(value := found.get(name)) is kind else other for name, kind, other in _KNOWN}
