"""The fair queue: chooses the job that goes next, and the node that is offered it.

Among the users with a job that fits, the user with the fewest running crawls is next. Among this user's jobs, the one
with the lowest rank is next.

If several users have the fewest crawls, the user whose last turn is longest ago is next. If the longest-waiting job
decided instead, users who share few slots would have to wait for the whole backlog of the user who came first.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import chain, islice, takewhile

from attrs import define, field

from gateway.contract.crawl import SETTINGS_PROTOCOL, Egg
from gateway.contract.outbox import PROTOCOLS
from gateway.dispatch.why_jobs_wait import why_no_node
from gateway.jobs.job import Partition, Requirements, WaitingReason
from gateway.jobs.queue import Candidate, Capacity, Front, JobQueue
from gateway.nodes.holds import HoldStore
from gateway.nodes.node import NodeState, user_resource
from gateway.nodes.store import Node
from gateway.projects.environment import ProjectStore

#: How many partitions are compared at once. If there are more, the next read continues with the others.
PARTITIONS = 100
#: Seconds after which the partitions are read again, because the order may have changed.
FRESH = 1.0
#: How many users' last turns are remembered.
REMEMBERED = 10_000
#: How many candidates are read ahead, of all partitions together.
READ_AHEAD = 64
_USER = user_resource("")


@define(eq=False, repr=False, slots=False)
class FairQueue:
    """The fair queue of one process: the users' last turns, and the partitions that the process has read. Nothing is
    stored: if each process is fair, all of them together are fair.

    The data may be a second old. This does no harm, because the assignment checks the job's state again.
    """

    _queue: JobQueue
    _holds: HoldStore
    #: How many crawls of one user may run at once; 0 means no limit.
    most: int = 0
    #: Not MongoDB's clock: if that were set back by an hour, the data would count as fresh for an hour.
    _monotonic: Callable[[], float] = time.monotonic
    #: The first candidates of each partition that was read; no entry is empty.
    partitions: dict[Partition, deque[Candidate]] = field(init=False, factory=dict)
    #: The partitions whose waiting jobs were all read.
    _whole: set[Partition] = field(init=False, factory=set)
    #: Whether `partitions` contains all partitions that fit.
    _is_all: bool = field(init=False, default=False)
    _read_at: float | None = field(init=False, default=None)
    #: The next read begins after this partition, if there are too many to compare at once.
    _after: str = field(init=False, default="")
    _turn: int = field(init=False, default=0)
    _last: dict[str, int] = field(init=False, factory=dict)

    def look(self) -> Selection:
        """Begin to choose jobs; only one thread at a time may do so."""
        if self._read_at is None or self._monotonic() - self._read_at > FRESH:
            self.partitions, self._read_at = {}, None
        return Selection(self)

    def named(self, job_ids: Sequence[str]) -> None:
        """Add the partitions of these jobs, which messages asked for: they may have been empty at the last read."""
        if self._read_at is None or not job_ids:
            # the partitions will be read before the next choice
            return
        for partition in self._queue.partitions_of(job_ids):
            self._whole.discard(partition)
            if partition not in self.partitions and (best := self._queue.best(partition, 1)):
                self.partitions[partition] = deque(best)

    def is_empty(self) -> bool:
        """Whether no job waits for a slot. Queries MongoDB only if no waiting job is known."""
        return not self.partitions and self._queue.is_empty()

    def running(self) -> Counter[str]:
        """How many crawls each user has running."""
        used = self._holds.used_by_kind(_USER)
        return Counter({resource.removeprefix(_USER): number for resource, number in used.items()})

    def full(self) -> set[str]:
        """Users who may not have more running crawls."""
        return {user for user, number in self.running().items() if number >= self.most} if self.most else set()

    def read(self, capacity: Capacity, but: Collection[str]) -> bool:
        """Read the first jobs of each partition that fits, without the jobs that were chosen already (`but`). If
        there are too many partitions, continues where the last read ended. Returns whether all partitions were read.
        """
        behind = self._queue.fronts(capacity.fits, self._after)
        before = takewhile(self._is_before, self._queue.fronts(capacity.fits)) if self._after else ()
        found = list(islice(chain(behind, before), PARTITIONS))
        self._is_all = len(found) < PARTITIONS
        self._after = "" if self._is_all else str(found[-1].candidates[0].partition)
        self._read_at = self._monotonic()
        self.partitions, self._whole = {}, set()
        for front in found:
            partition = front.candidates[0].partition
            if front.is_all:
                self._whole.add(partition)
            self._keep(partition, front.candidates, but)
            if partition not in self.partitions:
                self._read_on(partition, but)
        return self._is_all

    def _is_before(self, front: Front) -> bool:
        return str(front.candidates[0].partition) <= self._after

    def pop(self, partition: Partition, but: Collection[str]) -> Candidate:
        """Take the first job of the partition. `but` are the jobs that were chosen already."""
        best = self.partitions[partition].popleft()
        if not self._is_all:
            # the other partitions have a turn before this one has another
            del self.partitions[partition]
        elif not self.partitions[partition]:
            self._read_on(partition, {*but, best.job_id})
        return best

    def _read_on(self, partition: Partition, but: Collection[str]) -> None:
        """Read the next jobs of the partition."""
        found: list[Candidate] = []
        if partition not in self._whole:
            ahead = max(2, READ_AHEAD // max(1, len(self.partitions))) + len(but)
            found = self._queue.best(partition, ahead)
            if len(found) < ahead:
                self._whole.add(partition)
        self._keep(partition, found, but)

    def _keep(self, partition: Partition, found: Iterable[Candidate], but: Collection[str]) -> None:
        if left := deque(one for one in found if one.job_id not in but):
            self.partitions[partition] = left
        else:
            self.partitions.pop(partition, None)

    def last(self, user_id: str) -> int:
        """The sequence number of the user's last turn; 0 if the user had none."""
        return self._last.get(user_id, 0)

    def count(self, user_id: str) -> None:
        """Record that the user has a turn now."""
        self._turn += 1
        # delete the old entry first, so that the dictionary is in the order of the turns
        self._last.pop(user_id, None)
        self._last[user_id] = self._turn
        if len(self._last) > REMEMBERED:
            del self._last[next(iter(self._last))]


@define(eq=False, repr=False, slots=False)
class Selection:
    """One round of choosing jobs: how many crawls each user has, and which partitions were passed over."""

    _queue: FairQueue
    _running: Counter[str] | None = field(init=False, default=None)
    _passed: set[Partition] = field(init=False, factory=set)
    _on_their_way: set[str] = field(init=False, factory=set)
    _has_read: bool = field(init=False, default=False)
    _has_read_all: bool = field(init=False, default=False)

    def next(self, capacity: Capacity) -> Candidate | None:
        """The next job that fits into `capacity`. If there is none, reads the partitions again before returning
        `None`.
        """
        while not (partitions := self._that_may_go(capacity)):
            # a job that was added after the read sends a message of its own
            if self._has_read or self._has_read_all:
                return None
            self._has_read = True
            self._has_read_all = self._queue.read(capacity, self._on_their_way)
        partition = min(partitions, key=self._order)
        candidate = self._queue.pop(partition, self._on_their_way)
        self._on_their_way.add(candidate.job_id)
        self._has_read = False
        return candidate

    def started(self, candidate: Candidate) -> None:
        """Count the job, which has a node now, as running and as a turn of its user."""
        user = candidate.partition.user_id
        if self._running is not None:
            self._running[user] += 1
        self._queue.count(user)

    def pass_over(self, candidate: Candidate) -> None:
        """Put back a job that no node can take after all. Its partition is not tried again in this round."""
        self._passed.add(candidate.partition)
        self._on_their_way.discard(candidate.job_id)
        self._queue.partitions.setdefault(candidate.partition, deque()).appendleft(candidate)

    def _that_may_go(self, capacity: Capacity) -> list[Partition]:
        partitions = [
            partition
            for partition in self._queue.partitions
            if partition not in self._passed and capacity.fits(partition.requirements)
        ]
        most = self._queue.most
        # if only one user has waiting jobs, nothing needs to be counted
        if self._running is None and (most or len({partition.user_id for partition in partitions}) > 1):
            self._running = self._queue.running()
        return [partition for partition in partitions if not most or self._has(partition.user_id) < most]

    def _has(self, user_id: str) -> int:
        return 0 if self._running is None else self._running[user_id]

    def _order(self, partition: Partition) -> tuple[int, int, datetime]:
        user = partition.user_id
        return self._has(user), self._queue.last(user), self._queue.partitions[partition][0].rank


# --- which node is offered the job, judging by the last report of each node


def without_outdated(nodes: Sequence[Node], copies: Iterable[tuple[str, Egg]]) -> list[Node]:
    """The nodes, each without the eggs that a deployment has replaced: a node gets no jobs for an egg until it has
    the new content. `copies` are the outdated copies, each as its node and egg.
    """
    outdated = set(copies)
    return [
        node.model_copy(update={"eggs": [egg for egg in node.eggs if (node.id, egg) not in outdated]})
        for node in nodes
    ]


def configured_projects(projects: ProjectStore, nodes: Iterable[Node]) -> frozenset[str]:
    """Projects that give their crawls variables or settings. They are read only if a node does not support these."""
    return frozenset() if all(node.speaks(SETTINGS_PROTOCOL) for node in nodes) else projects.configured()


#: The protocols that not every node speaks.
_NEWER = sorted(PROTOCOLS - {1})
#: A node in one of these states gets jobs soon, or as soon as its disk has space. In any other state it gets none for
#: minutes, or until an operator acts.
_HOPEFUL = frozenset({NodeState.UP, NodeState.RESTING, NodeState.DISK_FULL})


class NodeChoice:
    """Chooses among the nodes as they were at `now`, and counts the jobs that it has placed on them since."""

    def __init__(
        self,
        nodes: Iterable[Node],
        now: datetime,
        dead_after: timedelta,
        configured: frozenset[str],
        busy: Collection[str] = (),
    ) -> None:
        """`configured` are the projects that `configured_projects` found for these nodes. The `busy` nodes are being
        called; they are offered more jobs when their call is done.
        """
        self._configured = configured
        states = [(node, node.state(now, dead_after)) for node in nodes]
        self._hopeful = [node for node, state in states if state in _HOPEFUL]
        up = [node for node, state in states if state is NodeState.UP and node.id not in busy]
        self._able = [node for node in up if node.free_slots and not node.is_tried]
        self._capacity: Capacity | None = None

    @property
    def able(self) -> list[Node]:
        """Nodes with a free slot, those with the most first. Nodes that have failed come last: otherwise a failing
        node, which has many free slots, would get all jobs.
        """
        return sorted(self._able, key=lambda node: (node.failures > 0, -node.free_slots, node.id))

    def capacity(self) -> Capacity | None:
        """The capacity for jobs that could start now; `None` if no job can."""
        if self._able and self._capacity is None:
            self._capacity = self._look()
        return self._capacity if self._able else None

    def _look(self) -> Capacity:
        capacity, newer = _capacity_of(self._able), dict[int, Capacity | None]()
        for protocol in _NEWER:
            nodes = [node for node in self._able if node.speaks(protocol)]
            # usually all nodes speak it; then it would be slow to go through thousands of eggs again
            is_all = len(nodes) == len(self._able)
            newer[protocol] = capacity if is_all else _capacity_of(nodes) if nodes else None
        return capacity._replace(newer=newer, configured=self._configured)

    def place(
        self, requirements: Requirements, avoid: Collection[str] = (), prefer: str | None = None
    ) -> Node | None:
        """The node that is offered a job with these requirements, which then counts as occupying a slot there; `None`
        if no node can take it. The node to `prefer` comes first, nodes to `avoid` last.
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
        able = self._speaking(self._able, requirements)
        project, version, render = requirements.project, requirements.version, requirements.render
        return [node for node in able if node.has_code(project, version) and node.has_slot(render=render)]

    def reason(self, requirements: Requirements) -> WaitingReason | None:
        """Why a job with these requirements cannot start now; `None` if it can."""
        if self._suitable(requirements):
            return None
        return why_no_node(self._speaking(self._hopeful, requirements), requirements)

    def _speaking(self, nodes: Iterable[Node], requirements: Requirements) -> list[Node]:
        protocol = requirements.with_configured(self._configured).protocol
        return [node for node in nodes if node.speaks(protocol)]


def _capacity_of(nodes: Sequence[Node]) -> Capacity:
    """The capacity of these nodes, each of which has a free slot."""
    browsers = [node for node in nodes if node.free_render_slots]
    rendered = frozenset(egg for node in browsers for egg in node.eggs) if browsers else None
    return Capacity(frozenset(egg for node in nodes for egg in node.eggs), rendered)
