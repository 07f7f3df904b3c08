"""Whose a job or a schedule is; nothing else of it is read."""

from __future__ import annotations

from collections.abc import Collection

from pymongo.database import Database

from gateway.storage.client import Document


class OwnerStore:
    def __init__(self, database: Database[Document]) -> None:
        self._collections = database["jobs"], database["schedules"]

    def of(self, ids: Collection[str]) -> dict[str, set[str]]:
        """By id, for those of `ids` that are there. More than one only if a job and a schedule share an id."""
        owners: dict[str, set[str]] = {}
        for collection in self._collections:
            for document in collection.find({"_id": {"$in": list(ids)}}, {"user_id": 1}):
                owners.setdefault(document["_id"], set()).add(document["user_id"])
        return owners
