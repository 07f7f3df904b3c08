"""Which node may be offered a job, and why there is none. Judged from what the nodes said last."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from pymongo.database import Database

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT, Egg
from gateway.crash_points import state_change
from gateway.jobs.job import Job, Requirements, WaitingReason
from gateway.jobs.queue import FREE_TO_START, JobDocuments, JobQueue, change
from gateway.nodes.node import NodeState
from gateway.nodes.store import Node
from gateway.stores.mongo import Document


class Capacity(NamedTuple):
    """Of all nodes together. A job of our own project, which is on every node, fits wherever there is room at all."""

    #: What was deployed where a slot is free.
    eggs: frozenset[Egg] = frozenset()
    #: What was deployed where a browser may be driven as well; `None` where none may.
    render_eggs: frozenset[Egg] | None = None

    def fits(self, requirements: Requirements) -> bool:
        eggs = self.render_eggs if requirements.render else self.eggs
        if eggs is None or requirements.project == DEFAULT_PROJECT:
            return eggs is not None
        if requirements.version is None:
            return any(egg.project == requirements.project for egg in eggs)
        return Egg(requirements.project, requirements.version) in eggs


# --- what waiting jobs need: the eggs that no node with room has
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
        """Of jobs that could be started now, if a node with room had their egg; each is looked for when it is asked
        for, by one look, however many jobs need it.
        """
        for requirements in self._queue.requirements():
            # of our own project, and of no certain version, there is nothing to bring
            if requirements.project == DEFAULT_PROJECT or requirements.version is None or capacity.fits(requirements):
                continue
            if not requirements.render or capacity.render_eggs is not None:
                yield EggNeed(Egg(requirements.project, requirements.version), requirements.render)

    @state_change("egg_needs.tell")
    def tell(self, egg: Egg, message: str, limit: int) -> list[Job]:
        """Let jobs that wait for this egg say why it does not come; those that did not say so."""
        alike = (Requirements(egg.project, egg.version, render) for render in (False, True))
        partitions: list[Document] = [{"lane": {"$gt": f"{one}/", "$lt": one.end}} for one in alike]
        told: list[Job] = []
        for partition in partitions:
            query = {**FREE_TO_START, **partition, "message": {"$ne": message}}
            for found in list(self._jobs.find(query, {"_id": 1}, limit=limit - len(told))):
                told += self._tell({**query, "_id": found["_id"]}, message)
            if len(told) >= limit:
                break
        return told

    def _tell(self, query: Document, message: str) -> list[Job]:
        job = self._documents.find_one_and_update(query, change(self._clock(), {"message": message}))
        return [job] if job else []


#: A node in one of these gets work soon, or as soon as its disk is freed; in any other not before somebody acts, or
#: for minutes.
_HOPEFUL = frozenset({NodeState.UP, NodeState.RESTING, NodeState.DISK_FULL})


class NodeChoice:
    """Of the nodes as they were read at `now`, and of what was put on them since."""

    def __init__(
        self, nodes: Iterable[Node], now: datetime, dead_after: timedelta, busy: Collection[str] = ()
    ) -> None:
        """Nodes that are `busy` are spoken to right now; they are offered more in a moment."""
        states = [(node, node.state(now, dead_after)) for node in nodes]
        self._hopeful = [node for node, state in states if state in _HOPEFUL]
        up = [node for node, state in states if state is NodeState.UP and node.id not in busy]
        self._able = [node for node in up if node.free_slots and not node.is_tried]
        self._capacity: Capacity | None = None

    @property
    def able(self) -> list[Node]:
        """Those with room, the best first. One that has failed before comes last: were it the emptiest, it would get
        all there is.
        """
        return sorted(self._able, key=lambda node: (node.failures > 0, -node.free_slots, node.id))

    def capacity(self) -> Capacity | None:
        """What could be started now; `None` if nothing."""
        if self._able and self._capacity is None:
            self._capacity = self._look()
        return self._capacity if self._able else None

    def _look(self) -> Capacity:
        browsers = [node for node in self._able if node.free_render_slots]
        rendered = frozenset(egg for node in browsers for egg in node.eggs) if browsers else None
        return Capacity(frozenset(egg for node in self._able for egg in node.eggs), rendered)

    def place(self, requirements: Requirements, avoid: Collection[str] = ()) -> Node | None:
        """The node that is offered the job, which counts there from now on; one to `avoid` comes last of all."""
        suitable = self._suitable(requirements)
        if not suitable:
            return None
        best = min(suitable, key=lambda node: (node.id in avoid, node.failures > 0, -node.free_slots, node.id))
        best.used_slots += 1
        best.used_render_slots += requirements.render
        if requirements.render or not best.free_slots or best.failures:
            self._capacity = None
        # one that has failed before has one attempt at a time
        if not best.free_slots or best.failures:
            self._able.remove(best)
        return best

    def suits(self, requirements: Requirements) -> bool:
        """Whether some node could be offered a job that needs this."""
        return bool(self._suitable(requirements))

    def _suitable(self, requirements: Requirements) -> list[Node]:
        return [node for node in self._able if _has_code(node, requirements) and _has_slot(node, requirements)]

    def reason(self, requirements: Requirements) -> WaitingReason | None:
        """Why a job that needs this cannot be started now; `None` if it can."""
        if self._suitable(requirements):
            return None
        steps: tuple[tuple[Callable[[Node, Requirements], bool], WaitingReason], ...] = (
            (_has_code, WaitingReason.NO_SUCH_PROJECT),
            (_has_slot, WaitingReason.CAPACITY),
            (_has_disk, WaitingReason.DISK_FULL),
        )
        left, reason = self._hopeful, WaitingReason.NO_NODE
        for is_suitable, reason_without in steps:
            if not left:
                return reason
            left, reason = [node for node in left if is_suitable(node, requirements)], reason_without
        # the node that is left only rests
        return WaitingReason.CAPACITY if left else reason


def _has_code(node: Node, requirements: Requirements) -> bool:
    return requirements.project == DEFAULT_PROJECT or any(
        egg.project == requirements.project and requirements.version in (None, egg.version) for egg in node.eggs
    )


def _has_slot(node: Node, requirements: Requirements) -> bool:
    return bool(node.free_render_slots if requirements.render else node.free_slots)


def _has_disk(node: Node, _: Requirements) -> bool:
    return not node.disk_full
