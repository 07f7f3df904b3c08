"""Targets, by id or running number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.errors import TargetNotFoundError
from gateway.domain.site import Target
from gateway.storage.client import Document
from gateway.storage.documents import Documents, reader

_NUMBER = re.compile(r"[1-9][0-9]{0,14}")
#: What an edit leaves alone.
_KEPT = {"_id", "last_scheduled"}


class TargetStore:
    def __init__(self, database: Database[Document]) -> None:
        self._targets = database["targets"]
        self._documents = Documents(self._targets, reader(Target))

    @state_change("targets.insert")
    def insert(self, target: Target) -> None:
        self._targets.insert_one(target.to_document())

    def get(self, target: str) -> Target:
        """By its id, or by its number as text. Raises `TargetNotFoundError`, `UnreadableError`."""
        query: Document = {"number": int(target)} if _NUMBER.fullmatch(target) else {"_id": target}
        document = self._targets.find_one(query)
        if document is None:
            raise TargetNotFoundError(target)
        return self._documents.one(document)

    def identified(self, ids: Iterable[str]) -> dict[str, Target]:
        """Those that there are, by id. Raises `UnreadableError`: what is not among them is taken to be gone."""
        found = map(self._documents.one, self._targets.find({"_id": {"$in": sorted(set(ids))}}))
        return {target.id: target for target in found}

    def page(
        self, limit: int, after: int | None = None, *, site: str | None = None, enabled: bool | None = None
    ) -> list[Target]:
        """By number, from the first one after `after`."""
        query: Document = {}
        if site is not None:
            query["site"] = site
        if enabled is not None:
            query["enabled"] = enabled
        if after is not None:
            query["number"] = {"$gt": after}
        return self._documents.find(query, limit, [("number", ASCENDING)])

    def of_site(self, site: str) -> list[Target]:
        """All of them, by number."""
        return self._documents.many(self._targets.find({"site": site}).sort("number", ASCENDING))

    def count(self, site: str) -> int:
        return self._targets.count_documents({"site": site})

    @state_change("targets.replace")
    def replace(self, target: Target) -> bool:
        """In the place of its last revision; whether that was still there. `last_scheduled` stays as it is."""
        changed = {name: value for name, value in target.to_document().items() if name not in _KEPT}
        absent = Target.model_fields.keys() - changed.keys() - _KEPT - {"id"}
        update: Document = {"$set": changed, **({"$unset": dict.fromkeys(absent, "")} if absent else {})}
        return self._targets.update_one({"_id": target.id, "rev": target.rev - 1}, update).matched_count == 1

    @state_change("targets.scheduled")
    def scheduled(self, numbers: Sequence[int], at: datetime) -> None:
        """A run of each was handed to a worker. Never moves back."""
        self._targets.update_many({"number": {"$in": list(numbers)}}, {"$max": {"last_scheduled": at}})

    @state_change("targets.delete")
    def delete(self, target_id: str) -> None:
        self._targets.delete_one({"_id": target_id})
