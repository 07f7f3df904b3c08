"""Holds: the resources that attempts occupy. A resource is a node's slots, a node's browsers, a user's share of
running crawls, or a site that only one crawl at a time may visit. Each resource has a document that lists its
holders.

The rule: **a crawl is posted only while its attempt has all holds that it needs.** `docs/decisions/0016-holds.md`
explains why workers keep this rule even if they are delayed between any two of their steps.
`tests/unit/gateway/nodes/test_hold_model.py` tests a model of it step by step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import structlog
from pymongo import UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.stores.documents import SET_ASIDE, Documents, Model, Unreadable, moment, whole
from gateway.stores.mongo import Document, Repeating, is_passing

log = structlog.get_logger()

#: The ASCII character after the colon: all names of a kind, such as `node:…`, sort before `node;`.
_END = ";"


class Wish(NamedTuple):
    """One attempt's request for one resource."""

    resource: str
    #: `<job>-<attempt>`.
    attempt: str
    #: How many attempts may hold the resource at once; `None` means no limit.
    most: int | None = None


class Holder(NamedTuple):
    """An attempt that holds a resource."""

    attempt: str
    #: Identifies the worker's decision that took the hold.
    token: str
    at: datetime


class Usage(NamedTuple):
    """How a resource is used."""

    #: How many attempts hold the resource.
    used: int
    #: How often it was ever taken. If this number is unchanged, no attempt has taken it meanwhile.
    taken: int
    #: When it was last freed for an attempt that had ended; `None` if it never was.
    freed_at: datetime | None = None


#: The usage that is assumed if a resource's document cannot be read.
FULL = Usage(1_000_000, 0)
_USAGE = {"used": 1, "taken": 1, "freed_at": 1, SET_ASIDE: 1}


class Held(NamedTuple):
    """A resource with its holders."""

    resource: str
    holders: Sequence[Holder]
    usage: Usage

    @property
    def attempts(self) -> set[str]:
        return {holder.attempt for holder in self.holders}


class HoldStore:
    """The `holds` collection: `{_id: resource, used, taken, freed_at, holders: {attempt: {token, at}},
    closed}`.

    `used` is the number of holders. An update that adds a holder requires that the holder is missing, and an update
    that removes one requires that it is there. So the number stays right, however often an update is repeated.

    A document that cannot be read is set aside: its resource counts as full, so that attempts which need it wait, and
    no others.
    """

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._holds = database["holds"]
        self._documents = HoldDocuments(self._holds, read_held)
        self._usage = HoldDocuments(self._holds, _usage)
        self._clock = clock

    def take(self, wishes: Sequence[Wish], token: str) -> set[tuple[str, str]]:
        """Take as many of the holds as possible. Returns the `(resource, attempt)` pairs that this call has taken. If
        a resource has no room for all its wishes, the first ones get it. Usually this is one command; if a resource
        has no room for all, there are more.
        """
        groups: defaultdict[str, list[Wish]] = defaultdict(list)
        for wish in wishes:
            groups[wish.resource].append(wish)
        taken, short = self._take(list(groups.values()), token)
        while singles := [[wish] for group in short if len(group) > 1 for wish in group]:
            more, short = self._take(singles, token)
            taken += more
        return {(wish.resource, wish.attempt) for group in taken for wish in group}

    @state_change("holds.take")
    def _take(self, groups: list[list[Wish]], token: str) -> tuple[list[list[Wish]], list[list[Wish]]]:
        """Take the resource for all wishes of a group, or for none of them; each group is of one resource. Returns
        the groups that got it, and the others.
        """
        holder = {"token": token, "at": self._clock()}
        tried = [group for group in groups if group[0].most is None or len(group) <= group[0].most]
        short = [group for group in groups if group not in tried]
        try:
            if tried:
                self._holds.bulk_write([_taking(group, holder) for group in tried], ordered=False)
        except BulkWriteError as error:
            if is_passing(error):
                raise
            # a refused update means no room, or a damaged document, which cannot be read either
            failed = {problem["index"] for problem in error.details["writeErrors"]}
            short += [group for index, group in enumerate(tried) if index in failed]
            tried = [group for index, group in enumerate(tried) if index not in failed]
        return tried, short

    @state_change("holds.give_back")
    def give_back(self, pairs: Iterable[tuple[str, str]], token: str) -> None:
        """Give back holds that were taken with this token and are not used."""
        operations = [
            UpdateOne({"_id": resource, f"holders.{attempt}.token": token}, _removing(attempt))
            for resource, attempt in pairs
        ]
        self._write(operations)

    def free(self, attempt: str, resources: Collection[str]) -> None:
        """As `free_all`, for one attempt."""
        self.free_all([(attempt, resources)])

    @state_change("holds.free")
    def free_all(self, held: Iterable[tuple[str, Collection[str]]]) -> None:
        """Free the resources of attempts that are over or can never start. `held`: pairs of an attempt and its
        resources. Numbers of such attempts are never used again.
        """
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for attempt, resources in held:
            for resource in resources:
                groups[resource].append(attempt)
        several = {resource: attempts for resource, attempts in groups.items() if len(attempts) > 1}
        if self._free(groups.items()) < len(groups) and several:
            # some attempt did not hold its resource any more, so that its group was not freed: free each by itself
            self._free((resource, [one]) for resource, attempts in several.items() for one in attempts)

    def _free(self, groups: Iterable[tuple[str, Sequence[str]]]) -> int:
        """Free each resource for all attempts of its group, or for none of them. Returns how many were freed."""
        now, held = self._clock(), {"$exists": True}
        return self._write(
            [
                UpdateOne(
                    {"_id": resource, **{f"holders.{one}": held for one in attempts}},
                    _removing(*attempts) | {"$set": {"freed_at": now}},
                )
                for resource, attempts in groups
            ]
        )

    def _write(self, operations: Sequence[UpdateOne]) -> int:
        """Carry out the operations. Returns how many found their resource."""
        try:
            return self._holds.bulk_write(operations, ordered=False).matched_count if operations else 0
        except BulkWriteError as error:
            if is_passing(error):
                raise
            # documents that can be neither read nor written are set aside; the others were written
            log.warning("hold_not_written", error=str(error))
            matched: int = error.details["nMatched"]
            return matched

    @state_change("holds.close")
    def close(self, resource: str) -> None:
        """Close the resource: no attempt can take it from now on."""
        self._holds.update_one({"_id": resource}, {"$set": {"closed": True}, "$inc": {"used": 0}}, upsert=True)

    @state_change("holds.open")
    def open(self, resource: str) -> None:
        """Undo `close`."""
        self._holds.update_one({"_id": resource}, {"$unset": {"closed": ""}})

    @state_change("holds.forget")
    def forget(self, resources: Sequence[str]) -> None:
        """Delete the documents of the resources that no attempt holds and that are not closed."""
        Repeating(self._holds).delete_many({"_id": {"$in": list(resources)}, "used": 0, "closed": {"$exists": False}})

    def usage(self, resources: Iterable[str]) -> dict[str, Usage]:
        """The usage of each of the resources that was ever held."""
        found = self._holds.find({"_id": {"$in": list(resources)}}, _USAGE)
        return {one["_id"]: usage or FULL for one, usage in self._usage.each(found)}

    def used_by_kind(self, *prefixes: str) -> dict[str, int]:
        """How many attempts hold each resource whose name begins with one of the prefixes, such as `user:`. Resources
        without holders are left out.
        """
        of_kinds = [{"_id": {"$gte": prefix, "$lt": prefix[:-1] + _END}} for prefix in prefixes]
        found = self._usage.each(self._holds.find({"$or": of_kinds}, _USAGE))
        return {one["_id"]: used for one, usage in found if (used := (usage or FULL).used)}

    def holders(self, resources: Collection[str]) -> dict[str, set[str]]:
        """The holders of each of the resources that was ever held."""
        found = self._holds.find({"_id": {"$in": list(resources)}}) if resources else ()
        return {held.resource: held.attempts for held in self._documents.many(found)}

    def free_of(self, resources: Iterable[str]) -> set[str]:
        """The resources among these that no attempt holds."""
        wanted = set(resources)
        return wanted - {resource for resource, usage in self.usage(wanted).items() if usage.used}

    def all(self) -> list[Held]:
        """All resources whose documents can be read."""
        return self._documents.many(self._holds.find())


class HoldDocuments(Documents[Model]):
    """The collection `holds`. A document that cannot be read is set aside."""

    @state_change("holds.set_aside")
    def _note(self, found: Unreadable) -> None:
        super()._note(found)
        self.collection.update_one({"_id": found.id}, {"$set": {SET_ASIDE: True}})


def _usage(document: Document) -> Usage:
    if document.get(SET_ASIDE):
        return FULL
    used, taken, freed_at = document["used"], document.get("taken", 0), document.get("freed_at")
    return Usage(whole(used), whole(taken), None if freed_at is None else moment(freed_at))


def read_held(document: Document) -> Held:
    holders: Mapping[str, Document] = document.get("holders", {})
    by_whom = [Holder(name, by["token"], moment(by["at"])) for name, by in holders.items()]
    return Held(document["_id"], by_whom, _usage({**document, SET_ASIDE: None}))


def _taking(group: Sequence[Wish], holder: Document) -> UpdateOne:
    """The update that takes the resource for all attempts of the group. It fails if the resource is full or closed,
    or if one of the attempts already holds it: then the upsert tries to insert a second document with the same id.
    """
    resource, _, most = group[0]
    query: Document = {"_id": resource, "closed": {"$exists": False}, SET_ASIDE: {"$exists": False}}
    query |= {f"holders.{wish.attempt}": {"$exists": False} for wish in group}
    if most is not None:
        query["used"] = {"$lte": most - len(group)}
    taken = {f"holders.{wish.attempt}": holder for wish in group}
    return UpdateOne(query, {"$set": taken, "$inc": {"used": len(group), "taken": len(group)}}, upsert=True)


def _removing(*attempts: str) -> Document:
    return {"$unset": {f"holders.{one}": "" for one in attempts}, "$inc": {"used": -len(attempts)}}
