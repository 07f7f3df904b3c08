"""Reads documents as models.

Unknown fields are ignored, because a newer version, which runs beside this one during an upgrade, may write them. A
document that cannot be read does not keep others from being read: it is left out, and noted in the collection
`unreadable`. `/health` counts these notes, and `discoverybot doctor` names the documents. They stay as they are until
an operator repairs them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

import structlog
from bson import decode_all
from pydantic import BaseModel, ValidationError
from pymongo import DESCENDING
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, PyMongoError

from gateway.crash_points import state_change
from gateway.errors import InvalidRequestError, UnreadableError
from gateway.stores.mongo import Document, is_passing

log = structlog.get_logger()
Model = TypeVar("Model")
Kind = TypeVar("Kind", bound=BaseModel)
Reader = Callable[[Document], Model]
#: The collection of notes: one entry per unreadable document, with the id `<collection>/<id>`.
UNREADABLE = "unreadable"
#: The field that marks an unreadable document, so that queries for work do not find it again and again. The mark is
#: removed once the document can be read.
SET_ASIDE = "set_aside"
#: Seconds after which a process notes again a document that it still cannot read.
NOTED_AGAIN = 30.0
#: How many unreadable documents one query skips. If there are more, its result has fewer documents than asked for.
_MOST_PASSED = 1000
#: A page ends with the document that reaches this size. However many values it has, decoding it and encoding it as
#: JSON take less than a tenth of a second each, during which nothing else runs in the process.
PAGE_BYTES = 4 << 20
#: How many documents of a page are asked for at a time, so that few are sent in vain.
_BATCH = 100
#: All errors that reading a document by its fields may raise; `ValidationError` is a `ValueError`.
_PROBLEMS = (ValueError, KeyError, TypeError, AttributeError, OverflowError)


class Unreadable(NamedTuple):
    """A document that cannot be read as its collection's model."""

    collection: str
    id: Any
    problem: str


def reader(kind: type[Kind]) -> Reader[Kind]:
    """A function that reads documents as this model, and ignores unknown fields."""
    return partial(kind.model_validate, extra="ignore")


#: Queries for times after this one find only times: numbers, texts and missing fields sort before it.
NO_TIME = datetime.fromtimestamp(0, UTC)


def moment(value: object) -> datetime:
    """The value, if it is a time. For documents that are read field by field, without a model that checks them.
    Raises `TypeError`.
    """
    if not isinstance(value, datetime):
        raise TypeError("not a time")
    return value


def whole(value: object) -> int:
    """As `moment`, for a number."""
    if not isinstance(value, int):
        raise TypeError("not a number")
    return value


def text(value: object) -> str:
    """As `moment`, for a text."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def problem_of(error: Exception) -> str:
    """The problem in one line, without any value: a value may be secret."""
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__} {error}" if isinstance(error, KeyError) else type(error).__name__
    found = error.errors(include_input=False, include_url=False, include_context=False)
    problems = [f"{'.'.join(map(str, one['loc'])) or 'document'}: {one['msg']}" for one in found[:3]]
    return "; ".join(problems) + (f" (and {len(found) - 3} more)" if len(found) > len(problems) else "")


class Documents(Generic[Model]):
    """A collection, read as models."""

    def __init__(self, collection: Collection[Document], read: Reader[Model]) -> None:
        self.collection = collection
        self._read = read
        self._noted: dict[Any, float] = {}

    def one(self, document: Document) -> Model:
        """The document's model. Raises `UnreadableError`, and notes the document."""
        try:
            return self._read(document)
        except _PROBLEMS as error:
            found = Unreadable(self.collection.name, document.get("_id"), problem_of(error))
            if time.monotonic() - self._noted.get(found.id, float("-inf")) >= NOTED_AGAIN:
                self._try_to_note(found)
                self._noted[found.id] = time.monotonic()
            raise UnreadableError(*found) from error

    def optional(self, document: Document | None) -> Model | None:
        """The document's model; `None` if there is no document, or if it cannot be read."""
        return next(iter(self.many([] if document is None else [document])), None)

    def many(self, documents: Iterable[Document]) -> list[Model]:
        """The models of the documents that can be read."""
        return [model for _, model in self.each(documents) if model is not None]

    def each(self, documents: Iterable[Document]) -> Iterator[tuple[Document, Model | None]]:
        """Each document with its model, or with `None` if it cannot be read."""
        for document in documents:
            try:
                yield document, self.one(document)
            except UnreadableError:
                yield document, None

    def find_one(self, query: Document) -> Model | None:
        """The model of the first document that the query finds. Raises `UnreadableError`."""
        document = self.collection.find_one(query)
        return None if document is None else self.one(document)

    def find(
        self, query: Document, limit: int, sort: Sequence[tuple[str, int]], fields: Document | None = None
    ) -> list[Model]:
        """The first `limit` models that can be read. If some cannot be read, more are read in their place, because
        clients take a shorter list for the last one. `fields`: a projection to the fields that the model needs.
        """
        passed: list[Any] = []
        while True:
            asked = {"$and": [query, {"_id": {"$nin": passed}}]} if passed else query
            found = list(self.each(self.collection.find(asked, fields).sort(list(sort)).limit(limit)))
            unreadable = [document["_id"] for document, model in found if model is None]
            if not unreadable or len(found) < limit or len(passed) >= _MOST_PASSED:
                return [model for _, model in found if model is not None]
            passed += unreadable

    def at_once(self, query: Document, limit: int) -> list[Model] | None:
        """The first `limit` models that can be read; `None` if these are more than a server answers at once: 16 MiB,
        or a single one.
        """
        with self.collection.find_raw_batches(query, limit=limit, batch_size=limit) as answers:
            documents = decode_all(cast("bytes", next(answers, b"")), self.collection.codec_options)
            return self.many(documents) if not answers.alive or len(documents) >= limit else None

    def first(
        self, query: Document, limit: int, sort: Sequence[tuple[str, int]]
    ) -> Iterator[tuple[Document, Model | None]]:
        """As `each`, for the first documents: at most `limit`, and only as many as a page has room for."""
        return self.each(self._answered(query, limit, sort)[0])

    def page(self, query: Document, limit: int, sort: Sequence[tuple[str, int]]) -> list[Model]:
        """The first models, at most `limit`, and fewer if they are large; empty only if there are none."""
        return self.answer(query, limit, sort)[0]

    def answer(self, query: Document, limit: int, sort: Sequence[tuple[str, int]]) -> tuple[list[Model], bool]:
        """The models of `page`, and whether there are fewer than `limit` because they are large."""
        documents, is_all = self._answered(query, limit, sort)
        found = self.many(documents)
        is_whole = len(found) == len(documents) or (found and not is_all)
        return (found, not is_all) if is_whole else (self.find(query, limit, sort), False)

    def _answered(self, query: Document, limit: int, sort: Sequence[tuple[str, int]]) -> tuple[list[Document], bool]:
        """As many of the first `limit` documents as a page has room for, and whether these are all of them. A list of
        `limit` documents may take gigabytes.
        """
        asked = self.collection.find_raw_batches(query, sort=list(sort), limit=limit, batch_size=min(limit, _BATCH))
        found: list[Document] = []
        room = PAGE_BYTES
        with asked:
            for batch in cast("Iterator[bytes]", asked):
                taken = _beginning(batch, room)
                found += decode_all(taken, self.collection.codec_options)
                room -= len(taken)
                if room <= 0 or len(taken) < len(batch):
                    return found, not asked.alive and len(taken) == len(batch)
        return found, True

    def _try_to_note(self, found: Unreadable) -> None:
        try:
            self._note(found)
        except PyMongoError as error:
            if is_passing(error):
                raise
            # the document can be neither read nor noted; the others must be read all the same
            log.warning("unreadable_not_noted", collection=found.collection, document=found.id, error=str(error))

    def _note(self, found: Unreadable) -> None:
        note(self.collection.database, found)


@state_change("unreadable.note")
def note(database: Database[Document], found: Unreadable) -> None:
    """Record an unreadable document in the collection `unreadable`."""
    name = f"{found.collection}/{found.id}"
    noted = {"collection": found.collection, "document": found.id, "problem": found.problem}
    try:
        database[UNREADABLE].update_one({"_id": name}, {"$set": noted}, upsert=True)
    except DuplicateKeyError:
        # another process has just noted the same
        return


def _beginning(documents: bytes, room: int) -> bytes:
    """The first of these encoded documents, up to the one that reaches `room` bytes."""
    end = 0
    while end < min(room, len(documents)):
        # a document begins with its length
        end += int.from_bytes(documents[end : end + 4], "little")
    return documents[:end]


# --- pages of a list that grows at its front. The cursor names the last entry of a page, so that no entry comes twice

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CURSOR = re.compile(r"(\d{1,14})-([0-9a-f]{32})")

NEWEST_FIRST = [("created_at", DESCENDING), ("_id", DESCENDING)]


def page(
    documents: Documents[Model],
    conditions: Sequence[Document],
    limit: int,
    after: str | None,
    *,
    field: str = "created_at",
    identity: str = "id",
) -> tuple[list[Model], str | None]:
    """A page, newest first by `field`, and the cursor of the next page; `None` after the last page. `identity` is the
    models' name for a document's `_id`.

    Raises `InvalidRequestError` if `after` is not such a cursor.
    """
    wanted = [*conditions, *([following(after, field)] if after is not None else [])]
    order = [(field, DESCENDING), ("_id", DESCENDING)]
    found = documents.find({"$and": wanted} if wanted else {}, limit + 1, order)
    if len(found) <= limit:
        return found, None
    last = found[limit - 1]
    return found[:limit], cursor_of(getattr(last, field), getattr(last, identity))


def cursor_of(moment: datetime, identity: str) -> str:
    """The cursor of the entry with this time and id."""
    return f"{(moment - _EPOCH) // timedelta(milliseconds=1)}-{identity}"


def following(cursor: str, field: str = "created_at", *, newest_first: bool = True) -> Document:
    """The condition for the entries after the cursor. Raises `InvalidRequestError` if it is not a cursor."""
    moment, identity = _place(cursor)
    upto, beyond = ("$lte", "$lt") if newest_first else ("$gte", "$gt")
    # the first condition is redundant, but lets MongoDB use an index
    return {field: {upto: moment}, "$or": [{field: {beyond: moment}}, {"_id": {beyond: identity}}]}


def up_to(cursor: str, field: str = "created_at", *, newest_first: bool = True) -> Document:
    """The condition for the cursor's own entry and all entries before it in the list."""
    moment, identity = _place(cursor)
    upto, beyond = ("$gte", "$gt") if newest_first else ("$lte", "$lt")
    return {field: {upto: moment}, "$or": [{field: {beyond: moment}}, {"_id": {upto: identity}}]}


def moment_of(cursor: str) -> datetime:
    """The time in the cursor. Raises `InvalidRequestError`."""
    return _place(cursor)[0]


def _place(cursor: str) -> tuple[datetime, str]:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidRequestError("after", "is not a cursor; use the `next` of the previous page")
    return _EPOCH + timedelta(milliseconds=int(match[1])), match[2]
