"""Eggs: every version that was deployed, so that a node that lacks one can be brought it.

Chunks of a content are written first, under an id of their own, and are nobody's; then the version's document names
them, in one write. What is nobody's for long was left by somebody who died.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter
from pymongo import ASCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.crash_points import state_change
from gateway.domain.clock import Clock, utc_now
from gateway.domain.eggs import MAX_EGG, Content, KeptEgg
from gateway.domain.node_files import SpiderInfo, open_file
from gateway.domain.room import Egg
from gateway.storage.client import Document
from gateway.storage.documents import Documents

#: Bytes of an egg in one document.
CHUNK = 4 << 20
_INFOS = TypeAdapter(list[SpiderInfo])


class EggTooLargeError(ValueError):
    """It is not kept."""


class EggDamagedError(Exception):
    """What is kept is not what was."""


class DescribedEgg(NamedTuple):
    egg: Egg
    is_deleted: bool
    spiders: list[SpiderInfo]


class EggStore:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._eggs = database["eggs"]
        self._kept = Documents(self._eggs, read_egg)
        self._described = Documents(self._eggs, read_described)
        self._chunks = database["egg_chunks"]
        self._clock = clock

    @state_change("eggs.write")
    def write(self, path: Path) -> Content:
        """Keep the bytes of `path`, which are nobody's yet. Raises `EggTooLargeError`, `OSError`."""
        content_id, digest, size = uuid.uuid4().hex, hashlib.sha256(), 0
        with os.fdopen(open_file(path), "rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_EGG:
                raise EggTooLargeError(f"{path.name} has more than the {MAX_EGG >> 20} MiB that are kept")
            while piece := file.read(CHUNK):
                chunk = {"_id": f"{content_id}:{size:012d}", "data": piece, "written_at": self._clock()}
                self._chunks.insert_one(chunk)
                digest.update(piece)
                size += len(piece)
        return Content(content_id, digest.hexdigest(), size)

    @state_change("eggs.put")
    def put(self, egg: Egg, content: Content, before: KeptEgg | None, spiders: Sequence[SpiderInfo] = ()) -> bool:
        """Let the version be this content, unless it is no longer what it was `before`. Whether it was done."""
        document: Document = {
            "project": egg.project,
            "version": egg.version,
            "content": content._asdict(),
            "changed_at": self._clock(),
            "spiders": _dumped(spiders),
        }
        # an upsert that meets another document under this id is refused
        query = {"_id": _name(egg), "content.id": _content_id(before), "changed_at": before and before.changed_at}
        try:
            result = self._eggs.replace_one(query, document, upsert=before is None)
        except DuplicateKeyError:
            return False
        return bool(result.matched_count or result.upserted_id)

    @state_change("eggs.describe")
    def describe(self, egg: Egg, content: Content, spiders: Sequence[SpiderInfo]) -> None:
        """Write down which spiders are in this content."""
        query = {"_id": _name(egg), "content.id": content.id}
        self._eggs.update_one(query, {"$set": {"spiders": _dumped(spiders)}})

    @state_change("eggs.delete")
    def delete(self, egg: Egg) -> None:
        """What stays is that it was deleted, and when."""
        gone = {"project": egg.project, "version": egg.version, "content": None, "changed_at": self._clock()}
        self._eggs.replace_one({"_id": _name(egg)}, gone, upsert=True)

    @state_change("eggs.lose")
    def lose(self, kept: KeptEgg) -> None:
        """It is damaged: from the next node that has it it is kept anew."""
        self._eggs.delete_one({"_id": _name(kept.egg), "content.id": _content_id(kept)})

    @state_change("eggs.discard")
    def discard(self, content: Content) -> None:
        """Remove the chunks of what is nobody's (any more)."""
        self._chunks.delete_many({"_id": {"$gt": f"{content.id}:", "$lt": f"{content.id};"}})

    def get(self, egg: Egg) -> KeptEgg | None:
        return self.find([egg]).get(egg)

    def find(self, eggs: Iterable[Egg]) -> dict[Egg, KeptEgg]:
        """Those of them that are kept, or were deleted."""
        found = self._eggs.find({"_id": {"$in": [_name(egg) for egg in eggs]}})
        return {kept.egg: kept for kept in self._kept.many(found)}

    def described(self) -> list[DescribedEgg]:
        """Every version, with its spiders as far as they are known."""
        fields = {"project": 1, "version": 1, "content": 1, "spiders": 1}
        return self._described.many(self._eggs.find({}, fields))

    def any(self) -> bool:
        return self._eggs.find_one({}, {"_id": 1}) is not None

    def read(self, content: Content) -> Iterator[bytes]:
        """Its bytes. Raises `EggDamagedError`, at the end at the latest."""
        digest, size = hashlib.sha256(), 0
        query = {"_id": {"$gt": f"{content.id}:", "$lt": f"{content.id};"}}
        for chunk in self._chunks.find(query).sort("_id", ASCENDING).batch_size(1):
            data = bytes(chunk["data"])
            digest.update(data)
            size += len(data)
            yield data
        if (digest.hexdigest(), size) != (content.sha256, content.size):
            raise EggDamagedError(f"{size} of {content.size} bytes are there, and their SHA-256 is another one")

    @state_change("eggs.sweep")
    def sweep(self, before: datetime) -> int:
        """Remove chunks that were written `before` then and are nobody's; how many. None while a version cannot
        be read: they may be its own.
        """
        kept = [kept for _, kept in self._kept.each(self._eggs.find({"content": {"$ne": None}}))]
        if None in kept:
            return 0
        used = {_content_id(one) for one in kept}
        old = self._chunks.find({"written_at": {"$lt": before}}, {"_id": 1})
        left = [chunk["_id"] for chunk in old if chunk["_id"].partition(":")[0] not in used]
        if left:
            self._chunks.delete_many({"_id": {"$in": left}})
        return len(left)


def _name(egg: Egg) -> str:
    return f"{egg.project}/{egg.version}"


def _egg(document: Document) -> Egg:
    return Egg(document["project"], document["version"])


def _content_id(kept: KeptEgg | None) -> str | None:
    return kept.content.id if kept and kept.content else None


def read_egg(document: Document) -> KeptEgg:
    content: Any = document["content"]
    read = Content(content["id"], content["sha256"], content["size"]) if content else None
    return KeptEgg(_egg(document), read, document["changed_at"], described=bool(document.get("spiders")))


def read_described(document: Document) -> DescribedEgg:
    return DescribedEgg(_egg(document), document["content"] is None, _loaded(document.get("spiders")))


def _dumped(spiders: Sequence[SpiderInfo]) -> str | None:
    # as text: the keys of JSON Schemas may not be stored everywhere
    return _INFOS.dump_json(list(spiders)).decode() if spiders else None


def _loaded(spiders: str | None) -> list[SpiderInfo]:
    return _INFOS.validate_json(spiders, extra="ignore") if spiders else []
