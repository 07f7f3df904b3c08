"""What can be run: each node's catalogue of spiders and the schemas of their parameters."""

from __future__ import annotations

from collections.abc import Sequence

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.clock import Clock, utc_now
from gateway.domain.node_files import SpiderInfo
from gateway.storage.client import Document


class SpiderStore:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._spiders = database["spiders"]
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
        By project and name.
        """
        found = self._spiders.find().sort([("project", ASCENDING), ("name", ASCENDING), ("published_at", ASCENDING)])
        infos = (SpiderInfo.model_validate_json(document["info"]) for document in found)
        return list({(info.project, info.version, info.name): info for info in infos}.values())

    def nodes(self) -> set[str]:
        """Who has published something."""
        return set(self._spiders.distinct("node"))
