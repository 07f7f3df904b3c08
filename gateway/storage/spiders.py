"""What can be run: each node's catalogue of spiders and the schemas of their parameters; and what kept eggs have."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.clock import Clock, utc_now
from gateway.domain.node_files import SpiderInfo
from gateway.storage.client import Document
from gateway.storage.documents import Documents
from gateway.storage.eggs import EggStore


class SpiderStore:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._spiders = database["spiders"]
        self._documents = Documents(self._spiders, read_spider)
        self._eggs = EggStore(database)
        self._clock = clock

    @state_change("spiders.publish")
    def publish(self, node: str, infos: Sequence[SpiderInfo]) -> None:
        """What `node` can run now, in the place of what it could run before. Schemas are kept as they are: their
        `$ref` and `$defs` keys may be stored since MongoDB 5, but not in every tool, hence the JSON text.
        """
        kept, now = [], self._clock()
        for info in infos:
            name = f"{node}/{info.project}/{info.version or ''}/{info.name}"
            document = {
                "node": node,
                "project": info.project,
                "name": info.name,
                "info": info.model_dump_json(),
                "published_at": now,
            }
            self._spiders.update_one({"_id": name}, {"$set": document}, upsert=True)
            kept.append(name)
        self._spiders.delete_many({"node": node, "_id": {"$nin": kept}})

    def all(self) -> list[SpiderInfo]:
        """Every spider once, as the node says that published last: a dead one may have an older release of ours.
        Those of an egg that no node has any more are as the last one told them: it can be brought to another. Those
        of a version that was deleted are none, though a dead node may have it. By project and name.
        """
        kept = self._eggs.described()
        deleted = {described.egg for described in kept if described.is_deleted}
        found = self._spiders.find().sort([("project", ASCENDING), ("name", ASCENDING), ("published_at", ASCENDING)])
        infos = [info for described in kept for info in described.spiders]
        infos += self._documents.many(found)
        by_name = {(info.project, info.version, info.name): info for info in infos}
        alive = (info for info in by_name.values() if (info.project, info.version) not in deleted)
        return sorted(alive, key=lambda info: (info.project, info.name))

    def nodes(self) -> set[str]:
        """Who has published something."""
        return set(self._spiders.distinct("node"))


def read_spider(document: Document) -> SpiderInfo:
    return SpiderInfo.model_validate_json(document["info"], extra="ignore")
