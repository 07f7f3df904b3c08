"""Crawl nodes: who is alive, and which attempts hold their slots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from pydantic import BaseModel, ConfigDict, Field
from pymongo import ASCENDING, ReturnDocument
from pymongo.database import Database

from gateway.crash_points import state_change
from gateway.domain.clock import Clock, utc_now
from gateway.domain.room import Egg
from gateway.storage.client import Document


class Node(BaseModel):
    """One node document."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    id: str = Field(alias="_id")
    url: str
    max_slots: int
    #: Attempts, `<job>-<attempt>`; a set, so that taking and freeing are idempotent and cannot drift, and no attempt
    #: frees what the next one of its job holds.
    slots: list[str] = Field(default_factory=list)
    #: How many of its slots may drive a browser; 0 without one.
    max_render_slots: int = 0
    #: Those of `slots` that do.
    render_slots: list[str] = Field(default_factory=list)
    #: Attempts whose started mark is locked: their processes are alive.
    alive: list[str] = Field(default_factory=list)
    #: Attempts whose files are on the node, alive or not, shipped or not.
    present: list[str] = Field(default_factory=list)
    heartbeat_at: datetime
    #: When the tailer that beats now was started.
    beating_since: datetime
    #: Not offered new work before this.
    rest_until: datetime | None = None
    version: str = ""
    free_bytes: int | None = None
    #: Too little is free for new work.
    disk_full: bool = False
    #: What was deployed there. Our own project, which has no egg, is everywhere and not among them.
    eggs: list[Egg] = Field(default_factory=list)

    def is_alive(self, now: datetime, dead_after: timedelta) -> bool:
        return now - self.heartbeat_at < dead_after

    @property
    def free_slots(self) -> int:
        return max(0, self.max_slots - len(self.slots))

    @property
    def free_render_slots(self) -> int:
        return min(self.free_slots, max(0, self.max_render_slots - len(self.render_slots)))


class NodeStore:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._nodes = database["nodes"]
        self._clock = clock

    @state_change("nodes.heartbeat")
    def heartbeat(
        self,
        node: str,
        *,
        url: str,
        max_slots: int,
        alive: Sequence[str],
        present: Sequence[str],
        beating_since: datetime,
        version: str = "",
        free_bytes: int | None = None,
        disk_full: bool = False,
        max_render_slots: int = 0,
        eggs: Sequence[Egg] = (),
    ) -> bool:
        """Register the node, or renew what it says of itself; its slots are the dispatcher's and stay. Whether it was
        not known.
        """
        said = {
            "url": url,
            "max_slots": max_slots,
            "alive": list(alive),
            "present": list(present),
            "heartbeat_at": self._clock(),
            "beating_since": beating_since,
            "version": version,
            "free_bytes": free_bytes,
            "disk_full": disk_full,
            "max_render_slots": max_render_slots,
            "eggs": [list(egg) for egg in eggs],
        }
        empty: Document = {"$setOnInsert": {"slots": [], "render_slots": []}}
        return self._nodes.update_one({"_id": node}, {"$set": said, **empty}, upsert=True).upserted_id is not None

    def all(self) -> list[Node]:
        return [Node.model_validate(document) for document in self._nodes.find().sort("_id", ASCENDING)]

    def get(self, node: str) -> Node | None:
        document = self._nodes.find_one({"_id": node})
        return None if document is None else Node.model_validate(document)

    @state_change("nodes.take_slot")
    def take_slot(self, node: Node, attempt: str, *, render: bool = False) -> bool:
        """Hold a slot for the attempt, with `render` a render slot too; whether it has them now. It is one update."""
        most = {"slots": node.max_slots, **({"render_slots": node.max_render_slots} if render else {})}
        if min(most.values()) < 1:
            return False
        unchanged = {f"max_{kind}": number for kind, number in most.items()}
        room = [_holds_or_room(kind, attempt, number) for kind, number in most.items()]
        taken = self._nodes.find_one_and_update(
            {"_id": node.id, **unchanged, "$and": room},
            {"$addToSet": dict.fromkeys(most, attempt)},
            return_document=ReturnDocument.AFTER,
        )
        return taken is not None

    @state_change("nodes.free_slot")
    def free_slot(self, node: str, attempt: str) -> None:
        """Whatever the attempt holds there."""
        self._nodes.update_one({"_id": node}, {"$pull": {"slots": attempt, "render_slots": attempt}})

    @state_change("nodes.forget")
    def forget(self, node: Node) -> None:
        """Unless it has given a sign of life since it was read, or has an attempt."""
        self._nodes.delete_one({"_id": node.id, "heartbeat_at": node.heartbeat_at, "slots": []})

    @state_change("nodes.rest")
    def rest(self, node: str, until: datetime) -> None:
        """Offer the node nothing before `until`: it has just failed us."""
        self._nodes.update_one({"_id": node}, {"$set": {"rest_until": until}})


def _holds_or_room(slots: str, attempt: str, most: int) -> Document:
    """A member already, or fewer members than `most`, which is above 0."""
    return {"$or": [{slots: attempt}, {f"{slots}.{most - 1}": {"$exists": False}}]}
