"""Which processes and nodes are alive, and which nodes may get work."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import NamedTuple

import structlog
from attrs import define
from pymongo import ASCENDING
from pymongo.database import Database

from gateway.clock import Clock, seconds_ahead, utc_now
from gateway.contract.outbox import PROTOCOLS
from gateway.crash_points import state_change
from gateway.jobs.job import Attempt, Job
from gateway.nodes.node import NodeState, fault_of_node, rest
from gateway.nodes.store import Failure, Node, NodeStore
from gateway.stores.documents import Documents, moment
from gateway.stores.mongo import Document, Repeating, round_trip
from gateway.stores.unanswered import Unanswered

#: Every beat's name begins with this.
BEAT = "beat"
#: Every worker's name begins with this.
WORKER = "worker"
#: Every gateway's name begins with this.
GATEWAY = "gateway"
#: Seconds between two heartbeats of one of these processes.
SIGN_SECONDS = 3.0
#: A process without a heartbeat for this long is gone.
DEAD_AFTER = timedelta(seconds=15)


def process_name(kind: str) -> str:
    """The name of this process. No other living process has the same name."""
    return f"{kind}:{socket.gethostname()}:{os.getpid()}"


class ProcessHeartbeat(NamedTuple):
    """What a gateway, worker or beat last reported about itself."""

    name: str
    at: datetime
    #: Seconds that the clock of the process's machine was ahead of MongoDB's.
    clock_ahead: float = 0.0
    #: Recent calls of the process that MongoDB, Redis or the broker did not answer.
    unanswered: Sequence[Unanswered] = ()
    #: The version of the process. Release 0.1.0 does not report it.
    version: str = "0.1.0"
    #: Seconds that MongoDB's answers to the process take; 0 if this is not known.
    round_trip: float = 0.0
    #: The nodes whose answers to the process are slow, with the seconds that they take.
    slow_nodes: Sequence[tuple[str, float]] = ()

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]


class HeartbeatStore:
    """The collection `heartbeats`."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        # determined at the start, because another version may be installed while the process runs
        self._version = version("discoverybot")
        self._heartbeats = database["heartbeats"]
        self._documents = Documents(self._heartbeats, read_heartbeat)
        self._clock = clock

    @state_change("heartbeats.beat")
    def beat(
        self, name: str, unanswered: Sequence[Unanswered] = (), slow_nodes: Sequence[tuple[str, float]] = ()
    ) -> None:
        """Record that the process `name` is alive now. There is one document per name."""
        now = self._clock()
        said = {"at": now, "clock_ahead": seconds_ahead(now), "unanswered": [list(one) for one in unanswered]}
        # a process of release 0.1.0 with the same name sets neither of these: then `version_at` differs from `at`
        said |= {"version": self._version, "version_at": now}
        said |= {"round_trip": round_trip(self._heartbeats.database), "slow_nodes": [list(one) for one in slow_nodes]}
        self._heartbeats.update_one({"_id": name}, {"$set": said}, upsert=True)

    @state_change("heartbeats.forget")
    def forget(self, before: datetime) -> None:
        """Delete the heartbeats of processes whose last one was before this time."""
        Repeating(self._heartbeats).delete_many({"at": {"$lt": before}})

    def all(self, name_prefix: str = "") -> list[ProcessHeartbeat]:
        """The last heartbeat of each process whose name begins with `name_prefix`, in the order of the names."""
        # U+FFFF sorts after every character that a name can contain
        found = self._heartbeats.find({"_id": {"$gte": name_prefix, "$lt": f"{name_prefix}\uffff"}})
        return self._documents.many(found.sort("_id", ASCENDING))


def read_heartbeat(document: Document) -> ProcessHeartbeat:
    # heartbeats of older releases contain only their time
    unanswered = [Unanswered(*one) for one in document.get("unanswered", ())]
    found = ProcessHeartbeat(document["_id"], moment(document["at"]), document.get("clock_ahead", 0.0), unanswered)
    if document.get("version_at") != found.at:
        return found
    slow = [(str(node), float(seconds)) for node, seconds in document.get("slow_nodes", ())]
    of_mongodb = float(document.get("round_trip", 0.0))
    return found._replace(version=str(document["version"]), round_trip=of_mongodb, slow_nodes=slow)


# --- watches heartbeats: a node is dead if this process has looked regularly, and its heartbeat has not changed for
# long

#: If there are more seconds between two looks, watching starts again, because MongoDB may not have been reachable.
_MAX_GAP = 15.0


class _Watch(NamedTuple):
    """What this process has seen of a node's heartbeat; times by the monotonic clock."""

    heartbeat_at: datetime | None
    unchanged_since: float
    seen_at: float


class NodeWatch:
    """Finds dead nodes, in a process that checks all nodes regularly. An old timestamp alone proves nothing, because
    no tailer could write a new one while the database was not reachable.
    """

    def __init__(self, dead_after: timedelta, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._dead_after = dead_after.total_seconds()
        self._monotonic = monotonic
        self._watches: dict[str, _Watch] = {}

    def is_dead(self, node: str, heartbeat_at: datetime | None) -> bool:
        """Whether the node with this heartbeat is dead. `None`: it has no heartbeat that can be read. This must be
        called for each node every few seconds.
        """
        now = self._monotonic()
        watch = self._watches.get(node)
        if watch is None or watch.heartbeat_at != heartbeat_at or now - watch.seen_at > _MAX_GAP:
            watch = _Watch(heartbeat_at, now, now)
        self._watches[node] = watch._replace(seen_at=now)
        return now - watch.unchanged_since >= self._dead_after


# --- counts each node's failures: a node that fails rests, until it answers a probe

log = structlog.get_logger()

#: Failures that are longer ago than this are forgotten, even if nothing has succeeded on the node since.
FORGET_AFTER = timedelta(minutes=10)
#: A node without a heartbeat for this long does not count as a replacement for a node that rests.
ALONE_AFTER = timedelta(seconds=30)


@define(eq=False, repr=False, slots=False)
class NodeHealth:
    """Records the failures and successes of nodes. No job depends on these records, so it does no harm if a process
    dies before it writes one.
    """

    _nodes: NodeStore
    _clock: Clock = utc_now

    def failed(self, node_id: str, why: str, began_at: datetime, job_id: str | None = None) -> None:
        """Record that work which began at `began_at` failed because of the node. Failures that happened together
        count as one, and so do failures of several attempts of one job.
        """
        self.note(node_id, Failure(why, began_at, job_id))

    def note(self, node_id: str, failure: Failure, url: str | None = None) -> None:
        """Record a failure. `url`: where the node was called. A failure at an earlier address of the node
        is ignored.
        """
        node = self._nodes.find(node_id)
        if node is None or (node.failed_at is not None and failure.began_at <= node.failed_at):
            return
        if url not in (None, node.url):
            return
        if self._nodes.failed(node, failure):
            log.warning("node_failed", node=node_id, reason=failure.why, failures=node.failures + 1)

    def succeeded(self, node_id: str, began_at: datetime) -> None:
        """Record that an attempt which was dispatched to the node at `began_at` has run."""
        if self._nodes.succeeded(node_id, began_at):
            log.info("node_recovered", node=node_id)

    def judge(self, job: Job, attempt: Attempt) -> None:
        """Record what the end of an attempt says about its node."""
        if attempt.exit is None:
            return
        ran = job.progress is not None and job.progress.requested_pages > 0
        fault = fault_of_node(attempt.exit, job.spec.project, ran=ran)
        if fault is not None:
            self.failed(attempt.node, fault, attempt.dispatched_at, job.id)
        elif attempt.is_trial and attempt.exit.report is not None:
            self.succeeded(attempt.node, attempt.dispatched_at)

    # --- nodes that have rested

    def may_be_probed(self, node: Node, nodes: Iterable[Node]) -> bool:
        """Whether a resting node has rested enough: its time is over, it was restarted, or none of the other `nodes`
        is up, so that nothing is lost by an early probe. A node that does not rest is not probed, but its failures of
        long ago are forgotten.
        """
        now = self._clock()
        if node.rest_until is None:
            if node.failed_at is not None and now - node.failed_at > FORGET_AFTER:
                self.succeeded(node.id, now)
            return False
        if node.rest_until <= now or node.failed_at is None or node.beating_since > node.failed_at:
            return True
        is_another_up = any(other.id != node.id and other.state(now, ALONE_AFTER) is NodeState.UP for other in nodes)
        return now - node.failed_at >= rest(1) and not is_another_up

    def returned(self, node: Node) -> None:
        """Record that a node has answered after its rest."""
        if self._nodes.returned(node):
            log.info("node_returned", node=node.id, failures=node.failures)


#: What to do if `SCRAPYD_URL` names a URL that no node has.
MISSING_TODO = (
    "start Scrapyd and its tailer there; if they run, set NODE_URL there and SCRAPYD_URL here to the same URL"
)


class NodeReport(NamedTuple):
    """What an operator should know about a node."""

    state: NodeState
    why: str | None = None
    since: datetime | None = None
    todo: str | None = None


def _why_not_meant(node: Node, state: NodeState) -> tuple[str, None, str]:
    if state is NodeState.NOT_LISTED:
        todo = "add its URL to SCRAPYD_URL as it is shown here, or stop its tailer"
        return f"SCRAPYD_URL does not name {node.url}", None, todo
    age = "old" if max(node.protocols, default=0) < min(PROTOCOLS) else "new"
    todo = f"start a version there that speaks {_numbers(PROTOCOLS)}; results of its crawls are shipped all the same"
    return f"version {node.version} is too {age}: it speaks protocol {_numbers(node.protocols)}", None, todo


def _numbers(protocols: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(protocols))) or "none"


def report_on(node: Node, now: datetime, dead_after: timedelta) -> NodeReport:
    """Why the node is in its state, since when, and what to do about it."""
    state = node.state(now, dead_after)
    failed = f"{node.failures} failure{'s' if node.failures > 1 else ''} in a row, the last: {node.failure}"
    match state:
        case NodeState.DEAD:
            todo = f"start Scrapyd and its tailer (`python -m gateway.tailer`) there; it was at {node.url}"
            return NodeReport(state, "no sign of life", node.heartbeat_at, todo)
        case NodeState.INCOMPATIBLE | NodeState.NOT_LISTED:
            return NodeReport(state, *_why_not_meant(node, state))
        case NodeState.DRAINING:
            todo = f"`discoverybot nodes resume {node.id}` gives it work again"
            left = " and ".join(node.waits_for)
            told = f"drained by hand; waiting for {left}" if left else "drained by hand; safe to stop"
            return NodeReport(state, told, node.draining_since, todo)
        case NodeState.RESTING | NodeState.QUARANTINED:
            todo = (
                "see Scrapyd's log there; the node is probed when its rest is over, or at once with "
                f"`discoverybot nodes resume {node.id}`"
            )
            return NodeReport(state, failed if node.failures else "next probe is due", node.failing_since, todo)
        case NodeState.DISK_FULL:
            todo = "free disk there, or lower NODE_MIN_FREE_BYTES or NODE_KEEP_SECONDS"
            return NodeReport(state, f"{(node.free_bytes or 0) >> 20} MiB free", None, todo)
        case NodeState.UP:
            why = f"one crawl at a time until one has run: {failed}" if node.failures else None
            what_to_do: str | None = None
            if node.has_rival(now, dead_after):
                why = f"two machines have the name {node.id}: the one at {node.rival_url} is refused"
                what_to_do = "set NODE_NAME there to a name of its own, and start its tailer again"
            return NodeReport(state, why, node.failing_since, what_to_do)
