"""Stores sites and targets, and gives them numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from pymongo import ASCENDING, ReturnDocument
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.crash_points import state_change
from gateway.errors import SiteExistsError, SiteNotFoundError, TargetNotFoundError
from gateway.sites.site import Site, Target
from gateway.stores.documents import Documents, reader
from gateway.stores.mongo import Document, Repeating


class CounterStore:
    """The collection `counters`, from which numbers are taken."""

    def __init__(self, database: Database[Document]) -> None:
        self._counters = database["counters"]

    @state_change("counters.next")
    def next(self, kind: str) -> int:
        """A number that no other caller gets; the first is 1. If it is not used, there is a gap."""
        counter = Repeating(self._counters).find_one_and_update(
            {"_id": kind}, {"$inc": {"value": 1}}, upsert=True, return_document=ReturnDocument.AFTER
        )
        assert counter is not None  # noqa: S101 - an upsert leaves one
        return int(counter["value"])


class SiteStore:
    """The collection `sites`."""

    def __init__(self, database: Database[Document]) -> None:
        self._sites = database["sites"]
        self._documents = Documents(self._sites, reader(Site))

    @state_change("sites.insert")
    def insert(self, site: Site) -> None:
        """Insert a new site. Raises `SiteExistsError`."""
        try:
            Repeating(self._sites).insert_one(site.to_document(), ours=["number"])
        except DuplicateKeyError as error:
            raise SiteExistsError(f"the site {site.name!r} exists already") from error

    def get(self, name: str) -> Site:
        """Raises `SiteNotFoundError`, `UnreadableError`."""
        if (site := self._documents.find_one({"_id": name})) is None:
            raise SiteNotFoundError(name)
        return site

    def named(self, names: Iterable[str]) -> dict[str, Site]:
        """The sites that exist, by name. Raises `UnreadableError`: callers would take an unreadable site
        for deleted.
        """
        found = map(self._documents.one, self._sites.find({"_id": {"$in": sorted(set(names))}}))
        return {site.name: site for site in found}

    def page(self, limit: int, after: str | None = None, *, enabled: bool | None = None) -> list[Site]:
        """Sites in the order of their names, starting after `after`."""
        query: Document = {} if enabled is None else {"enabled": enabled}
        if after is not None:
            query["_id"] = {"$gt": after}
        return self._documents.find(query, limit, [("_id", ASCENDING)])

    def all(self) -> list[Site]:
        """All sites, in the order of their names."""
        return self._documents.many(self._sites.find().sort("_id", ASCENDING))

    @state_change("sites.replace")
    def replace(self, site: Site) -> bool:
        """Replace the previous revision. Returns false if the stored revision is a different one."""
        query = {"_id": site.name, "rev": site.rev - 1, "number": site.number}
        return self._sites.replace_one(query, site.to_document()).matched_count == 1

    @state_change("sites.delete")
    def delete(self, site: Site) -> None:
        """Delete the site, but not a newer one with the same name."""
        self._sites.delete_one({"_id": site.name, "number": site.number})


_NUMBER = re.compile(r"[1-9][0-9]{0,14}")
#: Fields that an edit does not change.
_KEPT = {"_id", "last_scheduled"}


class TargetStore:
    """The collection `targets`."""

    def __init__(self, database: Database[Document]) -> None:
        self._targets = database["targets"]
        self._documents = Documents(self._targets, reader(Target))

    @state_change("targets.insert")
    def insert(self, target: Target) -> None:
        Repeating(self._targets).insert_one(target.to_document())

    def get(self, target: str) -> Target:
        """The target with this id, or this number as text. Raises `TargetNotFoundError`, `UnreadableError`."""
        query: Document = {"number": int(target)} if _NUMBER.fullmatch(target) else {"_id": target}
        if (found := self._documents.find_one(query)) is None:
            raise TargetNotFoundError(target)
        return found

    def identified(self, ids: Iterable[str]) -> dict[str, Target]:
        """The targets that exist, by id. Raises `UnreadableError`: callers would take an unreadable one for
        deleted.
        """
        found = map(self._documents.one, self._targets.find({"_id": {"$in": sorted(set(ids))}}))
        return {target.id: target for target in found}

    def page(
        self, limit: int, after: int | None = None, *, site: str | None = None, enabled: bool | None = None
    ) -> list[Target]:
        """Targets in the order of their numbers, starting after `after`."""
        wanted = {"site": site, "enabled": enabled, "number": None if after is None else {"$gt": after}}
        query = {name: value for name, value in wanted.items() if value is not None}
        return self._documents.find(query, limit, [("number", ASCENDING)])

    def of_site(self, site: str) -> list[Target]:
        """All targets of the site, in the order of their numbers."""
        return self._documents.many(self._targets.find({"site": site}).sort("number", ASCENDING))

    def count(self, site: str) -> int:
        return self._targets.count_documents({"site": site})

    @state_change("targets.replace")
    def replace(self, target: Target) -> bool:
        """Replace the previous revision, except `last_scheduled`. Returns false if the stored revision is a different
        one.
        """
        changed = {name: value for name, value in target.to_document().items() if name not in _KEPT}
        absent = Target.model_fields.keys() - changed.keys() - _KEPT - {"id"}
        update: Document = {"$set": changed, **({"$unset": dict.fromkeys(absent, "")} if absent else {})}
        return self._targets.update_one({"_id": target.id, "rev": target.rev - 1}, update).matched_count == 1

    @state_change("targets.scheduled")
    def scheduled(self, numbers: Sequence[int], at: datetime) -> None:
        """Record that runs of these targets were handed to workers. `last_scheduled` never moves back."""
        Repeating(self._targets).update_many({"number": {"$in": list(numbers)}}, {"$max": {"last_scheduled": at}})

    @state_change("targets.delete")
    def delete(self, target_id: str) -> None:
        self._targets.delete_one({"_id": target_id})
