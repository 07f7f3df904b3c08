"""Items. An item's id has the offset at which its line ends in the attempt's `items.jsonl`, so an item that is
shipped twice is stored once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from gateway.crash_points import state_change
from gateway.items.formats import Row
from gateway.stores.documents import Documents
from gateway.stores.mongo import DUPLICATE_KEY, UNSTORABLE, Document, Repeating, refusals

#: Items that are deleted or read at a time.
_BATCH = 1000


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
        """Insert the items that are not there yet. Returns those that MongoDB cannot hold."""
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
        """Items after the item `after`, in the order in which they were scraped; of all attempts if `attempt` is
        `None`. A page has fewer than `limit` items if they are large: only an empty page is the end.
        """
        return self._documents.page({"_id": _after(job_id, attempt, after)}, limit, [("_id", ASCENDING)])

    def of(self, ids: Sequence[str]) -> list[Item] | None:
        """The items with these ids, in any order. Ids of items that do not exist are ignored. `None` if they are too
        large to be read together.
        """
        return self._documents.at_once({"_id": {"$in": list(ids)}}, len(ids)) if ids else []

    def look(self, job_id: str, attempt: int | None, after: str | None) -> Iterator[tuple[str, Item | None]]:
        """All items after the item `after`, each with its id, for callers that may stop at any item. An item that
        cannot be read is `None`.
        """
        found = self._items.find({"_id": _after(job_id, attempt, after)}).sort("_id", ASCENDING).batch_size(_BATCH)
        with found:
            for document, item in self._documents.each(found):
                yield document["_id"], item

    def count(
        self, job_id: str, attempt: int | None = None, *, after: str | None = None, up_to: str | None = None
    ) -> int:
        """The number of items after `after` and up to `up_to`. Without them, the number of all items."""
        return self._items.count_documents(
            {"_id": _after(job_id, attempt, after) | ({"$lte": up_to} if up_to else {})}
        )

    @state_change("items.delete")
    def delete(self, *job_ids: str) -> None:
        """Delete the items of these jobs, and the counts of their fields."""
        Repeating(self._items).delete_of_jobs(job_ids, _BATCH)
        Repeating(self._counted).delete_of_jobs(job_ids, _BATCH)


def _prefix(job_id: str, attempt: int) -> str:
    return f"{job_id}:{attempt:04d}:"


def _range(job_id: str, attempt: int | None) -> dict[str, str]:
    """An open interval of ids that has all ids with the prefix: `;` is the character after `:`."""
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


def parse_row(raw: str) -> Row:
    """The item in `raw`, a line that BSON could not store. If it is not a JSON object, it becomes
    the field `_raw`.
    """
    try:
        # NaN and infinities are not JSON, but Python reads and writes them
        value = json.loads(raw, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"_raw": raw}


# --- looking for a text in items, one after the other: no index knows what fields a spider's items have

#: One round of a search reads at most this many items, and takes at most this many seconds.
_LOOK = 1000
_LOOK_SECONDS = 0.5


class ItemsLook(NamedTuple):
    items: list[Item]
    #: How many items were read, and the id of the last one; the id is `None` if there are no more items.
    looked_at: int
    last: str | None


def search(items: Iterator[tuple[str, Item | None]], limit: int, text: str) -> ItemsLook:
    """Up to `limit` of the `items` (from `ItemStore.look`) that have the text in a value; case does not matter. The
    result can be empty although there are more items to search.
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
