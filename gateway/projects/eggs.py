"""Stores deployed eggs, and decides which egg counts if a node's egg differs from the stored one."""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from pydantic import BaseModel, Field, TypeAdapter
from pymongo import ASCENDING, ReturnDocument
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import Egg
from gateway.contract.outbox import open_file
from gateway.contract.records import SpiderInfo
from gateway.crash_points import state_change
from gateway.stores.documents import Documents, reader, text
from gateway.stores.mongo import Document, Repeating

log = structlog.get_logger()

#: The size of the largest egg that the gateway accepts and stores, in bytes.
MAX_EGG = 64 << 20
#: Names of projects and versions that can be part of a file's name.
PROJECT_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_ .-]{0,98}[A-Za-z0-9_-])?")
_VERSION = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,99}")


class Content(NamedTuple):
    """The bytes of one upload."""

    #: New for each upload, so that old and new content are never mixed up during a read.
    id: str
    #: 64 hexadecimal digits.
    sha256: str
    size: int


class KeptEgg(NamedTuple):
    """What MongoDB stores about one version."""

    egg: Egg
    #: `None` if the version was deleted. This is remembered, so that a node that still has it does not bring it back.
    content: Content | None
    #: When it was stored or deleted.
    changed_at: datetime
    #: Whether its spiders are stored with it.
    described: bool = False


class EggOnNode(NamedTuple):
    """The file that a node runs for one version."""

    sha256: str
    #: By the node's clock.
    deployed_at: datetime


class Standing(StrEnum):
    """How an egg on a node compares with the stored one."""

    AGREED = "agreed"
    #: It was deployed on this node with Scrapyd's own tools, so it replaces the stored egg.
    NEWER = "newer"
    #: The version was deployed again while the node was away.
    REPLACED = "replaced"
    #: The version was deleted while the node was away.
    DELETED = "deleted"


def standing(on_node: EggOnNode, kept: KeptEgg | None, known: Collection[str]) -> Standing:
    """How the node's egg compares with the stored one. `known` contains the SHA-256 of eggs that the node and the
    store have agreed on, or that were delivered to the node: any other egg was deployed there later. If it is empty,
    the age of the node's file decides.
    """
    if kept is None:
        return Standing.NEWER
    if kept.content is not None and kept.content.sha256 == on_node.sha256:
        return Standing.AGREED
    is_old = on_node.sha256 in known if known else on_node.deployed_at < kept.changed_at
    if not is_old:
        return Standing.NEWER
    return Standing.DELETED if kept.content is None else Standing.REPLACED


def is_file_name(egg: Egg) -> bool:
    """Whether its project and version can be part of a file name, as `../../x` cannot."""
    return bool(PROJECT_NAME.fullmatch(egg.project) and _VERSION.fullmatch(egg.version))


# --- eggs: each deployed version is stored, so that it can be delivered to nodes that lack it.
#
# The chunks of a content are written first, with a new content id that no version has yet. Then one write puts this
# id into the version's document. If chunks belong to no version for long, the process that wrote them has died.

#: How many bytes of an egg one chunk has.
CHUNK = 4 << 20
#: Descriptions with more bytes, of one spider or of all spiders of an egg, are left out: a document has no room for
#: them, and they must not keep others from being stored.
_LONGEST_DESCRIPTION = 15 << 20
_INFOS = TypeAdapter(list[SpiderInfo])


class EggTooLargeError(ValueError):
    """The egg is too large to be stored."""


class EggDamagedError(Exception):
    """The stored bytes differ from those that were uploaded."""


class DescribedEgg(NamedTuple):
    """A version, with its spiders as far as they are known."""

    egg: Egg
    #: `None` if the version was deleted.
    content_id: str | None
    spiders: list[SpiderInfo]


class EggStore:
    """The collections `eggs` and `egg_chunks`."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._eggs = database["eggs"]
        self._kept = Documents(self._eggs, read_egg)
        self._described = Documents(self._eggs, read_described)
        self._chunks = database["egg_chunks"]
        self._clock = clock

    @state_change("eggs.write")
    def write(self, path: Path) -> Content:
        """Store the bytes of the file; they belong to no version yet. Raises `EggTooLargeError`, `OSError`."""
        content_id, digest, size = uuid.uuid4().hex, hashlib.sha256(), 0
        with os.fdopen(open_file(path), "rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_EGG:
                raise EggTooLargeError(f"{path.name} is larger than {MAX_EGG >> 20} MiB")
            while piece := file.read(CHUNK):
                chunk = {"_id": f"{content_id}:{size:012d}", "data": piece, "written_at": self._clock()}
                self._chunks.insert_one(chunk)
                digest.update(piece)
                size += len(piece)
        return Content(content_id, digest.hexdigest(), size)

    @state_change("eggs.put")
    def put(self, egg: Egg, content: Content, before: KeptEgg | None, spiders: Sequence[SpiderInfo] = ()) -> bool:
        """Make this the version's content, unless the version has changed since `before` was read. Returns whether it
        was done.
        """
        document: Document = {
            "project": egg.project,
            "version": egg.version,
            "content": content._asdict(),
            "changed_at": self._clock(),
            "spiders": _dumped(spiders),
        }
        # if the stored document has changed, the upsert is refused as a duplicate
        query = {"_id": _egg_name(egg), "content.id": _content_id(before), "changed_at": before and before.changed_at}
        try:
            result = self._eggs.replace_one(query, document, upsert=before is None)
        except DuplicateKeyError:
            return False
        return bool(result.matched_count or result.upserted_id)

    @state_change("eggs.describe")
    def describe(self, egg: Egg, content: Content, spiders: Sequence[SpiderInfo]) -> None:
        """Store which spiders this content has."""
        query = {"_id": _egg_name(egg), "content.id": content.id}
        self._eggs.update_one(query, {"$set": {"spiders": _dumped(spiders)}})

    @state_change("eggs.delete")
    def delete(self, egg: Egg) -> None:
        """Delete the version. Its document stays, with the time of the deletion."""
        gone = {"project": egg.project, "version": egg.version, "content": None, "changed_at": self._clock()}
        self._eggs.replace_one({"_id": _egg_name(egg)}, gone, upsert=True)

    @state_change("eggs.lose")
    def lose(self, kept: KeptEgg) -> None:
        """Delete a damaged egg's document. The egg is stored again from the next node that has it."""
        self._eggs.delete_one({"_id": _egg_name(kept.egg), "content.id": _content_id(kept)})

    @state_change("eggs.discard")
    def discard(self, content: Content) -> None:
        """Remove the chunks of a content that belongs to no version, or no longer."""
        Repeating(self._chunks).delete_many({"_id": {"$gt": f"{content.id}:", "$lt": f"{content.id};"}})

    def get(self, egg: Egg) -> KeptEgg | None:
        return self.find([egg]).get(egg)

    def find(self, eggs: Iterable[Egg]) -> dict[Egg, KeptEgg]:
        """The eggs among these that are stored or were deleted."""
        found = self._eggs.find({"_id": {"$in": [_egg_name(egg) for egg in eggs]}})
        return {kept.egg: kept for kept in self._kept.many(found)}

    def described(self, known: Collection[DescribedEgg] = ()) -> list[DescribedEgg]:
        """All versions, with their spiders as far as they are known. `known` is the result of an earlier call:
        spiders in it are not read again, because a content always has the same spiders, and there may be thousands.
        """
        by_content = {one.content_id: one for one in known if one.spiders}
        same = list(self._eggs.find({"content.id": {"$in": list(by_content)}}, {"content.id": 1})) if known else []
        kept = [by_content[one["content"]["id"]] for one in same]
        other = {"$nin": [one["_id"] for one in same]}
        fields = {"project": 1, "version": 1, "content": 1, "spiders": 1}
        return [*kept, *self._described.many(self._eggs.find({"_id": other}, fields))]

    def any(self) -> bool:
        return self._eggs.find_one({}, {"_id": 1}) is not None

    def read(self, content: Content) -> Iterator[bytes]:
        """Yields the content's bytes. Raises `EggDamagedError` at the end if they are not those that were
        uploaded.
        """
        digest, size = hashlib.sha256(), 0
        query = {"_id": {"$gt": f"{content.id}:", "$lt": f"{content.id};"}}
        for chunk in self._chunks.find(query).sort("_id", ASCENDING).batch_size(1):
            data = bytes(chunk["data"])
            digest.update(data)
            size += len(data)
            yield data
        if (digest.hexdigest(), size) != (content.sha256, content.size):
            raise EggDamagedError(f"{size} of {content.size} bytes are there, or their SHA-256 differs")

    @state_change("eggs.sweep")
    def sweep(self, before: datetime) -> int:
        """Remove chunks that were written before this time and belong to no version. Returns how many were removed.
        If a version cannot be read, nothing is removed, because some may be its chunks.
        """
        kept = [kept for _, kept in self._kept.each(self._eggs.find({"content": {"$ne": None}}))]
        if None in kept:
            return 0
        used = {_content_id(one) for one in kept}
        old = self._chunks.find({"written_at": {"$lt": before}}, {"_id": 1})
        left = [chunk["_id"] for chunk in old if chunk["_id"].partition(":")[0] not in used]
        if left:
            Repeating(self._chunks).delete_many({"_id": {"$in": left}})
        return len(left)


def _egg_name(egg: Egg) -> str:
    return f"{egg.project}/{egg.version}"


def _egg(document: Document) -> Egg:
    return Egg(text(document["project"]), text(document["version"]))


def _content_id(kept: KeptEgg | None) -> str | None:
    return kept.content.id if kept and kept.content else None


def read_egg(document: Document) -> KeptEgg:
    content: Any = document["content"]
    read = Content(content["id"], content["sha256"], content["size"]) if content else None
    return KeptEgg(_egg(document), read, document["changed_at"], described=bool(document.get("spiders")))


def read_described(document: Document) -> DescribedEgg:
    spiders: str | None = document.get("spiders")
    infos = _INFOS.validate_json(spiders, extra="ignore") if spiders else []
    content: Any = document["content"]
    return DescribedEgg(_egg(document), content["id"] if content else None, infos)


def _dumped(spiders: Sequence[SpiderInfo]) -> str | None:
    # stored as text, because not every database accepts the keys of JSON Schemas, such as `$ref`
    text = _INFOS.dump_json(list(spiders)) if spiders else b""
    return text.decode() if 0 < len(text) <= _LONGEST_DESCRIPTION else None


# --- copies: which egg of each version each node has, and how deliveries to the node have gone

#: The longest delivery of a version to a node. During this time no other process begins one.
LEASE = timedelta(seconds=150)
#: For this long after the lease, an egg may still arrive that a killed worker was delivering.
_LATE = timedelta(minutes=3)
#: How many SHA-256 are remembered for a copy while an egg is on its way.
_REMEMBERED = 8


class EggCopy(BaseModel):
    """One version on one node."""

    node: str
    project: str
    version: str
    #: SHA-256 of the file on the node; `None` if there is none (yet).
    has: str | None = None
    #: SHA-256 of eggs that the node and the store have agreed on, or that were delivered to the node.
    known: list[str] = Field(default_factory=list)
    #: Whether the node's egg must be replaced or removed.
    outdated: bool | None = None
    #: Until when a process is delivering the egg.
    leased_until: datetime | None = None
    #: When the first delivery since the last success or refusal began. Release 0.2.0 does not store it.
    begun_at: datetime | None = None
    #: SHA-256 of the egg that the fields below are about.
    sha256: str | None = None
    #: The egg is not delivered again before this time.
    not_before: datetime | None = None
    failures: int = 0
    #: Why the node did not accept the egg.
    message: str | None = None

    @property
    def egg(self) -> Egg:
        return Egg(self.project, self.version)

    @property
    def begun(self) -> datetime | None:
        """Since when the egg is on its way to the node; `None` if it is not."""
        return self.begun_at or (self.leased_until and self.leased_until - LEASE)

    def waits(self, now: datetime, sha256: str | None) -> bool:
        """Whether this egg must not be delivered to the node now."""
        if self.leased_until is not None and self.leased_until > now:
            return True
        return self.sha256 == sha256 and self.not_before is not None and self.not_before > now


class EggCopies:
    """The collection `egg_copies`."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._copies = database["egg_copies"]
        self._documents = Documents(self._copies, reader(EggCopy))
        self._places = Documents(self._copies, _place)
        self._clock = clock

    # --- used by the node's tailer

    @state_change("egg_copies.agree")
    def agree(self, node: str, egg: Egg, sha256: str) -> None:
        """Record that the node has the stored egg."""
        settled = {**_about(node, egg), "has": sha256, "known": [sha256]}
        passing = ("outdated", "leased_until", "begun_at", "sha256", "not_before", "failures", "message")
        nothing = dict.fromkeys(passing, "")
        # while an egg is on its way there, its SHA-256 must not be forgotten
        quiet = [{"leased_until": None}, {"leased_until": {"$lte": self._clock() - _LATE}}]
        try:
            self._copies.update_one(
                {"_id": _copy_name(node, egg), "$or": quiet}, {"$set": settled, "$unset": nothing}, upsert=True
            )
        except DuplicateKeyError:
            here: Document = {"$set": {"has": sha256}, "$addToSet": {"known": sha256}, "$unset": {"outdated": ""}}
            self._copies.update_one({"_id": _copy_name(node, egg)}, here)

    @state_change("egg_copies.mark_outdated")
    def mark_outdated(self, node: str, egg: Egg, sha256: str) -> None:
        """Record that the node's egg must be replaced or removed."""
        marked = {**_about(node, egg), "has": sha256, "outdated": True}
        self._copies.update_one({"_id": _copy_name(node, egg)}, {"$set": marked}, upsert=True)

    @state_change("egg_copies.gone")
    def gone(self, node: str, egg: Egg) -> None:
        """Record that the egg is gone from the node."""
        self._copies.delete_one({"_id": _copy_name(node, egg), "leased_until": None})
        self._copies.update_one({"_id": _copy_name(node, egg)}, {"$unset": {"has": "", "outdated": ""}})

    def of_node(self, node: str) -> dict[Egg, EggCopy]:
        return {copy.egg: copy for copy in self._documents.many(self._copies.find({"node": node}))}

    @state_change("egg_copies.outdate")
    def outdate(self, egg: Egg, sha256: str) -> None:
        """Mark all copies with another content than this new one as outdated. Their nodes get no work for this
        version until they have the new content.
        """
        query = {"project": egg.project, "version": egg.version, "has": {"$nin": [None, sha256]}}
        Repeating(self._copies).update_many(query, {"$set": {"outdated": True}})

    # --- used by the process that delivers eggs

    @state_change("egg_copies.begin")
    def begin(self, node: str, egg: Egg, sha256: str | None) -> EggCopy | None:
        """Begin a delivery, or, if `sha256` is `None`, a removal. Returns `None` if the node already has the egg, if
        a delivery is already on its way, or if it must not be tried again yet.
        """
        now = self._clock()
        arriving = {"$push": {"known": {"$each": [sha256], "$slice": -_REMEMBERED}}} if sha256 else {}
        free = {"$or": [{"leased_until": None}, {"leased_until": {"$lte": now}}]}
        due = {"$or": [{"not_before": None}, {"not_before": {"$lte": now}}, {"sha256": {"$ne": sha256}}]}
        other = {"$or": [{"has": {"$ne": sha256}}, {"outdated": True}]}
        try:
            document = self._copies.find_one_and_update(
                {"_id": _copy_name(node, egg), "$and": [free, due, other]},
                {"$set": {**_about(node, egg), "leased_until": now + LEASE}, "$min": {"begun_at": now}, **arriving},
                upsert=True,
                return_document=ReturnDocument.AFTER,
            )
        except DuplicateKeyError:
            return None
        return self._documents.optional(document)

    @state_change("egg_copies.brought")
    def brought(self, copy: EggCopy, sha256: str | None, quiet_until: datetime) -> None:
        """Record that the node has accepted the egg, or removed it. No other delivery begins before `quiet_until`, by
        which time the node itself reports this.
        """
        # a removal is recorded only when the node reports it (`gone`)
        here = {"has": sha256} if sha256 else {}
        changes: Document = {
            "$set": {"sha256": sha256, "not_before": quiet_until, **here},
            "$unset": {"leased_until": "", "begun_at": "", "failures": "", "message": ""},
        }
        self._copies.update_one(_leased(copy), changes)

    @state_change("egg_copies.failed")
    def failed(
        self, copy: EggCopy, sha256: str | None, message: str, not_before: datetime, *, goes_on: bool = False
    ) -> None:
        """Record that the node has not accepted the egg. The delivery is tried again at `not_before`. With `goes_on`,
        the node has not failed, but is still installing the egg's requirements.
        """
        changes: Document = {
            "$set": {
                "sha256": sha256,
                "message": message,
                "not_before": not_before,
                "failures": copy.failures + 1 if copy.sha256 == sha256 else 1,
            },
            "$unset": {"leased_until": ""} if goes_on else {"leased_until": "", "begun_at": ""},
        }
        self._copies.update_one(_leased(copy), changes)

    @state_change("egg_copies.forget")
    def forget(self, nodes: Iterable[str]) -> None:
        """Delete the copies of all nodes except these."""
        Repeating(self._copies).delete_many({"node": {"$nin": list(nodes)}})

    def receivers(self) -> set[str]:
        """The nodes to which an egg is being delivered."""
        leased = {"leased_until": {"$gt": self._clock()}}
        return {copy.node for copy in self._documents.many(self._copies.find(leased))}

    def outdated(self, nodes: Collection[str]) -> list[tuple[str, Egg]]:
        """The eggs that must be replaced or removed, with their nodes, for these nodes. Copies of nodes that are
        gone, which may be any number, are not read.
        """
        query = {"outdated": True, "node": {"$in": list(nodes)}}
        return self._places.many(self._copies.find(query, {"node": 1, "project": 1, "version": 1})) if nodes else []

    def of_egg(self, egg: Egg) -> dict[str, EggCopy]:
        """The version's copies, by node."""
        found = self._copies.find({"project": egg.project, "version": egg.version})
        return {copy.node: copy for copy in self._documents.many(found)}


def _place(document: Document) -> tuple[str, Egg]:
    return text(document["node"]), _egg(document)


def _copy_name(node: str, egg: Egg) -> str:
    return f"{node}/{egg.project}/{egg.version}"


def _about(node: str, egg: Egg) -> Document:
    return {"node": node, "project": egg.project, "version": egg.version}


def _leased(copy: EggCopy) -> Document:
    return {"_id": _copy_name(copy.node, copy.egg), "leased_until": copy.leased_until}


# --- the spiders that can be run: of each node and of the stored eggs, with the schemas of their parameters

#: The id of the document in `project_versions` that counts changes. It is no project's name: these have no slash.
REVISION = "/"


class Revision:
    """A number that every deployment and publication of spiders increases. A process reads it with one small query,
    to find out whether the spiders that it has read are out of date. So a deployment takes effect in all processes as
    soon as it is answered.
    """

    def __init__(self, database: Database[Document]) -> None:
        self._projects = database["project_versions"]

    def number(self) -> int:
        found = self._projects.find_one({"_id": REVISION})
        return found["rev"] if found else 0

    @state_change("revision.increase")
    def increase(self) -> None:
        self._projects.update_one({"_id": REVISION}, {"$inc": {"rev": 1}}, upsert=True)


class SpiderStore:
    """The collection `spiders`."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._spiders = database["spiders"]
        self._documents = Documents(self._spiders, self._read)
        self._eggs = EggStore(database)
        #: The spiders of nodes (by their stored text) and of eggs that were last read, so that they are not parsed
        #: again.
        self._read_before: dict[str, SpiderInfo] = {}
        self._described_before: list[DescribedEgg] = []
        self._revision = Revision(database)
        self._clock = clock

    @state_change("spiders.publish")
    def publish(self, node: str, infos: Sequence[SpiderInfo]) -> None:
        """Replace the spiders that `node` can run. Only changes are written: there may be thousands of spiders, and a
        node publishes all of them when it starts, and again after an interruption. Schemas are stored as JSON text,
        because not every tool accepts their keys `$ref` and `$defs`, as MongoDB does since version 5.
        """
        now, has_changed = self._clock(), False
        stored = {one["_id"]: one.get("info") for one in self._spiders.find({"node": node}, {"info": 1})}
        for info in infos:
            name = f"{node}/{info.project}/{info.version or ''}/{info.name}"
            text = info.model_dump_json()
            if len(text.encode()) > _LONGEST_DESCRIPTION:
                log.warning("spider_not_published", project=info.project, version=info.version, bytes=len(text))
            elif stored.pop(name, None) != text:
                described = {"node": node, "project": info.project, "name": info.name, "info": text}
                self._spiders.update_one({"_id": name}, {"$set": {**described, "published_at": now}}, upsert=True)
                has_changed = True
        if stored:
            Repeating(self._spiders).delete_many({"_id": {"$in": list(stored)}})
        # also for unchanged spiders, because a node of an older release may have published its own since
        Repeating(self._spiders).update_many({"node": node}, {"$set": {"published_at": now}})
        if has_changed or stored:
            self._revision.increase()

    def all(self) -> list[SpiderInfo]:
        """All spiders, each once, ordered by project, name and version.

        If several nodes have published a spider, the last description counts, because a dead node may have an older
        release. Spiders of a stored egg that no node has are included, because the egg can be delivered. Spiders of a
        deleted version are left out, even if a dead node still has it.
        """
        kept = self._described_before = self._eggs.described(self._described_before)
        deleted = {described.egg for described in kept if described.content_id is None}
        found = self._spiders.find().sort([("project", ASCENDING), ("name", ASCENDING), ("published_at", ASCENDING)])
        read = [(document["info"], info) for document, info in self._documents.each(found) if info is not None]
        self._read_before = dict(read)
        infos = [info for described in kept for info in described.spiders]
        infos += [info for _, info in read]
        by_name = {(info.project, info.version, info.name): info for info in infos}
        alive = (info for info in by_name.values() if (info.project, info.version) not in deleted)
        return sorted(alive, key=lambda info: (info.project, info.name, info.version or ""))

    def _read(self, document: Document) -> SpiderInfo:
        return self._read_before.get(document["info"]) or read_spider(document)

    def nodes(self) -> set[str]:
        """The names of the nodes that have published spiders."""
        # a value that is not a text is reported as unreadable when the spiders are read
        return {node for node in self._spiders.distinct("node") if isinstance(node, str)}


def read_spider(document: Document) -> SpiderInfo:
    text(document["node"])
    return SpiderInfo.model_validate_json(document["info"], extra="ignore")
