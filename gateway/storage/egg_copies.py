"""Which egg each node has of which version, and how bringing one there has gone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pydantic import BaseModel, Field
from pymongo import ReturnDocument
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.crash_points import state_change
from gateway.domain.clock import Clock, utc_now
from gateway.domain.room import Egg
from gateway.storage.client import Document
from gateway.storage.documents import Documents, reader

#: A node that is being brought an egg is left alone for so long.
LEASE = timedelta(seconds=150)
#: What one who was killed was bringing may still arrive for so long after that.
_LATE = timedelta(minutes=3)
#: SHA-256 that are remembered while an egg is on its way.
_REMEMBERED = 8


class EggCopy(BaseModel):
    """One version on one node."""

    node: str
    project: str
    version: str
    #: SHA-256 of the file that is there; `None` where there is none (yet).
    has: str | None = None
    #: SHA-256 of what was agreed on with the node, or brought to it.
    known: list[str] = Field(default_factory=list)
    #: What is there is to be replaced or removed.
    outdated: bool | None = None
    leased_until: datetime | None = None
    #: What the failures below are about.
    sha256: str | None = None
    #: Not brought before then.
    not_before: datetime | None = None
    failures: int = 0
    #: Why it was not taken.
    message: str | None = None

    @property
    def egg(self) -> Egg:
        return Egg(self.project, self.version)

    def waits(self, now: datetime, sha256: str | None) -> bool:
        """Whether nothing is to be brought there now."""
        if self.leased_until is not None and self.leased_until > now:
            return True
        return self.sha256 == sha256 and self.not_before is not None and self.not_before > now


class EggCopies:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._copies = database["egg_copies"]
        self._documents = Documents(self._copies, reader(EggCopy))
        self._clock = clock

    # --- by the node's tailer

    @state_change("egg_copies.agree")
    def agree(self, node: str, egg: Egg, sha256: str) -> None:
        """The node has what is kept."""
        settled = {**_about(node, egg), "has": sha256, "known": [sha256]}
        nothing = dict.fromkeys(("outdated", "leased_until", "sha256", "not_before", "failures", "message"), "")
        # while something is on its way there, what that is must not be forgotten
        quiet = [{"leased_until": None}, {"leased_until": {"$lte": self._clock() - _LATE}}]
        try:
            self._copies.update_one(
                {"_id": _name(node, egg), "$or": quiet}, {"$set": settled, "$unset": nothing}, upsert=True
            )
        except DuplicateKeyError:
            here: Document = {"$set": {"has": sha256}, "$addToSet": {"known": sha256}, "$unset": {"outdated": ""}}
            self._copies.update_one({"_id": _name(node, egg)}, here)

    @state_change("egg_copies.mark_outdated")
    def mark_outdated(self, node: str, egg: Egg, sha256: str) -> None:
        """What the node has is to be replaced, or removed."""
        marked = {**_about(node, egg), "has": sha256, "outdated": True}
        self._copies.update_one({"_id": _name(node, egg)}, {"$set": marked}, upsert=True)

    @state_change("egg_copies.gone")
    def gone(self, node: str, egg: Egg) -> None:
        """The node has it no longer."""
        self._copies.delete_one({"_id": _name(node, egg), "leased_until": None})
        self._copies.update_one({"_id": _name(node, egg)}, {"$unset": {"has": "", "outdated": ""}})

    def of_node(self, node: str) -> dict[Egg, EggCopy]:
        return {copy.egg: copy for copy in self._documents.many(self._copies.find({"node": node}))}

    # --- by whoever brings eggs

    @state_change("egg_copies.begin")
    def begin(self, node: str, egg: Egg, sha256: str | None) -> EggCopy | None:
        """From now on it is on its way there (or on its way out, without a SHA-256); `None` if it is there or on its
        way already, or is not to be tried again yet.
        """
        now = self._clock()
        arriving = {"$push": {"known": {"$each": [sha256], "$slice": -_REMEMBERED}}} if sha256 else {}
        free = {"$or": [{"leased_until": None}, {"leased_until": {"$lte": now}}]}
        due = {"$or": [{"not_before": None}, {"not_before": {"$lte": now}}, {"sha256": {"$ne": sha256}}]}
        other = {"$or": [{"has": {"$ne": sha256}}, {"outdated": True}]}
        try:
            document = self._copies.find_one_and_update(
                {"_id": _name(node, egg), "$and": [free, due, other]},
                {"$set": {**_about(node, egg), "leased_until": now + LEASE}, **arriving},
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        except DuplicateKeyError:
            return None
        return self._documents.optional(document)

    @state_change("egg_copies.brought")
    def brought(self, copy: EggCopy, sha256: str | None, quiet_until: datetime) -> None:
        """The node has taken it, which it tells by itself before `quiet_until`."""
        changes: Document = {
            "$set": {"sha256": sha256, "not_before": quiet_until},
            "$unset": {"leased_until": "", "failures": "", "message": ""},
        }
        self._copies.update_one(_leased(copy), changes)

    @state_change("egg_copies.failed")
    def failed(self, copy: EggCopy, sha256: str | None, message: str, not_before: datetime) -> None:
        """The node has not taken it: to be tried again at `not_before`."""
        changes: Document = {
            "$set": {
                "sha256": sha256,
                "message": message,
                "not_before": not_before,
                "failures": copy.failures + 1 if copy.sha256 == sha256 else 1,
            },
            "$unset": {"leased_until": ""},
        }
        self._copies.update_one(_leased(copy), changes)

    @state_change("egg_copies.forget")
    def forget(self, nodes: Iterable[str]) -> None:
        """What was known of all nodes but these."""
        self._copies.delete_many({"node": {"$nin": list(nodes)}})

    def outdated(self, limit: int) -> list[EggCopy]:
        return self._documents.many(self._copies.find({"outdated": True}, limit=limit))

    def of_egg(self, egg: Egg) -> dict[str, EggCopy]:
        """By node."""
        found = self._copies.find({"project": egg.project, "version": egg.version})
        return {copy.node: copy for copy in self._documents.many(found)}


def _name(node: str, egg: Egg) -> str:
    return f"{node}/{egg.project}/{egg.version}"


def _about(node: str, egg: Egg) -> Document:
    return {"node": node, "project": egg.project, "version": egg.version}


def _leased(copy: EggCopy) -> Document:
    return {"_id": _name(copy.node, copy.egg), "leased_until": copy.leased_until}
