"""Which node may be offered a job, or why no node may. This is judged from the last report of each node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pymongo.database import Database

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT, Egg
from gateway.crash_points import state_change
from gateway.dispatch.why_jobs_wait import has_code, has_slot, why_no_node
from gateway.jobs.job import Job, Requirements, WaitingReason
from gateway.jobs.queue import FREE_TO_START, JobDocuments, JobQueue, change
from gateway.nodes.node import NodeState
from gateway.nodes.store import Node
from gateway.projects.eggs import EggCopy
from gateway.stores.mongo import Document


class Capacity(NamedTuple):
    """The capacity of all nodes together. A job of our own project, which every node has, fits on any free slot."""

    #: The eggs on nodes that have a free slot.
    eggs: frozenset[Egg] = frozenset()
    #: The eggs on nodes that also have a free render slot; `None` if no node has one.
    render_eggs: frozenset[Egg] | None = None

    def fits(self, requirements: Requirements) -> bool:
        eggs = self.render_eggs if requirements.render else self.eggs
        if eggs is None or requirements.project == DEFAULT_PROJECT:
            return eggs is not None
        if requirements.version is None:
            return any(egg.project == requirements.project for egg in eggs)
        return Egg(requirements.project, requirements.version) in eggs


# --- the eggs that waiting jobs need and that no node with a free slot has
class EggNeed(NamedTuple):
    egg: Egg
    #: Its job drives a browser.
    render: bool


class EggNeeds:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        self._queue = JobQueue(database, clock)
        self._clock = clock

    def lacking(self, capacity: Capacity) -> Iterator[EggNeed]:
        """The needs of jobs that could start now if a node with a free slot had their egg. They are read lazily: one
        query finds each need, however many jobs have it.
        """
        for requirements in self._queue.requirements():
            # our own project has no egg, and without a version it is not known which egg to deliver
            if requirements.project == DEFAULT_PROJECT or requirements.version is None or capacity.fits(requirements):
                continue
            if not requirements.render or capacity.render_eggs is not None:
                yield EggNeed(Egg(requirements.project, requirements.version), requirements.render)

    @state_change("egg_needs.tell")
    def tell(self, egg: Egg, message: str, limit: int) -> list[Job]:
        """Set the message of jobs that wait for this egg. Returns the jobs whose message changed, up to `limit`."""
        alike = (Requirements(egg.project, egg.version, render) for render in (False, True))
        partitions: list[Document] = [{"lane": {"$gt": f"{one}/", "$lt": one.end}} for one in alike]
        updated: list[Job] = []
        for partition in partitions:
            query = {**FREE_TO_START, **partition, "message": {"$ne": message}}
            for found in list(self._jobs.find(query, {"_id": 1}, limit=limit - len(updated))):
                updated += self._tell({**query, "_id": found["_id"]}, message)
            if len(updated) >= limit:
                break
        return updated

    def _tell(self, query: Document, message: str) -> list[Job]:
        job = self._documents.find_one_and_update(query, change(self._clock(), {"message": message}))
        return [job] if job else []


def without_outdated(nodes: Sequence[Node], copies: Iterable[EggCopy]) -> list[Node]:
    """The nodes, each without those eggs that a deployment has replaced since: it gets no work for them before it has
    the new ones. `copies` are the outdated ones.
    """
    outdated = {(copy.node, copy.egg) for copy in copies}
    return [
        node.model_copy(update={"eggs": [egg for egg in node.eggs if (node.id, egg) not in outdated]})
        for node in nodes
    ]


#: A node in one of these states gets work soon, or as soon as its disk has space. In any other state it gets none
#: for minutes, or until an operator acts.
_HOPEFUL = frozenset({NodeState.UP, NodeState.RESTING, NodeState.DISK_FULL})


class NodeChoice:
    """Chooses among the nodes as they were read at `now`, and counts the jobs that it has placed on them since."""

    def __init__(
        self, nodes: Iterable[Node], now: datetime, dead_after: timedelta, busy: Collection[str] = ()
    ) -> None:
        """A call to the `busy` nodes is under way; they are offered more work when it is done."""
        states = [(node, node.state(now, dead_after)) for node in nodes]
        self._hopeful = [node for node, state in states if state in _HOPEFUL]
        up = [node for node, state in states if state is NodeState.UP and node.id not in busy]
        self._able = [node for node in up if node.free_slots and not node.is_tried]
        self._capacity: Capacity | None = None

    @property
    def able(self) -> list[Node]:
        """Nodes with a free slot, the best first. Nodes that have failed come last: otherwise an empty one would get
        all jobs.
        """
        return sorted(self._able, key=lambda node: (node.failures > 0, -node.free_slots, node.id))

    def capacity(self) -> Capacity | None:
        """What could start now; `None` if no job can."""
        if self._able and self._capacity is None:
            self._capacity = self._look()
        return self._capacity if self._able else None

    def _look(self) -> Capacity:
        browsers = [node for node in self._able if node.free_render_slots]
        rendered = frozenset(egg for node in browsers for egg in node.eggs) if browsers else None
        return Capacity(frozenset(egg for node in self._able for egg in node.eggs), rendered)

    def place(
        self, requirements: Requirements, avoid: Collection[str] = (), prefer: str | None = None
    ) -> Node | None:
        """The node that is offered the job; the job occupies a slot there from now on. The node to `prefer` comes
        first, nodes to `avoid` last.
        """
        suitable = self._suitable(requirements)
        if not suitable:
            return None
        best = min(
            suitable,
            key=lambda node: (node.id != prefer, node.id in avoid, node.failures > 0, -node.free_slots, node.id),
        )
        best.used_slots += 1
        best.used_render_slots += requirements.render
        if requirements.render or not best.free_slots or best.failures:
            self._capacity = None
        # a node on probation gets one attempt at a time
        if not best.free_slots or best.failures:
            self._able.remove(best)
        return best

    def suits(self, requirements: Requirements) -> bool:
        """Whether a node could be offered a job with these requirements."""
        return bool(self._suitable(requirements))

    def _suitable(self, requirements: Requirements) -> list[Node]:
        return [node for node in self._able if has_code(node, requirements) and has_slot(node, requirements)]

    def reason(self, requirements: Requirements) -> WaitingReason | None:
        """Why a job with these requirements cannot start now; `None` if it can."""
        return None if self._suitable(requirements) else why_no_node(self._hopeful, requirements)
