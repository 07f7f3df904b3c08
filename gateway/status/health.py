"""The health checks: what works, what does not, and how to repair it."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import redis
from attrs import define, field
from kombu.connection import Connection
from kombu.exceptions import KombuError
from pymongo.database import Database
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

from gateway.clock import Clock, seconds_ahead, utc_now
from gateway.dispatch.fair_queue import NodeChoice, configured_projects
from gateway.jobs.job import Job, WaitingReason
from gateway.jobs.queries import JobStatistics
from gateway.nodes import health
from gateway.nodes.node import EVERY_NODE, NodeList, NodeState
from gateway.nodes.store import Node, NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.projects.environment import ProjectStore
from gateway.retention.retention import UnreadableStore
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.signals.delivery_store import DeliveryStore
from gateway.status.facts import MAX_DUE
from gateway.stores.broker import SQS, sqs_options
from gateway.stores.document_format import OURS, stored_format
from gateway.stores.mongo import Document
from gateway.stores.unanswered import lately_unanswered

#: A status that is not ready, but no fault: a node is starting.
STARTING = "starting"


class Check(NamedTuple):
    #: `ok`, `down` or `starting`.
    status: str
    message: str
    #: How to repair it.
    todo: str | None = None

    @property
    def ok(self) -> bool:
        return self.status == "ok"


UNKNOWN = Check("down", "not known while MongoDB is away", "see `mongo`")


# --- the checks of the crawl nodes in the platform's health. They raise PyMongo's errors.

#: States in which an operator keeps a node from work.
_KEPT_FROM_WORK = frozenset({NodeState.DRAINING, NodeState.NOT_LISTED})
#: States of living nodes that get no new work.
_OTHERS = tuple(state for state in NodeState if state not in {NodeState.UP, NodeState.DEAD})


#: A node that has been silent for longer than this does not count as missing any more.
MISSED_FOR = timedelta(days=1)

_NOT_HEARD = (
    "see whether its tailer runs, and reaches MongoDB; if it is gone for good, `discoverybot nodes forget NAME`"
)

#: The hint instead of details: every client may read the health, but the addresses of nodes are for admins only.
_WHY = "GET /nodes says why, and what to do about each"


NODE = "node"
#: The processes that are replaced after the nodes, in the order of `docs/how-to/upgrade.md`.
_REPLACED = (health.WORKER, health.BEAT, health.GATEWAY)
_UPGRADE = (
    "if no upgrade is under way, one was left halfway: replace these too, first nodes, then workers and beats, then "
    "gateways (docs/how-to/upgrade.md); `discoverybot doctor` names them"
)


class Signs:
    """The nodes and the last signs of life of all processes. They are read once for each report, because there may be
    many, and nearly every check needs them.
    """

    def __init__(
        self, nodes: NodeStore, heartbeats: health.HeartbeatStore, now: datetime, dead_after: timedelta
    ) -> None:
        self.now = now
        found = nodes.all(attempts=False)
        self.nodes = [(node, health.report_on(node, now, dead_after)) for node in found]
        signs = heartbeats.all()
        self.processes = {kind: [sign for sign in signs if sign.kind == kind] for kind in _REPLACED}

    def living(self) -> list[Node]:
        return [node for node, report in self.nodes if _lives(report)]

    def living_processes(self) -> list[health.ProcessHeartbeat]:
        """The last signs of life of the living processes, in the order in which an upgrade replaces them."""
        signs = (sign for of_kind in self.processes.values() for sign in of_kind)
        return [sign for sign in signs if self.now - sign.at <= health.DEAD_AFTER]

    def running(self) -> list[Running]:
        """All living nodes and processes that say their version, in the order of an upgrade. A node's version is that
        of its tailer.
        """
        nodes = [Running(NODE, node.id, node.version) for node in self.living() if node.version]
        return nodes + [Running(sign.kind, sign.name, sign.version) for sign in self.living_processes()]


class Running(NamedTuple):
    #: `NODE`, or the kind of process.
    kind: str
    name: str
    version: str


def outdated(running: Sequence[Running]) -> tuple[str, list[Running]]:
    """The newest version that runs (empty if none does), and the processes that are older."""
    newest = max((one.version for one in running), key=_release, default="")
    return newest, [one for one in running if _release(one.version) < _release(newest)]


def _release(version: str) -> tuple[int, ...]:
    """The numbers in a version, by which versions are compared. Text without numbers gives an empty tuple."""
    return tuple(map(int, re.findall(r"\d+", version)))


#: Waits until the signs of life are read, and returns them. Raises the error of reading them.
Seen = Callable[[], Signs]


@define(eq=False, repr=False, slots=False)
class NodeChecks:
    _spiders: SpiderStore
    _node_list: NodeList
    _dead_after: timedelta

    def alive(self, seen: Seen) -> Check:
        todo = "start Scrapyd and its tailer (`python -m gateway.tailer`); jobs wait for a node"
        reports = seen().nodes
        alive = [(node, report) for node, report in reports if _lives(report)]
        if not self._spiders.nodes():
            wait = "wait a moment, or see the tailer's log" if alive else todo
            return Check(STARTING, "no node has published its spiders yet", wait)
        if not alive:
            return Check("down", "no node is alive" if reports else "no node has ever been seen", todo)
        free = sum(node.free_slots for node, report in alive if report.state is NodeState.UP)
        count = Counter(report.state for _, report in alive)
        others = "".join(f", {count[state]} {state.replace('_', ' ')}" for state in _OTHERS if count[state])
        return Check("ok", f"{len(alive)} alive{others}, {free} free slots")

    def states(self, seen: Seen) -> Check:
        """Whether a node is missing, incompatible or quarantined, or an operator keeps all living nodes from work."""
        reports = seen().nodes
        if wrong := [*self._missed(seen()), *self._troubled(seen())]:
            messages, todos = zip(*wrong, strict=True)
            return Check("down", "; ".join(messages), "; ".join(todos))
        living = [report.state for _, report in reports if _lives(report)]
        if living and all(state in _KEPT_FROM_WORK for state in living):
            return Check("down", "no node is available", _WHY)
        if failures := [_failures(node) for node, report in reports if node.failures and _lives(report)]:
            return Check("ok", f"no node is quarantined, but some have failed: {', '.join(failures)}", _WHY)
        return Check("ok", "no node is quarantined")

    @staticmethod
    def _missed(signs: Signs) -> Iterator[tuple[str, str]]:
        """Message and to-do about missing nodes. Drained nodes, and those not in `SCRAPYD_URL`, are not missed."""
        expected = [node for node, _ in signs.nodes if node.listed and node.draining_since is None]
        silences = [(node.id, signs.now - node.heartbeat_at) for node in expected]
        missed = [(name, silence) for name, silence in silences if health.DEAD_AFTER < silence <= MISSED_FOR]
        if missed:
            names = ", ".join(f"{name} ({silence.total_seconds():.0f} s)" for name, silence in missed)
            yield f"no sign of life from {names}", _NOT_HEARD

    def _troubled(self, signs: Signs) -> Iterator[tuple[str, str]]:
        living = [(node, report.state) for node, report in signs.nodes if _lives(report)]
        if twice := [node.id for node, _ in living if node.has_rival(signs.now, self._dead_after)]:
            yield (
                f"two machines have the name {', '.join(twice)}",
                f"{_WHY}: the second machine gets no work until its NODE_NAME is one of its own",
            )
        if strange := [f"{node.id} ({node.version})" for node, state in living if state is NodeState.INCOMPATIBLE]:
            yield (
                f"too old or too new for this version: {', '.join(strange)}",
                f"{_WHY}: they get no work, and ship what they have run",
            )
        if bad := [_failures(node) for node, state in living if state is NodeState.QUARANTINED]:
            yield (
                f"quarantined: {', '.join(bad)}",
                f"{_WHY}; each is probed when its rest is over, and gets no work until it answers",
            )

    @staticmethod
    def disk(seen: Seen) -> Check:
        full = [node for node in seen().living() if node.disk_full]
        if not full:
            return Check("ok", "every node has room")
        names = ", ".join(f"{node.id} ({(node.free_bytes or 0) >> 20} MiB free)" for node in full)
        todo = "free disk there, or lower NODE_MIN_FREE_BYTES or NODE_KEEP_SECONDS; until then it gets no new work"
        return Check("down", f"the disk is nearly full on {names}", todo)

    @staticmethod
    def files(seen: Seen) -> Check:
        """Whether the files that crawls write can be read and stored. A file that cannot is missing
        only in its job.
        """
        troubled = [node for node in seen().living() if node.troubles]
        if not troubled:
            return Check("ok", "every crawl's files can be read and stored")
        names = ", ".join(f"{node.id} ({'; '.join(node.troubles)})" for node in troubled)
        todo = (
            "cancel those crawls, or see their spiders: a file of theirs is a FIFO, a link, a folder or endless; "
            "if it is the file store, see FILES_URL: files wait on their nodes"
        )
        return Check("down", f"files not stored from {names}", todo)

    def listed(self, seen: Seen) -> Check:
        """Compare the nodes that `SCRAPYD_URL` names with those that have registered."""
        if not self._node_list.urls:
            return Check("ok", "every node that registers itself gets work")
        reports = seen().nodes
        if missing := self._node_list.missing(node.url for node, _ in reports):
            message = f"of the {len(self._node_list.urls)} nodes in SCRAPYD_URL, {len(missing)} have never registered"
            return Check("down", message, f"{health.MISSING_TODO}; GET /nodes names them")
        if others := [node.id for node, report in reports if report.state is NodeState.NOT_LISTED]:
            message = f"not in SCRAPYD_URL, so they get no work: {', '.join(others)}"
            return Check("ok", message, "add their URLs, as GET /nodes shows them, or stop their tailers")
        return Check("ok", "all nodes in SCRAPYD_URL have registered")


def _lives(report: health.NodeReport) -> bool:
    return report.state is not NodeState.DEAD


def _failures(node: Node) -> str:
    return f"{node.id} ({node.failures} failure{'s' if node.failures > 1 else ''})"


# --- whether jobs wait though nodes have capacity: no worker dispatches, or one is wrong about which job may run

#: How long a job must have been due to count: before that, it is about to be started.
DUE_FOR = timedelta(seconds=5)
#: The check fails if no job was started for this many seconds since the first check that saw the same waiting job.
IDLE_SECONDS = 5.0
#: How many jobs are checked.
BATCH = 50

_OK = Check("ok", "no job is waiting while slots are free")


class _Look(NamedTuple):
    at: float
    #: Ids of jobs that could have been started.
    waiting: frozenset[str]
    #: How many attempts have got a slot since the platform was set up.
    started: int


@define(eq=False, repr=False, slots=False, kw_only=True)
class IdleSlots:
    """Checks that free slots are used. A single look is not enough: while many jobs wait, there is sometimes a slot
    that has just become free. So the check fails only if the same jobs wait as in an earlier check, and no job was
    started in between.
    """

    _statistics: JobStatistics
    _projects: ProjectStore
    _dead_after: timedelta
    _clock: Clock
    _monotonic: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(init=False, factory=threading.Lock)
    _first: _Look | None = field(init=False, default=None)

    def check(self, nodes: Sequence[Node]) -> Check:
        """`nodes` were read just now. Raises PyMongo's errors."""
        waiting = frozenset(job.id for job in self._waiting(nodes))
        look = _Look(self._monotonic(), waiting, sum(node.taken_slots for node in nodes))
        with self._lock:
            first = self._first
            if first is None or look.started != first.started or not look.waiting & first.waiting:
                self._first = look if waiting else None
                return _OK
        if look.at - first.at < IDLE_SECONDS:
            return _OK
        message = (
            f"{len(look.waiting & first.waiting)} jobs are waiting although nodes have free slots, and none starts"
        )
        todo = "see `workers`; if one is alive, see its log for `own_work_failed` and `dispatch_failed`"
        return Check("down", message, todo)

    def _waiting(self, nodes: Sequence[Node]) -> list[Job]:
        now = self._clock()
        choice = NodeChoice(nodes, now, self._dead_after, configured_projects(self._projects, nodes))
        if choice.capacity() is None:
            return []
        due = self._statistics.waiting_since(now - DUE_FOR, BATCH)
        free = (job for job in due if job.waiting_reason is not WaitingReason.USER_QUOTA)
        return [job for job in free if choice.suits(job.partition.requirements)]


_BROKER_TIMEOUT = 2
#: Seconds for which the broker counts as refusing messages after it has refused one.
_REFUSES = 15.0
#: Seconds for all checks together.
_PATIENCE = 5.0
#: A check that is still under way after `_SOON` seconds is reported with its last answer, if this is at most
#: `_LATELY` seconds old.
_SOON, _LATELY = 0.5, 15.0
_SLOW = Check("down", f"no answer within {_PATIENCE:g} s", "see whether it hangs, or the network on the way to it")
_NO_MONGO = "start MongoDB, or set MONGO_URI; nothing is accepted until it answers"
_REFUSED = "see MongoDB's log, and whether the user in MONGO_URI may read and write every collection"
_NO_REDIS = "start Redis, or set REDIS_URL; until then crawls are accepted, but live logs come late"
_NO_WORKER = "start `celery -A celery_app worker`; without one, no job is handed to a node"
_NO_BEAT = "start `celery -A celery_app beat`; without it, no schedule is fired and no lost job is found"
_NEWER = (
    "what runs goes on, but no process of this version starts again: upgrade, or go back (docs/how-to/upgrade.md)"
)
#: An occurrence that has been due for longer than this is late: a few ticks of the beat on a busy machine.
LATE_AFTER = timedelta(seconds=5)
#: The check fails if calls have failed for `_LASTING` seconds, and the last one failed at most `_RECENT` seconds ago.
_LASTING, _RECENT = 15.0, 10.0
#: Seconds by which a machine's clock may differ from MongoDB's.
_CLOCK_OFF = 10.0
#: A link is slow if a round trip takes this many seconds: the start of a crawl needs about thirty round trips in a
#: row.
_SLOW_LINK = 0.3
_MEND_LINK = "see the network between the two, or the store's load; best they stand in one place"
#: Redis counts as full if it uses more than this share of its memory.
_FULL = 0.95
_FULL_REDIS = (
    "raise its maxmemory, or lower RESULT_TTL and CRAWL_CACHE_TTL; meanwhile crawls go on and nothing of them is "
    "lost, but live logs come late"
)


class Report(NamedTuple):
    checks: dict[str, Check]

    @property
    def accepting(self) -> bool:
        """Whether crawls can be submitted now: MongoDB answers, and a node has published its spiders."""
        return self.status in {"ok", "degraded"}

    @property
    def status(self) -> str:
        if not self.checks["mongo"].ok:
            return "down"
        if self.checks["nodes"].status == STARTING:
            return STARTING
        return "ok" if all(check.ok for check in self.checks.values()) else "degraded"


@define(eq=False, repr=False, slots=False, kw_only=True)
class Health:
    """Runs the checks. `database` should have short timeouts, because a client waits for the report."""

    _database: Database[Document]
    _redis: redis.Redis
    _broker_url: str
    _dead_after: timedelta
    _node_list: NodeList = EVERY_NODE
    _late_after: timedelta = LATE_AFTER
    _clock: Clock = utc_now

    def __attrs_post_init__(self) -> None:
        database, clock = self._database, self._clock
        self._nodes = NodeStore(database, clock, self._node_list)
        self._node_checks = NodeChecks(SpiderStore(database), self._node_list, self._dead_after)
        self._statistics = JobStatistics(database)
        self._deliveries = DeliveryStore(database)
        projects = ProjectStore(database)
        self._idle = IdleSlots(
            statistics=self._statistics, projects=projects, dead_after=self._dead_after, clock=clock
        )
        self._schedules, self._ledger = ScheduleStore(database, clock), LedgerStore(database)
        self._unreadable = UnreadableStore(database)
        self._heartbeats = health.HeartbeatStore(database, clock)
        self._threads = ThreadPoolExecutor(16, thread_name_prefix="health")
        #: `_asked`: the present or last run of each check. `_answered`: its last answer, and the monotonic time.
        self._asked: dict[str, Future[Check]] = {}
        self._answered: dict[str, tuple[float, Check]] = {}

    def report(self) -> Report:
        """Run all checks at the same time. A check that is still under way since an earlier report is not started
        again. The report does not wait long for a check that has a recent answer. Only one caller at a time.
        """
        # submitted first, because the checks wait for it in threads of the same pool
        seen = self._threads.submit(self._signs).result
        nodes = self._node_checks
        checks: dict[str, Callable[[], Check]] = {
            "mongo": partial(_check_store, lambda: self._database.command("ping"), _NO_MONGO),
            "redis": partial(_check_redis, self._redis),
            "broker": self._check_broker,
            "nodes": partial(nodes.alive, seen),
            "node_list": partial(nodes.listed, seen),
            "node_states": partial(nodes.states, seen),
            "disk": partial(nodes.disk, seen),
            "files": partial(nodes.files, seen),
            "waiting": lambda: self._idle.check([node for node, _ in seen().nodes]),
            "documents": self._check_documents,
            "schedules": self._check_schedules,
            "workers": partial(_check_processes, seen, health.WORKER, _NO_WORKER),
            "beat": partial(_check_processes, seen, health.BEAT, _NO_BEAT),
            "webhooks": self._check_webhooks,
            "connections": partial(_check_connections, seen),
            "clocks": partial(_check_clocks, seen),
            "versions": partial(_check_versions, seen),
        }
        running = {name: self._asking(name, check) for name, check in checks.items()}
        _, late = wait(running.values(), _SOON)
        unknown = [asked for name, asked in running.items() if asked in late and self._last(name) is _SLOW]
        wait(unknown, _PATIENCE - _SOON)
        return Report({name: asked.result() if asked.done() else self._last(name) for name, asked in running.items()})

    def _asking(self, name: str, check: Callable[[], Check]) -> Future[Check]:
        asked = self._asked.get(name)
        if asked is None or asked.done():
            asked = self._asked[name] = self._threads.submit(self._ask, name, check)
        return asked

    def _ask(self, name: str, check: Callable[[], Check]) -> Check:
        answer = _known(check)
        self._answered[name] = time.monotonic(), answer
        return answer

    def _last(self, name: str) -> Check:
        """The check's last answer, or `_SLOW` if it has no recent answer."""
        at, answer = self._answered.get(name, (float("-inf"), _SLOW))
        return answer if time.monotonic() - at < _LATELY else _SLOW

    def _signs(self) -> Signs:
        return Signs(self._nodes, self._heartbeats, self._clock(), self._dead_after)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _check_broker(self) -> Check:
        todo = "start the broker, or set BROKER_URL; until then workers find the jobs by themselves, a second later"
        options = _broker_options(self._broker_url)
        try:
            broker: Any = Connection(self._broker_url, connect_timeout=_BROKER_TIMEOUT, **options)
        except (KeyError, ValueError) as error:
            return Check("down", f"BROKER_URL cannot be understood: {error}", todo)
        try:
            with broker:
                broker.connect()
        except (*broker.connection_errors, *broker.channel_errors, OSError, KombuError) as error:
            return Check("down", f"no answer ({type(error).__name__})", todo)
        if any(one.store == "the broker" and one.calls > 1 and one.ago < _REFUSES for one in lately_unanswered()):
            todo = "see its log: RabbitMQ takes none while its memory or disk alarm is on; workers do without it"
            return Check("down", "accepts connections, but no messages", todo)
        return Check("ok", "answers")

    def _check_schedules(self) -> Check:
        """Whether occurrences are fired when they are due."""
        now = self._clock()
        next_run = self._schedules.next_run()
        if next_run is None or now - next_run <= self._late_after:
            refused = self._ledger.count_refused(now - timedelta(minutes=1), MAX_DUE)
            skipped = f", except {refused} runs that quotas skipped within a minute" if refused else ""
            return Check("ok", f"every schedule ran on time{skipped}")
        due, late = self._schedules.count_due(now, MAX_DUE), (now - next_run).total_seconds()
        todo = "see `beat`; if one is alive, see its log and GET /scheduler/status"
        return Check("down", f"late schedules: {due}, the first by {late:.0f} s", todo)

    def _check_documents(self) -> Check:
        """Whether there are documents that could not be read."""
        if (stored := stored_format(self._database)) > OURS.understood:
            message = f"a newer version has written some, of format {stored}; {OURS.understood} is understood here"
            return Check("down", message, _NEWER)
        found = self._unreadable.all(MAX_DUE)
        if not found:
            return Check("ok", "every document could be read")
        of = Counter(one.collection for one in found)
        counts = ", ".join(f"{count} of {collection}" for collection, count in sorted(of.items()))
        todo = "`discoverybot doctor` names them; everything else is read as usual"
        noun = "stored record is" if len(found) == 1 else "stored records are"
        return Check("down", f"{len(found)} {noun} damaged: {counts}", todo)

    def _check_webhooks(self) -> Check:
        """Whether webhooks are called when they are due. Every client sees the answer, so it names
        no users or URLs.
        """
        now = self._clock()
        waiting, since, failing = self._deliveries.to_come(now - self._late_after)
        unannounced = self._statistics.unannounced_since(now - self._late_after)
        failed = f"calls that failed and are retried: {failing}" if failing else ""
        if since is None and unannounced is None:
            return Check("ok", failed or "every webhook is called when it is due")
        late = f"late calls: {waiting}, the first by {(now - since).total_seconds():.0f} s" if since else ""
        silent = f"late events, the first by {(now - unannounced).total_seconds():.0f} s" if unannounced else ""
        todo = "see `workers`; if one is alive, receivers are slow: its log names their hosts with `webhook_failed`"
        return Check("down", "; ".join(filter(None, (silent, late, failed))), todo)


def _check_processes(seen: Seen, kind: str, todo: str) -> Check:
    """Whether at least one of these processes has given a recent sign of life."""
    now, signs = seen().now, [heartbeat.at for heartbeat in seen().processes[kind]]
    alive = sum(now - at <= health.DEAD_AFTER for at in signs)
    if alive:
        return Check("ok", f"{alive} alive")
    age = f"last seen {(now - max(signs)).total_seconds():.0f} s ago" if signs else "no process has ever been seen"
    return Check("down", age, todo)


def _check_connections(seen: Seen) -> Check:
    """Whether the stores answer all processes. A single failed call is only reported, because it was repeated."""
    now = seen().now
    found = [
        (one, sign.name, one.ago + (now - sign.at).total_seconds())
        for sign in _living_signs(seen())
        for one in sign.unanswered
    ]
    if slow := list(_slow_links(seen())):
        links = ", ".join(f"{whose} to {who} take {seconds:.1f} s" for whose, who, seconds in slow)
        return Check("down", f"slow answers: {links}", _MEND_LINK)
    if not found:
        return Check("ok", "every call of the last minute was answered")
    calls = ", ".join(f"{one.store} to {who} ({one.calls} ×, the last {ago:.0f} s ago)" for one, who, ago in found)
    lasts = any(one.lasted >= _LASTING and ago <= _RECENT for one, _, ago in found)
    todo = "if this lasts, check the network between the two; the calls are repeated, and nothing is lost"
    return Check("down" if lasts else "ok", f"no answer from {calls}", todo)


def _slow_links(signs: Signs) -> Iterator[tuple[str, str, float]]:
    """The slow links: whose answers are slow, for which process, and how many seconds they take."""
    for sign in _living_signs(signs):
        if sign.round_trip >= _SLOW_LINK:
            yield "MongoDB's", sign.name, sign.round_trip
        yield from ((f"node {node}'s", sign.name, seconds) for node, seconds in sign.slow_nodes)


def _check_clocks(seen: Seen) -> Check:
    """Whether the clocks of all machines agree with MongoDB's. Runs do not depend on the machines' clocks."""
    off = [(sign.name, sign.clock_ahead) for sign in _living_signs(seen()) if abs(sign.clock_ahead) > _CLOCK_OFF]
    if not off:
        return Check("ok", "every machine's clock shows MongoDB's time")
    machines = ", ".join(f"{who} {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}" for who, ahead in off)
    todo = "set these clocks, or MongoDB's; crawls use only MongoDB's, but logs and certificates do not"
    return Check("down", f"different from MongoDB's clock: {machines}", todo)


def _check_versions(seen: Seen) -> Check:
    """Which versions run. During an upgrade there are two versions side by side, so this check never fails. Processes
    are only counted, because their names would reveal the names of machines.
    """
    newest, older = outdated(seen().running())
    if not older:
        return Check("ok", f"every process runs {newest}" if newest else "no process has said its version yet")
    nodes = [f"node {one.name} ({one.version})" for one in older if one.kind == NODE]
    count = Counter((one.kind, one.version) for one in older if one.kind != NODE)
    others = [f"{number} {kind}{'s' if number > 1 else ''} ({version})" for (kind, version), number in count.items()]
    return Check("ok", f"older than {newest}, which runs beside them: {', '.join(nodes + others)}", _UPGRADE)


def _living_signs(signs: Signs) -> Iterator[health.ProcessHeartbeat]:
    """The last sign of life of each living node, worker and beat, and one of this process, with names that every
    client may see.
    """
    now = signs.now
    # without other gateways; this gateway's own sign is made below
    processes = (sign for sign in signs.living_processes() if sign.kind != health.GATEWAY)
    yield from (sign._replace(name=f"a {sign.kind}") for sign in processes)
    for node in signs.living():
        at, seconds = node.round_trip or (None, 0.0)
        slow = seconds if at == node.heartbeat_at else 0.0
        yield health.ProcessHeartbeat(
            node.id, node.heartbeat_at, node.clock_ahead, node.unanswered, node.version, round_trip=slow
        )
    yield health.ProcessHeartbeat("the gateway", now, seconds_ahead(now), lately_unanswered())


def _check_store(ping: Callable[[], object], todo: str) -> Check:
    try:
        if (seconds := _seconds(ping)) >= _SLOW_LINK:
            # measure again, because the first ping might have had to connect
            seconds = _seconds(ping)
    except (PyMongoError, redis.RedisError) as error:
        return Check("down", f"no answer ({type(error).__name__})", todo)
    if seconds >= _SLOW_LINK:
        return Check("down", f"answers, but takes {seconds:.1f} s for a ping", _MEND_LINK)
    return Check("ok", "answers")


def _seconds(ping: Callable[[], object]) -> float:
    began = time.monotonic()
    ping()
    return time.monotonic() - began


def _check_redis(client: redis.Redis) -> Check:
    answers = _check_store(client.ping, _NO_REDIS)
    if not answers.ok:
        return answers
    try:
        facts = client.info()
    except redis.RedisError as error:
        # the user in REDIS_URL may not be allowed to call INFO
        return Check("ok", f"answers, but does not report how full it is ({type(error).__name__})")
    return _check_writable(facts)


def _check_writable(facts: Mapping[str, Any]) -> Check:
    """Check by its `INFO` that Redis accepts writes."""
    most, used = int(facts.get("maxmemory", 0)), int(facts.get("used_memory", 0))
    if most and used > _FULL * most and facts.get("maxmemory_policy") == "noeviction":
        message = f"full: {used >> 20} of {most >> 20} MiB (maxmemory), so it refuses writes, or soon will"
        return Check("down", message, _FULL_REDIS)
    if facts.get("role") == "slave" and facts.get("slave_read_only"):
        return Check("down", "a replica, which takes no writes", "set REDIS_URL to its primary, or promote it")
    if facts.get("rdb_last_bgsave_status") == "err":
        return Check("down", "could not save to its disk, and may refuse writes", "free disk there; see Redis's log")
    return Check("ok", "answers")


def _known(check: Callable[[], Check]) -> Check:
    try:
        return check()
    except PyMongoError as error:
        if isinstance(error, ConnectionFailure) or error.timeout:
            return UNKNOWN
        # without the text of the error: it can name hosts, and every client sees the answer
        code = f" (code {error.code})" if isinstance(error, OperationFailure) and error.code else ""
        return Check("down", f"MongoDB answers, but refuses the query behind this check{code}", _REFUSED)


def _broker_options(url: str) -> dict[str, Any]:
    if url.startswith(SQS):
        return {"transport_options": sqs_options(_BROKER_TIMEOUT)}
    # AMQP takes none of these options
    if not url.startswith(("redis", "valkey")):
        return {}
    return {"transport_options": {"socket_timeout": _BROKER_TIMEOUT, "socket_connect_timeout": _BROKER_TIMEOUT}}


# The answer of `GET /health`. Every client may ask, without a key, and as often as it likes.
@define(eq=False, repr=False, slots=False)
class SharedHealth:
    """For use on one event loop. Only one report is made at a time: clients that ask meanwhile get
    the same report.
    """

    _look: Callable[[], Report]
    _under_way: asyncio.Task[Report] | None = field(init=False, default=None)

    async def report(self) -> Report:
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(asyncio.to_thread(self._look))
        # shielded, because the client whose request began the report may have disconnected
        return await asyncio.shield(self._under_way)
