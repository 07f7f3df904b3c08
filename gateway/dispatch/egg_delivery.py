"""Delivers eggs to nodes that lack them or have an old content, and removes deleted versions from nodes."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

import structlog
from attrs import define, field
from pymongo.database import Database

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT, Egg
from gateway.contract.reasons import Reason
from gateway.crash_points import state_change
from gateway.dispatch.fair_queue import NodeChoice, configured_projects, without_outdated
from gateway.errors import NodeError, NodeRefusedError, NodeUnreachableError, StillInstallingError
from gateway.jobs.job import Job, Requirements
from gateway.jobs.messages import EventPublisher
from gateway.jobs.queue import FREE_TO_START, Capacity, JobDocuments, JobQueue, change
from gateway.nodes.node import user_resource
from gateway.nodes.scrapyd import ScrapydClient, why_not_taken
from gateway.nodes.store import Node, NodeStore
from gateway.nodes.tasks import NodeStep, NodeTasks
from gateway.projects.eggs import Content, EggCopies, EggCopy, EggDamagedError, EggStore, KeptEgg
from gateway.projects.environment import ProjectStore
from gateway.stores.mongo import Document, within

log = structlog.get_logger()

#: Seconds between two looks for eggs that nodes lack.
LOOK_SECONDS = 2.0
#: Additional seconds if no egg is stored. The first deployment sends its egg to the nodes itself, so this is no
#: delay.
NONE_SECONDS = 6.0
#: Seconds between two clean-ups.
CLEAN_SECONDS = 600.0
#: If a stored chunk belongs to no version after this time, the process that stored it has died.
ORPHANED_AFTER = timedelta(hours=1)
#: How many eggs one look delivers, and how many outdated eggs it replaces.
BATCH = 20
#: If a node has not accepted the egg after this time, the next node is tried.
PATIENCE = timedelta(seconds=20)


# --- the eggs that waiting jobs need and that no node with a free slot has


#: Whether another delivery of the egg may begin, for the user whose jobs wait for it; empty: for no user.
MayHave = Callable[[Egg, str], bool]


class EggNeed(NamedTuple):
    """An egg that waiting jobs need."""

    egg: Egg
    #: Whether the jobs that need it use a browser.
    render: bool
    #: The protocol that a node must speak to run them.
    protocol: int = 1
    #: The user of these jobs; if there are several, the first who may have another delivery.
    user_id: str = ""


class EggNeeds:
    """Finds the eggs that waiting jobs need, and tells users why these jobs wait."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        self._queue = JobQueue(database, clock)
        self._clock = clock

    def lacking(self, capacity: Capacity, may_have: MayHave) -> Iterator[EggNeed]:
        """The needs of jobs that could start now if a node with a free slot had their egg, and whose users may have
        another delivery. They are read lazily: two queries find each need, however many jobs have it.
        """
        for requirements in self._queue.requirements():
            # the default project has no egg, and without a version it is not known which egg to deliver
            if requirements.project == DEFAULT_PROJECT or requirements.version is None or capacity.fits(requirements):
                continue
            able = capacity.of(requirements)
            if able is not None and (able.render_eggs is not None or not requirements.render):
                egg = Egg(requirements.project, requirements.version)
                protocol = requirements.with_configured(capacity.configured).protocol
                for user in islice((user for user in self._queue.users(requirements) if may_have(egg, user)), 1):
                    yield EggNeed(egg, requirements.render, protocol, user)

    @state_change("egg_needs.tell")
    def tell(self, egg: Egg, message: str, limit: int, reason: Reason | None = None) -> list[Job]:
        """Set the message of up to `limit` jobs that wait for this egg, and its code (`reason`). Returns the jobs
        whose message has changed.
        """
        # the range of protocol 1 includes the partitions of newer protocols
        alike = (Requirements(egg.project, egg.version, render) for render in (False, True))
        partitions: list[Document] = [{"lane": {"$gt": str(one), "$lt": one.end}} for one in alike]
        updated: list[Job] = []
        for partition in partitions:
            query = {**FREE_TO_START, **partition, "message": {"$ne": message}}
            for found in list(self._jobs.find(query, {"_id": 1}, limit=limit - len(updated))):
                updated += self._change_message({**query, "_id": found["_id"]}, message, reason)
            if len(updated) >= limit:
                break
        return updated

    def _change_message(self, query: Document, message: str, reason: Reason | None) -> list[Job]:
        said = {"message": message, **({"reason": reason} if reason else {})}
        update = change(self._clock(), said, unset=() if reason else ("reason",))
        job = self._documents.find_one_and_update(query, update)
        return [job] if job else []


class WantedEgg(NamedTuple):
    """An egg that is to be delivered to a node, or removed from it."""

    node: str
    egg: Egg
    #: The user whose jobs wait for it; empty for a replacement or a removal.
    user_id: str = ""


@define(eq=False, repr=False, slots=False, kw_only=True)
class EggWatch:
    """Finds the eggs that are to be delivered to nodes or removed from them."""

    _eggs: EggStore
    _copies: EggCopies
    _needs: EggNeeds
    _nodes: NodeStore
    _projects: ProjectStore
    _dead_after: timedelta
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    _looked_at: float = field(init=False, default=float("-inf"))
    _cleaned_at: float = field(init=False, default=float("-inf"))

    def wanted(self, may_have: MayHave) -> Iterator[WantedEgg]:
        """Yields eggs that are to be delivered to a node or removed from it. It looks every `LOOK_SECONDS`, and
        yields nothing in between. `may_have` is called before each egg is yielded, so that it can count the earlier
        ones.
        """
        if self._monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = self._monotonic()
        if not self._eggs.any():
            self._looked_at += NONE_SECONDS
            return
        now, nodes = self._clock(), self._nodes.all(attempts=False)
        outdated = self._copies.outdated([node.id for node in nodes if node.is_alive(now, self._dead_after)])
        # choose at random, so that eggs that cannot be replaced do not hold up the others
        for node, egg in random.sample(outdated, min(len(outdated), BATCH)):
            if may_have(egg, ""):
                yield WantedEgg(node, egg)
        configured = configured_projects(self._projects, nodes)
        choice = NodeChoice(without_outdated(nodes, outdated), now, self._dead_after, configured)
        yield from self._lacking(choice, may_have)
        if self._monotonic() - self._cleaned_at >= CLEAN_SECONDS:
            self._cleaned_at = self._monotonic()
            self._clean()

    def _lacking(self, choice: NodeChoice, may_have: MayHave) -> Iterator[WantedEgg]:
        capacity = choice.capacity()
        if capacity is None:
            return
        lacking, busy = self._needs.lacking(capacity, may_have), self._copies.receivers()
        # needs without a receiver are skipped, so that they do not hold up the others
        deliveries = (
            (node, need) for need in lacking if (node := self._receiver(need, choice.able, busy)) is not None
        )
        for node, need in islice(deliveries, BATCH):
            busy.add(node.id)
            yield WantedEgg(node.id, need.egg, need.user_id)

    def _receiver(self, need: EggNeed, able: list[Node], busy: Collection[str]) -> Node | None:
        """The node with the most free slots that may get the egg; `None` if there is none, or while another node is
        getting it. Nodes that are `busy` with another egg come last, because they may hang.
        """
        kept = self._eggs.get(need.egg)
        if kept is None or kept.content is None:
            return None
        now, copies = self._clock(), self._copies.of_egg(need.egg)
        if any(now - copy.begun < PATIENCE for copy in copies.values() if copy.begun):
            return None
        fitting = [node for node in able if node.speaks(need.protocol) and node.has_slot(render=need.render)]
        waiting = {node for node, copy in copies.items() if copy.waits(now, kept.content.sha256)}
        free = [node for node in fitting if node.id not in waiting]
        return min(free, key=lambda node: node.id in busy, default=None)

    def _clean(self) -> None:
        self._copies.forget(self._nodes.names())
        if removed := self._eggs.sweep(self._clock() - ORPHANED_AFTER):
            log.info("orphaned_egg_chunks_removed", chunks=removed)


#: Seconds that reading an egg may take. Together with the call to the node this is less than the lease on the copy.
READ_SECONDS = 20.0
#: How long nothing is sent for an egg that a node has accepted: the node reports it only some seconds later, and
#: until then another look would send it again.
QUIET = timedelta(seconds=30)
#: Time before the next try, doubled with each try: if the node did not answer, and if it refused the egg.
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=2)
FIRST_REFUSAL, LONGEST_REFUSAL = timedelta(minutes=1), timedelta(hours=1)
#: How many waiting jobs get a message at once about why they wait.
TOLD = 200
#: How many nodes get eggs at once (each node gets one egg at a time); and how many deliveries may be queued or under
#: way for one project, for one user, and for no user (replacements and removals). The second limit keeps an egg that
#: hangs on import, on one node after another, from taking all places.
PLACES, OF_ONE = 4, 2
#: Seconds that a delivery waits until the egg's requirements are installed. The node continues to install them, and
#: is asked again.
INSTALL_SECONDS = 1.0


class EggRefusal(NamedTuple):
    """A node has read an egg, and refused it."""

    egg: Egg
    sha256: str
    node: str
    message: str
    reason: Reason | None


class DeployFailures(Protocol):
    """What records that nodes have refused an egg."""

    def refused(self, refusal: EggRefusal) -> None:
        """Record the refusal. Never raises. May be called any number of times for the same egg."""


@define(eq=False, repr=False, slots=False, kw_only=True)
class EggDelivery:
    """Delivers eggs to nodes, and removes them, in the background."""

    _eggs: EggStore
    _copies: EggCopies
    _needs: EggNeeds
    _nodes: NodeStore
    _scrapyd: ScrapydClient
    _publisher: EventPublisher
    _failures: DeployFailures
    _clock: Clock = utc_now
    #: Separate from the tasks of `Dispatch`, because a delivery takes minutes and no crawl may wait behind it.
    tasks: NodeTasks = field(init=False)
    #: The deliveries that are queued or under way, each with the project and user for which it counts.
    _shares: dict[tuple[str, Egg], tuple[str, ...]] = field(init=False, factory=dict)
    _lock: threading.Lock = field(init=False, factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        # a failed delivery is not counted against the node, which may still run crawls
        self.tasks = NodeTasks(self._scrapyd, PLACES, self._clock)

    def may_have(self, egg: Egg, user_id: str) -> bool:
        """Whether another delivery may begin: both the project and the user have fewer than `OF_ONE`. An empty
        `user_id` counts as a user.
        """
        with self._lock:
            taken = Counter(chain.from_iterable(self._shares.values()))
        return all(taken[one] < OF_ONE for one in _sharers(egg, user_id))

    def bring_soon(self, wanted: WantedEgg) -> None:
        """Queue the egg behind the node's other deliveries, and return at once. Does nothing while the node rests."""
        node, delivery = self._nodes.find(wanted.node), (wanted.node, wanted.egg)
        if node is None or node.is_resting:
            return
        with self._lock:
            if delivery in self._shares:
                return
            self._shares[delivery] = _sharers(wanted.egg, wanted.user_id)
        name = f"bring {wanted.egg.project} {wanted.egg.version}"
        self.tasks.add(node, NodeStep(name, lambda: self._bring(delivery), lambda _: self._is_over(delivery)))

    def _bring(self, delivery: tuple[str, Egg]) -> bool:
        try:
            return self.bring(*delivery)
        finally:
            self._is_over(delivery)

    def _is_over(self, delivery: tuple[str, Egg]) -> None:
        with self._lock:
            self._shares.pop(delivery, None)

    def bring(self, node_id: str, egg: Egg) -> bool:
        """Make the node's copy of the version equal to the stored one. Does nothing while another worker delivers it,
        or too soon after the node refused it. Returns whether it did anything. Raises `NodeUnreachableError`.
        """
        node, kept = self._nodes.find(node_id), self._eggs.get(egg)
        if node is None or node.is_resting or kept is None:
            return False
        sha256 = kept.content.sha256 if kept.content else None
        copy = self._copies.begin(node.id, egg, sha256)
        if copy is None:
            return False
        try:
            if kept.content is None:
                self._remove(node, copy)
            else:
                self._send(node, copy, kept.content)
        except NodeError as error:
            self._not_taken(copy, sha256, error)
            if isinstance(error, NodeUnreachableError):
                raise
        except EggDamagedError as error:
            self._damaged(kept, copy, error)
        return True

    def _send(self, node: Node, copy: EggCopy, content: Content) -> None:
        with TemporaryDirectory(prefix="discoverybot-egg-") as folder:
            file = Path(folder, "brought.egg")
            with file.open("wb") as opened, within(READ_SECONDS):
                for piece in self._eggs.read(content):
                    opened.write(piece)
            version = (node.url, copy.project, copy.version)
            spiders = self._scrapyd.add_version(*version, file, wait=INSTALL_SECONDS).spiders
        self._copies.brought(copy, content.sha256, self._clock() + QUIET)
        log.info("egg_brought", node=node.id, project=copy.project, version=copy.version, spiders=spiders)

    def _remove(self, node: Node, copy: EggCopy) -> None:
        try:
            self._scrapyd.delete_version(node.url, copy.project, copy.version)
        except NodeRefusedError as error:
            if error.is_nodes_fault:
                raise
            # the node does not have it any more
            log.info("egg_not_removed", node=node.id, project=copy.project, version=copy.version, why=error.message)
        self._copies.brought(copy, None, self._clock() + QUIET)
        log.info("egg_removed", node=node.id, project=copy.project, version=copy.version)

    def _not_taken(self, copy: EggCopy, sha256: str | None, error: NodeError) -> None:
        refused = not error.is_nodes_fault
        failures = copy.failures if copy.sha256 == sha256 else 0
        first, longest = (FIRST_REFUSAL, LONGEST_REFUSAL) if refused else (FIRST_PAUSE, LONGEST_PAUSE)
        pause = min(longest, first * 2.0 ** min(failures, 16))
        goes_on = isinstance(error, StillInstallingError)
        self._copies.failed(copy, sha256, error.message, self._clock() + pause, goes_on=goes_on)
        facts = {"node": copy.node, "project": copy.project, "version": copy.version}
        log.warning("egg_not_taken", **facts, refused=refused, error=error.message, again_in=pause.total_seconds())
        if sha256 is not None:
            if refused:
                why = why_not_taken(error)
                self._failures.refused(EggRefusal(copy.egg, sha256, copy.node, error.message, why))
            what = "is installing the egg's requirements" if goes_on else f"did not accept the egg: {error.message}"
            self._tell(copy.egg, f"node {copy.node} {what}", why_not_taken(error))

    def _damaged(self, kept: KeptEgg, copy: EggCopy, error: EggDamagedError) -> None:
        sha256 = kept.content.sha256 if kept.content else None
        self._copies.failed(copy, sha256, str(error), self._clock() + FIRST_PAUSE)
        if self._eggs.get(kept.egg) != kept:
            return  # it was replaced or deleted while it was read
        log.error("egg_damaged", project=copy.project, version=copy.version, error=str(error))
        self._eggs.lose(kept)
        self._tell(kept.egg, f"the stored egg is damaged: deploy {copy.project} {copy.version} again")

    def _tell(self, egg: Egg, message: str, reason: Reason | None = None) -> None:
        for job in self._needs.tell(egg, message, TOLD, reason):
            self._publisher.status(job)


def _sharers(egg: Egg, user_id: str) -> tuple[str, ...]:
    return f"project:{egg.project}", user_resource(user_id)
