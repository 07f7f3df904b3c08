"""Running numbers, by kind."""

from __future__ import annotations

from pymongo import ReturnDocument
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.storage.client import Document


class CounterStore:
    def __init__(self, database: Database[Document]) -> None:
        self._counters = database["counters"]

    @state_change("counters.next")
    def next(self, kind: str) -> int:
        """A number that nobody else gets, the first being 1. One that is not used leaves a gap."""
        counter = self._counters.find_one_and_update(
            {"_id": kind}, {"$inc": {"value": 1}}, upsert=True, return_document=ReturnDocument.AFTER
        )
        assert counter is not None  # noqa: S101 - an upsert leaves one
        return int(counter["value"])
