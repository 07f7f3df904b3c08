"""Stores crawl nodes: what they report about themselves, and their failures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import NamedTuple, Self

from pydantic import BaseModel, Field, model_validator
from pymongo import ASCENDING
from pymongo.collection import Collection as MongoCollection
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.clock import Clock, seconds_ahead, to_iso, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT, Egg
from gateway.contract.outbox import PROTOCOLS
from gateway.crash_points import state_change
from gateway.errors import NameTakenError, UnreadableError
from gateway.nodes.holds import Held, HoldStore, Usage
from gateway.nodes.node import (
    EVERY_NODE,
    MAX_REST_SECONDS,
    QUARANTINE_AFTER,
    NodeList,
    NodeState,
    browser_resource,
    node_resource,
    rest,
)
from gateway.stores.documents import Documents, reader
from gateway.stores.mongo import Document, round_trip
from gateway.stores.unanswered import Unanswered

#: How many failed jobs are remembered for a node. This is more than are needed for its quarantine.
_JOBS_KEPT = 20
_REMEMBERED = dict.fromkeys(("failures", "failed_at", "failure", "failing_since", "failed_jobs", "trial"), "")
_FAILURES = {**_REMEMBERED, "rest_until": ""}
#: How long a worker uses the nodes that it has read. It looks at them many times a second, but heartbeats come only
#: every two seconds.
KEPT = timedelta(seconds=0.25)
#: The fields that a worker does not need to choose among nodes: lists of attempts, and fields for people to read.
_UNSEEN = dict.fromkeys(
    (
        "alive", "present", "unshipped", "troubles", "unanswered", "free_bytes", "cpu_load", "memory_load",
        "clock_ahead", "round_trip", "version", "failure", "failed_jobs", "rival_url", "rival_at",
    ),
    0,
)  # fmt: skip
_SLOTS, _BROWSERS = node_resource(""), browser_resource("")


class Failure(NamedTuple):
    """A failure of a node."""

    why: str
    #: When the failed work began. All failures of work that began before a failure was known count as one.
    began_at: datetime
    #: The job, if the job itself may have caused the failure.
    job_id: str | None = None
    #: In seconds.
    longest_rest: float = MAX_REST_SECONDS


class Load(NamedTuple):
    """How busy a node's machine is, as shares from 0 to 1; `None` if the node does not report it."""

    #: The share of processor time that was used since the last heartbeat.
    cpu_load: float | None = None
    #: The share of memory that is used.
    memory_load: float | None = None


_UNKNOWN_LOAD = Load()


class Beat(BaseModel, extra="ignore", populate_by_name=True):
    """A node's last heartbeat. Each heartbeat writes all of these fields. So for a living node they can be read, even
    if other fields of its document are damaged.
    """

    id: str = Field(alias="_id")
    #: Attempts whose processes are alive: they hold the lock on their start mark.
    alive: list[str] = Field(default_factory=list)
    #: Attempts on the node, alive or not, whose end is not yet in MongoDB.
    present: list[str] = Field(default_factory=list)
    heartbeat_at: datetime
    #: When the present tailer of the node was started.
    beating_since: datetime


class Node(Beat):
    """One node document."""

    url: str
    max_slots: int
    #: How many of its slots are render slots, whose crawls may use a browser; 0 without a browser.
    max_render_slots: int = 0
    #: How many of its slots, and of its render slots, are held. Read from the collection `holds`, as are the next
    #: two.
    used_slots: int = 0
    used_render_slots: int = 0
    #: How many attempts have ever held one of its slots.
    taken_slots: int = 0
    #: When an attempt that was over last gave its slot back.
    freed_at: datetime | None = None
    #: How many attempts on the node are not shipped completely: those in `present`, and those with files that are not
    #: stored yet. Absent if the tailer is too old to report it.
    unshipped: int | None = None
    #: The time of the next probe, while the node rests after a failure and gets no work. A successful probe removes
    #: it.
    rest_until: datetime | None = None
    #: Failures in a row, since the last success.
    failures: int = 0
    #: The time of the last failure, its cause, and the time of the first failure.
    failed_at: datetime | None = None
    failure: str | None = None
    failing_since: datetime | None = None
    #: The last few jobs that failed there, so that no job is counted twice.
    failed_jobs: list[str] = Field(default_factory=list)
    #: While there are failures: the attempt on probation, that is, the last one dispatched to the node. The node gets
    #: no other attempt before it has ended.
    trial: str | None = None
    #: Whether the attempt on probation still holds its slot. Not stored.
    is_tried: bool = False
    #: Since when it gets no new work because an operator has drained it.
    draining_since: datetime | None = None
    #: Whether `SCRAPYD_URL` names it, or names no node. Not stored.
    listed: bool = True
    version: str = ""
    #: The protocols that it speaks (`outbox.PROTOCOLS`). Nodes of release 0.1.0 do not report them.
    protocols: frozenset[int] = frozenset({1})
    #: When they were reported. If this differs from `heartbeat_at`, an earlier tailer has reported them, and the
    #: present tailer is of release 0.1.0.
    protocols_at: datetime | None = None
    free_bytes: int | None = None
    #: See `Load`.
    cpu_load: float | None = None
    memory_load: float | None = None
    #: Whether too little disk space is free for new work.
    disk_full: bool = False
    #: The eggs that were deployed there. The default project, which every node has, has no egg.
    eggs: list[Egg] = Field(default_factory=list)
    #: Attempts whose files cannot be read there, and why.
    troubles: list[str] = Field(default_factory=list)
    #: Seconds that its machine's clock was ahead of MongoDB's at its last heartbeat.
    clock_ahead: float = 0.0
    #: The time of the heartbeat that reported this, and the seconds that MongoDB's answers to the tailer took. A
    #: tailer of release 0.2.0 does not write it.
    round_trip: tuple[datetime, float] | None = None
    #: Recent calls of its tailer that had got no answer.
    unanswered: list[Unanswered] = Field(default_factory=list)
    #: The id of the node's folder (`instance_of`), which identifies the machine that has the name. Absent if the
    #: tailer is too old to report it.
    instance: str | None = None
    #: The URL of another machine that was refused because it uses the same name, and the time of the last refusal.
    rival_url: str | None = None
    rival_at: datetime | None = None

    @model_validator(mode="after")
    def _forget_what_another_tailer_spoke(self) -> Self:
        if self.protocols_at != self.heartbeat_at:
            self.protocols = frozenset({1})
        return self

    def is_alive(self, now: datetime, dead_after: timedelta) -> bool:
        return now - self.heartbeat_at < dead_after

    def has_rival(self, now: datetime, dead_after: timedelta) -> bool:
        return self.rival_at is not None and now - self.rival_at < dead_after

    def state(self, now: datetime, dead_after: timedelta) -> NodeState:
        steps = (
            (not self.is_alive(now, dead_after), NodeState.DEAD),
            (not self.speaks(min(PROTOCOLS)), NodeState.INCOMPATIBLE),
            (not self.listed, NodeState.NOT_LISTED),
            (self.draining_since is not None, NodeState.DRAINING),
            (self.is_resting and self.failures >= QUARANTINE_AFTER, NodeState.QUARANTINED),
            (self.is_resting, NodeState.RESTING),
            (self.disk_full, NodeState.DISK_FULL),
        )
        return next((state for applies, state in steps if applies), NodeState.UP)

    @property
    def waits_for(self) -> list[str]:
        """What to wait for before the machine of this drained node may be stopped; empty if it may be stopped now."""
        unshipped = max(len(self.present), self.unshipped or 0)
        waits = [f"running crawls: {self.used_slots}"] if self.used_slots else []
        if unshipped:
            waits.append(f"crawls that are not stored in full: {unshipped}")
        # an earlier heartbeat may lack the last attempt that was dispatched to the node, or files of its crawl
        since = self.draining_since
        if since is None or self.heartbeat_at <= max(since, self.freed_at or since):
            waits.append(f"a sign of life (the last one was at {to_iso(self.heartbeat_at)})")
        return waits

    def speaks(self, protocol: int) -> bool:
        """Whether it understands work of this protocol: it speaks this protocol, or a newer one that we know."""
        return any(one >= protocol for one in self.protocols & PROTOCOLS)

    @property
    def is_resting(self) -> bool:
        return self.rest_until is not None

    @property
    def free_slots(self) -> int:
        return max(0, self.max_slots - self.used_slots)

    @property
    def free_render_slots(self) -> int:
        return min(self.free_slots, max(0, self.max_render_slots - self.used_render_slots))

    def has_slot(self, *, render: bool) -> bool:
        return bool(self.free_render_slots if render else self.free_slots)

    def has_code(self, project: str, version: str | None) -> bool:
        """Whether it can run this version of the project; without a `version`, any version."""
        return project == DEFAULT_PROJECT or any(
            egg.project == project and version in (None, egg.version) for egg in self.eggs
        )


class NodeStore:
    """The collection `nodes`."""

    def __init__(
        self, database: Database[Document], clock: Clock = utc_now, node_list: NodeList = EVERY_NODE
    ) -> None:
        self._nodes = database["nodes"]
        self._documents = Documents(self._nodes, reader(Node))
        self._beats = Documents(self._nodes, reader(Beat))
        self._holds = HoldStore(database, clock)
        self._clock = clock
        self._list = node_list
        #: Identifies the last write of this process: each write replaces it by a new object.
        self._last_write = object()
        #: What `lately` read last: the last write before it, the time, and the nodes.
        self._kept: tuple[object, datetime, list[Node]] | None = None

    @contextmanager
    def _writing(self) -> Iterator[MongoCollection[Document]]:
        """Yields the collection, for a write of this process. After it, `lately` reads the nodes again."""
        try:
            yield self._nodes
        finally:
            self._last_write = object()

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
        unshipped: int | None = None,
        version: str = "",
        protocols: Collection[int] = PROTOCOLS,
        free_bytes: int | None = None,
        load: Load = _UNKNOWN_LOAD,
        disk_full: bool = False,
        max_render_slots: int = 0,
        eggs: Sequence[Egg] = (),
        troubles: Sequence[str] = (),
        unanswered: Sequence[Unanswered] = (),
        instance: str | None = None,
        succeeds: datetime | None = None,
    ) -> bool:
        """Register the node, or update what it reports. Returns whether the node is new or has taken over its name.
        Raises `NameTakenError` if another `instance` has the name, unless its last heartbeat was at `succeeds`.
        """
        lists = {"alive": list(alive), "present": list(present), "troubles": list(troubles)}
        kind = {"url": url, "max_slots": max_slots, "version": version, "protocols": sorted(protocols)}
        said: Document = {
            **load._asdict(),
            **lists,
            **kind,
            "unshipped": unshipped,
            "beating_since": beating_since,
            "free_bytes": free_bytes,
            "disk_full": disk_full,
            "max_render_slots": max_render_slots,
            "eggs": list(map(list, eggs)),
            "unanswered": list(map(list, unanswered)),
        }
        return self._register(node, said, instance, succeeds)

    def _register(self, node: str, said: Document, instance: str | None, succeeds: datetime | None) -> bool:
        query: Document = {"_id": node}
        now = self._clock()
        # a tailer of release 0.1.0 that takes over does not set `protocols_at`; then this differs from `heartbeat_at`
        said |= {"heartbeat_at": now, "protocols_at": now, "clock_ahead": seconds_ahead(now)}
        said["round_trip"] = [now, round_trip(self._nodes.database)]
        if instance is not None:
            said["instance"], query["instance"] = instance, {"$in": [None, instance]}
        try:
            with self._writing() as nodes:
                return nodes.update_one(query, {"$set": said}, upsert=True).upserted_id is not None
        except DuplicateKeyError:
            if succeeds is None or not self._succeed(node, succeeds, said):
                self._refuse(node, said["url"])
            return True

    def _succeed(self, node: str, last: datetime, said: Document) -> bool:
        """Take over the name from another instance, without its failures, if its last heartbeat was at `last`.
        Returns whether this was so.
        """
        update = {"$set": said, "$unset": {**_FAILURES, "rival_url": "", "rival_at": ""}}
        with self._writing() as nodes:
            return nodes.update_one({"_id": node, "heartbeat_at": last}, update).matched_count == 1

    def _refuse(self, node: str, url: str) -> None:
        """Record the machine at `url` as a rival in the node's document, and raise `NameTakenError`."""
        rival = {"rival_url": url, "rival_at": self._clock()}
        with self._writing() as nodes:
            owner = nodes.find_one_and_update({"_id": node}, {"$set": rival})
        if owner is not None:
            raise NameTakenError(node, owner["url"], owner["heartbeat_at"])

    @state_change("nodes.took_egg")
    def took_egg(self, node: str, egg: Egg) -> None:
        """Record an egg that the node has just accepted, so that it gets work before its next heartbeat
        reports it.
        """
        with self._writing() as nodes:
            nodes.update_one({"_id": node}, {"$addToSet": {"eggs": list(egg)}})

    def all(self, *, attempts: bool = True, held: Iterable[Held] | None = None) -> list[Node]:
        """All nodes, with the numbers of their used slots, which are counted from `held` if it is given. Without
        `attempts` the lists of attempts are left out.
        """
        fields = None if attempts else {"alive": 0, "present": 0}
        known = None if held is None else {one.resource: one for one in held}
        found = self._nodes.find({}, fields).sort("_id", ASCENDING)
        return [self._on_list(node) for node in self._documents.many(self._with_usage(found, known))]

    def beats(self) -> list[Beat]:
        """The last heartbeat of each node."""
        fields = ("alive", "present", "heartbeat_at", "beating_since")
        return self._beats.many(self._nodes.find({}, dict.fromkeys(fields, 1)))

    def failing(self) -> list[Node]:
        """The nodes that have failed since their last success, without the numbers of their used slots."""
        found = self._nodes.find({"failures": {"$gte": 1}})
        return [self._on_list(node) for node in self._documents.many(self._with_usage(found, {}))]

    def lately(self) -> list[Node]:
        """All nodes, for a worker that chooses among them. The nodes may have been read up to `KEPT` ago, unless this
        process has written since; the used slots are always read now. Fields that the choice does not need are left
        out.

        A choice by old data does no harm, because nobody can take a hold on a node that is full or drained.
        """
        nodes = self._kept_nodes()
        if nodes is None:
            as_of = self._last_write, self._clock()
            found = self._nodes.find({}, _UNSEEN).sort("_id", ASCENDING)
            nodes = [self._on_list(node) for node in self._documents.many(found)]
            self._kept = *as_of, nodes
        has_browsers = any(node.max_render_slots for node in nodes)
        used = self._holds.used_by_kind(_SLOTS, *([_BROWSERS] if has_browsers else []))
        holders = self._holds.holders([node_resource(node.id) for node in nodes if node.trial])
        return [
            node.model_copy(
                update={
                    "used_slots": used.get(node_resource(node.id), 0),
                    "used_render_slots": used.get(browser_resource(node.id), 0),
                    "is_tried": node.trial in holders.get(node_resource(node.id), ()),
                }
            )
            for node in nodes
        ]

    def _kept_nodes(self) -> list[Node] | None:
        if self._kept is None:
            return None
        write, read_at, nodes = self._kept
        is_fresh = timedelta() <= self._clock() - read_at <= KEPT
        return nodes if write is self._last_write and is_fresh else None

    def is_any_failing(self) -> bool:
        """Whether any node rests, or has failed since its last success."""
        failing = [{"rest_until": {"$exists": True}}, {"failed_at": {"$exists": True}}]
        return self._nodes.find_one({"$or": failing}, {"_id": 1}) is not None

    def names(self) -> set[str]:
        """The names of all nodes, including those whose documents cannot be read."""
        return set(self._nodes.distinct("_id"))

    def get(self, node: str) -> Node | None:
        document = self._nodes.find_one({"_id": node})
        return None if document is None else self._on_list(self._documents.one(*self._with_usage([document])))

    def find(self, node: str) -> Node | None:
        """The node; `None` if there is none, or if its document cannot be read."""
        with suppress(UnreadableError):
            return self.get(node)
        return None

    def _with_usage(self, found: Iterable[Document], held: Mapping[str, Held] | None = None) -> list[Document]:
        documents = list(found)
        names = [of(node["_id"]) for node in documents for of in (node_resource, browser_resource)]
        usage = self._holds.usage(names) if held is None else {name: one.usage for name, one in held.items()}
        tried = [node_resource(node["_id"]) for node in documents if node.get("trial")]
        holders = (
            self._holds.holders(tried)
            if held is None
            else {name: held[name].attempts for name in tried if name in held}
        )
        for node in documents:
            slots, browsers = (usage.get(of(node["_id"]), Usage(0, 0)) for of in (node_resource, browser_resource))
            node |= {"used_slots": slots.used, "used_render_slots": browsers.used, "taken_slots": slots.taken}
            node["freed_at"] = slots.freed_at
            if trial := node.get("trial"):
                node["is_tried"] = trial in holders.get(node_resource(node["_id"]), ())
        return documents

    def _on_list(self, node: Node) -> Node:
        """Set `listed`, and return the node."""
        node.listed = self._list.has(node.url)
        return node

    @state_change("nodes.try")
    def begin_trial(self, node: Node, attempt: str) -> bool:
        """Make this the node's attempt on probation. Does nothing, and returns false, if the node has failed or got
        another attempt since it was read.
        """
        unchanged = {"failed_at": _same(node.failed_at), "trial": _same(node.trial)}
        with self._writing() as nodes:
            return nodes.update_one({"_id": node.id, **unchanged}, {"$set": {"trial": attempt}}).matched_count == 1

    @state_change("nodes.forget")
    def forget(self, node: Node) -> bool:
        """Delete the node, unless it has sent a heartbeat since it was read. Returns whether it is gone."""
        # a new node with this name must not be drained. Do this first: after a crash in between, nobody would do it
        self._holds.open(node_resource(node.id))
        with self._writing() as nodes:
            nodes.delete_one({"_id": node.id, "heartbeat_at": node.heartbeat_at})
        if (found := self.get(node.id)) is None:
            return True
        if found.draining_since is not None:
            self._close_again(node.id)
        return False

    def _close_again(self, node: str) -> None:
        """Close the node's hold, which `forget` has opened, unless the node was resumed in the meantime."""
        self._holds.close(node_resource(node))
        if self._nodes.find_one({"_id": node, "draining_since": {"$exists": True}}, {"_id": 1}) is None:
            self._holds.open(node_resource(node))

    @state_change("nodes.failed")
    def failed(self, node: Node, failure: Failure) -> bool:
        """Count the failure, and let the node rest. Returns false if another process has done so since it
        was read.
        """
        now = self._clock()
        known = failure.job_id is not None and failure.job_id in node.failed_jobs
        failures = max(1, node.failures if known else node.failures + 1)
        jobs = node.failed_jobs if known or failure.job_id is None else [*node.failed_jobs, failure.job_id]
        changes = {
            "failures": failures,
            "failure": failure.why,
            "failed_at": now,
            "failing_since": node.failing_since or now,
            "failed_jobs": jobs[-_JOBS_KEPT:],
            "rest_until": now + rest(failures, failure.longest_rest),
        }
        query = {"_id": node.id, "failed_at": _same(node.failed_at)}
        with self._writing() as nodes:
            return nodes.update_one(query, {"$set": changes}).matched_count == 1

    @state_change("nodes.succeeded")
    def succeeded(self, node: str, began_at: datetime) -> bool:
        """Forget the node's failures if the last one was before `began_at`. Returns whether any were forgotten."""
        query = {"_id": node, "failed_at": {"$lt": began_at}}
        with self._writing() as nodes:
            return nodes.update_one(query, {"$unset": _FAILURES}).matched_count == 1

    @state_change("nodes.returned")
    def returned(self, node: Node) -> bool:
        """End the rest of a node that answered a probe. Its failures are remembered. Returns whether it rested."""
        query = {"_id": node.id, "rest_until": _same(node.rest_until)}
        with self._writing() as nodes:
            return nodes.update_one(query, {"$unset": {"rest_until": "", "trial": ""}}).matched_count == 1

    @state_change("nodes.drain")
    def drain(self, node: str) -> Node | None:
        """Drain the node: from now on it gets no new work. Returns it; `None` if there is no such node."""
        if self.get(node) is None:
            return None
        # after this, even workers that have read the node before can dispatch nothing to it
        self._holds.close(node_resource(node))
        with self._writing() as nodes:
            nodes.update_one(
                {"_id": node, "draining_since": {"$exists": False}}, {"$set": {"draining_since": self._clock()}}
            )
        return self.get(node)

    @state_change("nodes.resume")
    def resume(self, node: str) -> Node | None:
        """Undo `drain` and forget failures: a quarantined node is probed next. `None` if there is no such node."""
        with self._writing() as nodes:
            nodes.update_one({"_id": node}, {"$unset": {"draining_since": "", **_REMEMBERED}})
        self._holds.open(node_resource(node))
        with self._writing() as nodes:
            nodes.update_one({"_id": node, "rest_until": {"$exists": True}}, {"$set": {"rest_until": self._clock()}})
        return self.get(node)


def _same(value: object) -> object:
    return {"$exists": False} if value is None else value
