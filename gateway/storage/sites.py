"""Sites, by name. Each change is a compare-and-set on the revision that it was made from."""

from __future__ import annotations

from collections.abc import Iterable

from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.crash_points import state_change
from gateway.domain.errors import SiteExistsError, SiteNotFoundError
from gateway.domain.site import Site
from gateway.storage.client import Document
from gateway.storage.documents import Documents, reader


class SiteStore:
    def __init__(self, database: Database[Document]) -> None:
        self._sites = database["sites"]
        self._documents = Documents(self._sites, reader(Site))

    @state_change("sites.insert")
    def insert(self, site: Site) -> None:
        """Raises `SiteExistsError`."""
        try:
            self._sites.insert_one(site.to_document())
        except DuplicateKeyError as error:
            raise SiteExistsError(f"there is a site {site.name!r} already") from error

    def get(self, name: str) -> Site:
        """Raises `SiteNotFoundError`, `UnreadableError`."""
        document = self._sites.find_one({"_id": name})
        if document is None:
            raise SiteNotFoundError(name)
        return self._documents.one(document)

    def named(self, names: Iterable[str]) -> dict[str, Site]:
        """Those that there are, by name. Raises `UnreadableError`: what is not among them is taken to be gone."""
        found = map(self._documents.one, self._sites.find({"_id": {"$in": sorted(set(names))}}))
        return {site.name: site for site in found}

    def page(self, limit: int, after: str | None = None, *, enabled: bool | None = None) -> list[Site]:
        """By name, from the first one after `after`."""
        query: Document = {} if enabled is None else {"enabled": enabled}
        if after is not None:
            query["_id"] = {"$gt": after}
        return self._documents.find(query, limit, [("_id", ASCENDING)])

    def all(self) -> list[Site]:
        """By name."""
        return self._documents.many(self._sites.find().sort("_id", ASCENDING))

    @state_change("sites.replace")
    def replace(self, site: Site) -> bool:
        """In the place of its last revision; whether that was still there."""
        query = {"_id": site.name, "rev": site.rev - 1, "number": site.number}
        return self._sites.replace_one(query, site.to_document()).matched_count == 1

    @state_change("sites.delete")
    def delete(self, site: Site) -> None:
        """Not one that was made anew under the same name."""
        self._sites.delete_one({"_id": site.name, "number": site.number})
