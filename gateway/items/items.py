"""Items. An item's id is the offset at which its line ends in the attempt's spool, so it can be shipped twice."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import orjson
from attrs import define
from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from gateway.crash_points import state_change
from gateway.stores.documents import Documents
from gateway.stores.mongo import DUPLICATE_KEY, UNSTORABLE, Document, Repeating, refusals

#: Items deleted, or looked at, at a time.
_BATCH = 1000

Row = dict[str, Any]


class Item(NamedTuple):
    job_id: str
    attempt: int
    #: Byte offset one past the line's newline in `items.jsonl`.
    end: int
    #: The item; `None` if BSON cannot hold it.
    data: dict[str, Any] | None
    #: The item's JSON text if BSON cannot hold the item.
    raw: str | None = None

    @property
    def id(self) -> str:
        return f"{_prefix(self.job_id, self.attempt)}{self.end:015d}"

    @property
    def row(self) -> Row:
        """The item's fields, also where BSON could not hold them."""
        return self.data if self.data is not None else parse_row(self.raw or "")


class ItemStore:
    def __init__(self, database: Database[Document]) -> None:
        self._items = database["items"]
        self._counted = database["item_fields"]
        self._documents = Documents(self._items, read_item)

    @state_change("items.insert")
    def insert(self, items: Sequence[Item]) -> list[Item]:
        """Insert the items that are not there yet. Returns those of them that MongoDB says it cannot hold."""
        documents = [_document(item) for item in items]
        if not documents:
            return []
        try:
            self._items.insert_many(documents, ordered=False)
        except BulkWriteError as error:
            codes = refusals(error, {DUPLICATE_KEY, *UNSTORABLE})
            return [items[position] for position, code in codes.items() if code != DUPLICATE_KEY]
        return []

    def page(self, job_id: str, attempt: int | None, after: str | None, limit: int) -> list[Item]:
        """Items in the order they were scraped, after the item `after`; of all attempts if `attempt` is `None`."""
        return self._documents.find({"_id": _after(job_id, attempt, after)}, limit, [("_id", ASCENDING)])

    def of(self, ids: Sequence[str]) -> list[Item]:
        """The items with these ids, those that exist, in any order."""
        return self._documents.many(self._items.find({"_id": {"$in": list(ids)}}))

    def look(self, job_id: str, attempt: int | None, after: str | None) -> Iterator[tuple[str, Item | None]]:
        """All items after the item `after`, each with its id, for those who do not know how many they need. An item
        that cannot be read is `None`.
        """
        found = self._items.find({"_id": _after(job_id, attempt, after)}).sort("_id", ASCENDING).batch_size(_BATCH)
        with found:
            for document, item in self._documents.each(found):
                yield document["_id"], item

    def count(self, job_id: str, attempt: int | None = None, *, up_to: str | None = None) -> int:
        """How many items there are, up to the item `up_to` or in all."""
        return self._items.count_documents({"_id": _range(job_id, attempt) | ({"$lte": up_to} if up_to else {})})

    @state_change("items.delete")
    def delete(self, *job_ids: str) -> None:
        """Delete the items of these jobs, and the counts of their fields."""
        Repeating(self._items).delete_of_jobs(job_ids, _BATCH)
        Repeating(self._counted).delete_of_jobs(job_ids, _BATCH)


def _prefix(job_id: str, attempt: int) -> str:
    return f"{job_id}:{attempt:04d}:"


def _range(job_id: str, attempt: int | None) -> dict[str, str]:
    """Open interval of ids; `;` is the character after `:`."""
    prefix = f"{job_id}:" if attempt is None else _prefix(job_id, attempt)
    return {"$gt": prefix, "$lt": prefix[:-1] + ";"}


def _after(job_id: str, attempt: int | None, after: str | None) -> dict[str, str]:
    ids = _range(job_id, attempt)
    return {**ids, "$gt": max(after or "", ids["$gt"])}


def _document(item: Item) -> Document:
    content = {"data": item.data} if item.raw is None else {"raw": item.raw}
    return {"_id": item.id, **content}


def read_item(document: Document) -> Item:
    job_id, attempt, end = document["_id"].split(":")
    return Item(job_id, int(attempt), int(end), document.get("data"), document.get("raw"))


# --- items as JSON, JSON lines or CSV, encoded batch by batch so that any number of them passes through

#: Text that spreadsheets take for a formula and would run. A plain number is not a formula.
_FORMULA = re.compile(r"(?![+-]?(\d+([.,]\d+)*|[.,]\d+)([eE][+-]?\d+)?$)[=+\-@\t\r\uff0b\uff0d\uff1d\uff20]")


class ItemFormat:
    media_type: str
    extension: str
    #: Size of the first batch, read before it is known how large the items are.
    first_batch = 8

    def begin(self, first: Callable[[int], Sequence[Item]]) -> None:
        """Prepare. Called once, before `encode`; `first(n)` reads the first `n` items of the whole result."""

    def encode(self, items: Sequence[Item]) -> bytes:
        """The next items, encoded; the first call also yields what stands before the first item."""
        raise NotImplementedError

    def end(self, following: str | None) -> bytes:  # noqa: ARG002 - most formats have no end
        """What stands after the last item; `following` is the cursor to go on from."""
        return b""


class JsonFormat(ItemFormat):
    """`{"items": […], "next": …}`."""

    media_type = "application/json"
    extension = "json"

    def __init__(self, fields: Sequence[str] = ()) -> None:
        self._fields = fields
        self._separator = b'{"items":[\n'

    def encode(self, items: Sequence[Item]) -> bytes:
        parts = []
        for item in items:
            parts += [self._separator, as_json(_picked(item.row, self._fields))]
            self._separator = b",\n"
        return b"".join(parts)

    def end(self, following: str | None) -> bytes:
        opening = self._separator if self._separator != b",\n" else b"\n"
        return opening + b'],"next":' + orjson.dumps(following) + b"}\n"


@define(eq=False, repr=False, slots=False)
class JsonLinesFormat(ItemFormat):
    media_type = "application/x-ndjson"
    extension = "jsonl"

    _fields: Sequence[str] = ()

    def encode(self, items: Sequence[Item]) -> bytes:
        return b"".join(as_json(_picked(item.row, self._fields)) + b"\n" for item in items)


class CsvFormat(ItemFormat):
    """The columns are the `fields`, or else those of the first hundred items of all. They are the same on each page:
    later items cannot add columns to a header that was already sent.

    Nested values are JSON, `null` is empty, booleans are `true` and `false`. `escape_formulas`: text that begins like
    a formula gets a `'` before it, which spreadsheets do not show. `bom`: by the mark at its beginning, spreadsheets
    know that the text is UTF-8.
    """

    media_type = "text/csv; charset=utf-8"
    extension = "csv"
    #: Enough to see which columns there are.
    first_batch = 100

    def __init__(self, fields: Sequence[str] = (), *, escape_formulas: bool = True, bom: bool = False) -> None:
        self._fields = fields
        self._encoding = "utf-8-sig" if bom else "utf-8"
        self._shown = _escaped if escape_formulas else str
        self._columns = list(fields)
        self._is_begun = False

    def begin(self, first: Callable[[int], Sequence[Item]]) -> None:
        if not self._columns:
            rows = [item.row for item in first(self.first_batch)]
            self._columns = list(dict.fromkeys(name for row in rows for name in row))

    def encode(self, items: Sequence[Item]) -> bytes:
        rows = [_picked(item.row, self._fields) for item in items]
        buffer = io.StringIO(newline="")
        writer = csv.writer(buffer)
        if not self._is_begun:
            self._is_begun = True
            writer.writerows([list(map(self._shown, self._columns))] if self._columns else [])
        writer.writerows([self._cell(row.get(column)) for column in self._columns] for row in rows)
        encoded = buffer.getvalue().encode(self._encoding, "replace")
        self._encoding = "utf-8"
        return encoded

    def end(self, following: str | None) -> bytes:  # noqa: ARG002 - a table has no end
        return b"" if self._is_begun else self.encode(())

    def _cell(self, value: Any) -> str:
        if value is None:
            return ""
        return self._shown(value) if isinstance(value, str) else as_json(value).decode()


FORMATS: dict[str, type[JsonFormat | JsonLinesFormat | CsvFormat]] = {
    "json": JsonFormat,
    "jsonl": JsonLinesFormat,
    "csv": CsvFormat,
}


def _picked(row: Row, fields: Sequence[str]) -> Row:
    """These fields of the row, or all if none is named. `seller.name` is a field of the object `seller`, unless the
    row itself has a field of that name.
    """
    if not fields:
        return row
    values = ((name, value_of(row, name)) for name in fields)
    return {name: value for name, value in values if value is not MISSING}


MISSING = object()


def value_of(row: Row, name: str) -> Any:
    if name in row:
        return row[name]
    outer, _, inner = name.partition(".")
    value = row.get(outer)
    return value.get(inner, MISSING) if isinstance(value, dict) else MISSING


def parse_row(raw: str) -> Row:
    """The object in `raw`, which BSON could not hold. A line that is not a JSON object becomes the field `_raw`."""
    try:
        # NaN and infinities are not JSON, but Python reads and writes them
        value = json.loads(raw, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"_raw": raw}


def as_json(value: Any) -> bytes:
    try:
        return orjson.dumps(value, default=str)
    except TypeError:
        # orjson refuses what kept the item out of BSON: integers beyond 64 bits, half surrogate pairs
        return json.dumps(value, default=str, separators=(",", ":")).encode()


def _escaped(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) else text


# --- looking for a text in items, one after the other: no index knows what fields a spider's items have

#: Most items and most seconds of one look.
_LOOK = 1000
_LOOK_SECONDS = 0.5


class ItemsLook(NamedTuple):
    items: list[Item]
    #: How many items were looked at, and the id of the last one, which is `None` if there were no more items.
    looked_at: int
    last: str | None


def search(items: Iterator[tuple[str, Item | None]], limit: int, text: str) -> ItemsLook:
    """Up to `limit` of the `items` (from `ItemStore.look`) that have the text in a value, in upper or lower case. A
    look can find no item and still not be at the end.
    """
    wanted, found, looked_at, last = text.casefold(), list[Item](), 0, None
    until = time.monotonic() + _LOOK_SECONDS
    for identity, item in islice(items, _LOOK):
        looked_at, last = looked_at + 1, identity
        if item is not None and has_text(item.row, wanted):
            found.append(item)
        if len(found) >= limit or time.monotonic() > until:
            break
    return ItemsLook(found, looked_at, last)


def has_text(value: Any, text: str) -> bool:
    """Whether `text`, which is case-folded, is in one of the values; names of fields do not count."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            rest.extend(one.values())
        elif isinstance(one, list):
            rest.extend(one)
        elif one is not None and text in str(one).casefold():
            return True
    return False
