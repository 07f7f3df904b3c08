"""Announces nodes that give no sign of life any more, and nodes that give signs of life again. Each is announced
once, however many workers see it.

For each node that was announced as down, there is one document. Nodes that an operator has drained are not announced.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple

from attrs import define, field
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.nodes.health import NodeWatch
from gateway.nodes.store import Node, NodeStore
from gateway.signals.delivery_store import DeliveryStore
from gateway.signals.endpoints import EndpointStore, tell
from gateway.signals.events import event_of_node
from gateway.stores.documents import Documents, moment, text
from gateway.stores.mongo import Document, Repeating

#: Seconds between two rounds; short enough for `NodeWatch`.
EVERY_SECONDS = 3.0


class DownNode(NamedTuple):
    node: str
    #: Its last sign of life.
    since: datetime


class NodeStateStore:
    """The `node_states` collection."""

    def __init__(self, database: Database[Document]) -> None:
        self._states = database["node_states"]
        self._documents = Documents(self._states, read_down)

    def down(self) -> dict[str, datetime]:
        """The nodes that are known to be down, and their last signs of life."""
        return dict(self._documents.many(self._states.find()))

    @state_change("node_states.put")
    def put(self, down: DownNode) -> None:
        # another worker may have been first
        with suppress(DuplicateKeyError):
            self._states.update_one({"_id": down.node}, {"$set": {"since": down.since}}, upsert=True)

    @state_change("node_states.remove")
    def remove(self, down: DownNode) -> None:
        Repeating(self._states).delete_many({"_id": down.node, "since": down.since})


def read_down(document: Document) -> DownNode:
    return DownNode(text(document["_id"]), moment(document["since"]))


@define(eq=False, repr=False, slots=False, kw_only=True)
class NodeAnnouncing:
    _states: NodeStateStore
    _nodes: NodeStore
    _deliveries: DeliveryStore
    _endpoints: EndpointStore
    _dead_after: timedelta
    _public_url: str = ""
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    _watch: NodeWatch = field(init=False)
    _looked_at: float = field(init=False, default=float("-inf"))

    def __attrs_post_init__(self) -> None:
        self._watch = NodeWatch(self._dead_after, self._monotonic)

    def look(self) -> None:
        """To be called every few seconds. Raises PyMongo's errors."""
        if self._monotonic() - self._looked_at < EVERY_SECONDS:
            return
        self._looked_at = self._monotonic()
        nodes, known = self._nodes.all(attempts=False), self._states.down()
        dead = {node.id for node in nodes if self._watch.is_dead(node.id, node.heartbeat_at)}
        for node in nodes:
            told = known.get(node.id)
            if node.id in dead and told is None and node.draining_since is None:
                self._is_down(node)
            elif node.id not in dead and told is not None and told < node.heartbeat_at:
                self._is_up(DownNode(node.id, told))
        # a node that was forgotten counts neither as down nor as up
        for gone in known.keys() - {node.id for node in nodes}:
            self._states.remove(DownNode(gone, known[gone]))

    def _is_down(self, node: Node) -> None:
        down = DownNode(node.id, node.heartbeat_at)
        self._tell(down, is_up=False)
        self._states.put(down)

    def _is_up(self, down: DownNode) -> None:
        self._tell(down, is_up=True)
        self._states.remove(down)

    def _tell(self, down: DownNode, *, is_up: bool) -> None:
        event = event_of_node(*down, self._clock(), self._public_url, is_up=is_up)
        tell(event, self._endpoints, self._deliveries)
