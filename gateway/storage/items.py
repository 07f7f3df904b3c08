"""Items: named by the place where their line ends in the attempt's spool, so shipping one twice changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from gateway.crash_points import state_change
from gateway.storage.client import DUPLICATE_KEY, UNSTORABLE, Document, refusals
from gateway.storage.documents import Documents

#: Items deleted at a time.
_BATCH = 1000


class Item(NamedTuple):
    job_id: str
    attempt: int
    #: Byte offset one past the line's newline in `items.jsonl`.
    end: int
    #: The item, or `None` where BSON cannot hold it,
    data: dict[str, Any] | None
    #: which is when its JSON text stands here.
    raw: str | None = None

    @property
    def id(self) -> str:
        return f"{_prefix(self.job_id, self.attempt)}{self.end:015d}"


class ItemStore:
    def __init__(self, database: Database[Document]) -> None:
        self._items = database["items"]
        self._documents = Documents(self._items, read_item)

    @state_change("items.insert")
    def insert(self, items: Sequence[Item]) -> list[Item]:
        """Insert what is not there yet; those of them that MongoDB says it cannot hold."""
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
        """Items in the order they were scraped, after the item whose id is `after`; of every attempt for `None`."""
        first, past = _range(job_id, attempt)
        query = {"_id": {"$gt": max(after or first, first), "$lt": past}}
        return self._documents.find(query, limit, [("_id", ASCENDING)])

    def count(self, job_id: str, attempt: int | None = None) -> int:
        first, past = _range(job_id, attempt)
        return self._items.count_documents({"_id": {"$gt": first, "$lt": past}})

    @state_change("items.delete")
    def delete(self, job_id: str) -> None:
        """In batches: other writes must not wait for a million items to go."""
        first, past = _range(job_id, None)
        query = {"_id": {"$gt": first, "$lt": past}}
        while ids := [found["_id"] for found in self._items.find(query, {"_id": 1}).sort("_id", 1).limit(_BATCH)]:
            self._items.delete_many({"_id": {"$gte": ids[0], "$lte": ids[-1]}})


def _prefix(job_id: str, attempt: int) -> str:
    return f"{job_id}:{attempt:04d}:"


def _range(job_id: str, attempt: int | None) -> tuple[str, str]:
    """Open interval of ids; `;` is the character after `:`."""
    prefix = f"{job_id}:" if attempt is None else _prefix(job_id, attempt)
    return prefix, prefix[:-1] + ";"


def _document(item: Item) -> Document:
    content = {"data": item.data} if item.raw is None else {"raw": item.raw}
    return {"_id": item.id, **content}


def read_item(document: Document) -> Item:
    job_id, attempt, end = document["_id"].split(":")
    return Item(job_id, int(attempt), int(end), document.get("data"), document.get("raw"))
