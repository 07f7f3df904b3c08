"""How full the fields of a crawl's items are. Each item is counted once: the counts are stored, and the next round
continues after the last item.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from attrs import Factory, define
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.crash_points import state_change
from gateway.errors import JobNotFoundError
from gateway.items.formats import as_json
from gateway.items.items import ItemStore
from gateway.jobs.store import JobStore
from gateway.stores.documents import Documents
from gateway.stores.mongo import Document

#: At most this many fields are counted, including inner ones. If there are more, the names are more likely data.
MAX_FIELDS = 300
#: Fields with longer names are not counted; longer examples are cut. Both in characters.
MAX_NAME = 200
MAX_EXAMPLE = 120
#: Seconds after which one round of counting stops; the next round goes on.
LOOK_SECONDS = 3.0
#: If fewer items than this were counted, and there are more, their shares say nothing about the run.
SAMPLE = 50

#: One name, or two for a field of an object: `("seller", "name")`.
Path = tuple[str, ...]
#: The types of JSON Schema.
_TYPES = {
    str: "string", bool: "boolean", int: "integer", float: "number",
    list: "array", dict: "object", type(None): "null",
}  # fmt: skip


@define
class FieldCount:
    """One field."""

    #: How many items fill it: with a value that is not null, a blank text, or an empty list or object.
    filled: int = 0
    #: By type of JSON Schema: how many values have it.
    types: dict[str, int] = Factory(dict)
    #: The first value that is not empty, as JSON, cut.
    example: str | None = None

    def add(self, value: Any) -> None:
        kind = _type(value)
        self.types[kind] = self.types.get(kind, 0) + 1
        if is_filled(value):
            self.filled += 1
            if self.example is None:
                self.example = _example(value)


def _type(value: Any) -> str:
    # BSON's large integers have a class that is not in `_TYPES`
    return _TYPES.get(type(value)) or ("integer" if isinstance(value, int) else "string")


def is_filled(value: Any) -> bool:
    """Whether a value fills its field, by the rule of a crawl's expectations (`crawler/report/progress.py`)."""
    if isinstance(value, str):
        return bool(value.strip())
    return value is not None and not (isinstance(value, list | dict) and not value)


def _example(value: Any) -> str:
    text = as_json(value[:MAX_EXAMPLE] if isinstance(value, str) else value).decode()
    return text if len(text) <= MAX_EXAMPLE else text[: MAX_EXAMPLE - 1] + "…"


@define
class FieldCounts:
    """The fields of the first items of an attempt."""

    job_id: str
    attempt: int
    #: How many items were counted, and the id of the last one.
    items: int = 0
    last: str | None = None
    #: Whether there are fields that are not counted, because there are too many or their names are too long.
    has_more: bool = False
    _fields: dict[Path, FieldCount] = Factory(dict)
    #: Whether all items that existed at that time were counted.
    is_complete: bool = False

    @property
    def is_enough(self) -> bool:
        """Whether its shares say something about the whole run."""
        return self.items > 0 and (self.is_complete or self.items >= SAMPLE)

    def add(self, row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            self._add((name,), value)
            for inner, inner_value in value.items() if isinstance(value, dict) else ():
                self._add((name, inner), inner_value)

    def _add(self, path: Path, value: Any) -> None:
        found = self._fields.get(path)
        if found is None:
            if len(self._fields) >= MAX_FIELDS or max(map(len, path)) > MAX_NAME:
                self.has_more = True
                return
            found = self._fields[path] = FieldCount()
        found.add(value)

    def __iter__(self) -> Iterator[tuple[Path, FieldCount]]:
        """The fields in the order in which they appeared; the fields of an object follow it."""
        places = {path[0]: place for place, path in reversed(list(enumerate(self._fields)))}
        return iter(sorted(self._fields.items(), key=lambda found: places[found[0][0]]))

    def filled(self, path: Path) -> int:
        found = self._fields.get(path)
        return found.filled if found else 0

    def to_document(self) -> Document:
        fields = [
            {"path": list(map(_storable, path)), "filled": one.filled, "types": one.types, "example": one.example}
            for path, one in self._fields.items()
        ]
        counted = {"items": self.items, "last": self.last, "has_more": self.has_more, "fields": fields}
        return {"_id": _identity(self.job_id, self.attempt), **counted}


def _storable(name: str) -> str:
    """The name without half surrogate pairs, which BSON cannot store."""
    return name.encode("utf-8", "replace").decode()


def _identity(job_id: str, attempt: int) -> str:
    return f"{job_id}:{attempt:04d}"


def read_counts(document: Document) -> FieldCounts:
    job_id, attempt = document["_id"].split(":")
    fields = {
        tuple(one["path"]): FieldCount(int(one["filled"]), dict(one["types"]), one["example"])
        for one in document["fields"]
    }
    counted = int(document["items"]), document["last"], bool(document["has_more"])
    return FieldCounts(job_id, int(attempt), *counted, fields)


class FieldCountStore:
    """`item_fields`: one document for each attempt whose fields a user has asked for. It is deleted
    with the items.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._documents = Documents(database["item_fields"], read_counts)

    def find(self, job_id: str, attempt: int) -> FieldCounts | None:
        return self._documents.optional(self._documents.collection.find_one({"_id": _identity(job_id, attempt)}))

    @state_change("item_fields.keep")
    def keep(self, counts: FieldCounts) -> None:
        document = counts.to_document()
        # if another round has just stored its counts, these are dropped, and the next round counts the items again
        with suppress(DuplicateKeyError):
            self._documents.collection.replace_one({"_id": document["_id"]}, document, upsert=True)


@define(eq=False, repr=False, slots=False)
class FieldCounting:
    _items: ItemStore
    _counts: FieldCountStore
    _jobs: JobStore
    _monotonic: Callable[[], float] = time.monotonic

    def of(
        self, attempts: Sequence[tuple[str, int]], said: Mapping[str, int | None] = MappingProxyType({})
    ) -> list[FieldCounts]:
        """The counts for each of these attempts. Only the first items are counted if all would take longer than
        `LOOK_SECONDS`. `said`: by job, how many items an ended job has reported. If all of them are counted already,
        the store is not asked whether more have come.
        """
        until = self._monotonic() + LOOK_SECONDS
        return [self._count(job_id, attempt, until, said.get(job_id)) for job_id, attempt in attempts]

    def _count(self, job_id: str, attempt: int, until: float, said: int | None) -> FieldCounts:
        counts = self._kept(job_id, attempt, said)
        before = counts.items
        for last, item in self._items.look(job_id, attempt, counts.last):
            counts.items, counts.last = counts.items + 1, last
            if item is not None:
                counts.add(item.row)
            if self._monotonic() > until:
                break
        else:
            counts.is_complete = True
        if counts.items > before:
            self._keep(counts)
        return counts

    def _kept(self, job_id: str, attempt: int, said: int | None) -> FieldCounts:
        kept = self._counts.find(job_id, attempt)
        if kept is not None and kept.items == said:
            return kept
        # items of a batch can become visible out of order: if some came late, all are counted again
        if kept is None or self._items.count(job_id, attempt, up_to=kept.last) != kept.items:
            return FieldCounts(job_id, attempt)
        return kept

    def _keep(self, counts: FieldCounts) -> None:
        self._counts.keep(counts)
        try:
            is_gone = self._jobs.get(counts.job_id).items_removed_at is not None
        except JobNotFoundError:
            is_gone = True
        if is_gone:
            # the items were removed in the meantime, so their counts must be removed, too
            self._items.delete(counts.job_id)
