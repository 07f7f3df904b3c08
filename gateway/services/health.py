"""What works, what does not, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta
from typing import Any, NamedTuple

import redis
from kombu.connection import Connection
from kombu.exceptions import KombuError
from pymongo.database import Database
from pymongo.errors import PyMongoError

from gateway.domain.clock import Clock, seconds_ahead, utc_now
from gateway.domain.node_list import EVERY_NODE, NodeList
from gateway.domain.unanswered import lately_unanswered
from gateway.services.check import STARTING, UNKNOWN, Check
from gateway.services.idle_slots import IdleSlots
from gateway.services.node_checks import NodeChecks
from gateway.services.scheduler_status import MAX_DUE
from gateway.storage.client import Document
from gateway.storage.due_jobs import DueJobs
from gateway.storage.heartbeats import BEAT, DEAD_AFTER, WORKER, Heartbeat, HeartbeatStore
from gateway.storage.ledger import LedgerStore
from gateway.storage.nodes import NodeStore
from gateway.storage.schedules import ScheduleStore
from gateway.storage.spiders import SpiderStore
from gateway.storage.unreadable import UnreadableStore

_BROKER_TIMEOUT = 2
#: Seconds for all checks together.
_PATIENCE = 5.0
_SLOW = Check("down", f"no answer within {_PATIENCE:g} s", "see whether it, or the way to it, hangs")
#: A slot that is due for longer is late: a few ticks, and what a busy machine takes for them.
LATE_AFTER = timedelta(seconds=5)
#: Calls that are made again, and fail for so many seconds, up to so many seconds ago, are no accident.
_LASTING, _RECENT = 15.0, 10.0
#: Seconds by which a machine's clock may differ from MongoDB's.
_CLOCK_OFF = 10.0


class Report(NamedTuple):
    checks: dict[str, Check]

    @property
    def accepting(self) -> bool:
        """Whether a crawl that is asked for now would be kept: MongoDB, and one who knows what there is to crawl."""
        return self.status in {"ok", "degraded"}

    @property
    def status(self) -> str:
        if not self.checks["mongo"].ok:
            return "down"
        if self.checks["nodes"].status == STARTING:
            return STARTING
        return "ok" if all(check.ok for check in self.checks.values()) else "degraded"


class Health:
    """`database` should be one whose time-outs are short: whoever asks is waiting."""

    def __init__(
        self,
        *,
        database: Database[Document],
        client: redis.Redis,
        broker_url: str,
        dead_after: timedelta,
        node_list: NodeList = EVERY_NODE,
        late_after: timedelta = LATE_AFTER,
        clock: Clock = utc_now,
    ) -> None:
        self._database = database
        self._redis = client
        self._broker_url = broker_url
        self._nodes = NodeChecks(
            NodeStore(database, clock, node_list), SpiderStore(database), node_list, dead_after, clock
        )
        self._due = DueJobs(database)
        self._idle = IdleSlots(
            nodes=NodeStore(database, clock, node_list), jobs=self._due, dead_after=dead_after, clock=clock
        )
        self._schedules, self._ledger = ScheduleStore(database, clock), LedgerStore(database)
        self._unreadable = UnreadableStore(database)
        self._heartbeats = HeartbeatStore(database, clock)
        self._late_after = late_after
        self._clock = clock
        self._threads = ThreadPoolExecutor(16, thread_name_prefix="health")

    def report(self) -> Report:
        """All checks, at the same time."""
        checks: dict[str, Callable[[], Check]] = {
            "mongo": self._check_mongo,
            "redis": self._check_redis,
            "broker": self._check_broker,
            "nodes": self._nodes.alive,
            "node_list": self._nodes.listed,
            "node_states": self._nodes.states,
            "disk": self._nodes.disk,
            "files": self._nodes.files,
            "waiting": self._idle.check,
            "documents": self._check_documents,
            "schedules": self._check_schedules,
            "workers": self._check_workers,
            "beat": self._check_beat,
            "webhooks": self._check_webhooks,
            "connections": self._check_connections,
            "clocks": self._check_clocks,
        }
        running = {name: self._threads.submit(_known, check) for name, check in checks.items()}
        answered, _ = wait(running.values(), _PATIENCE)
        return Report({name: future.result() if future in answered else _SLOW for name, future in running.items()})

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _check_mongo(self) -> Check:
        try:
            self._database.command("ping")
        except PyMongoError as error:
            todo = "start MongoDB, or set MONGO_URI; nothing is accepted until it answers"
            return Check("down", f"no answer ({type(error).__name__})", todo)
        return Check("ok", "answers")

    def _check_redis(self) -> Check:
        try:
            self._redis.ping()
        except redis.RedisError as error:
            todo = "start Redis, or set REDIS_URL; crawls are accepted, live logs come late"
            return Check("down", f"no answer ({type(error).__name__})", todo)
        return Check("ok", "answers")

    def _check_broker(self) -> Check:
        todo = "start the broker, or set BROKER_URL; until then jobs are found by the beat's sweeps, a little later"
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
        return Check("ok", "answers")

    def _check_schedules(self) -> Check:
        """Whether slots are fired when they are due."""
        now = self._clock()
        next_run = self._schedules.next_run()
        if next_run is None or now - next_run <= self._late_after:
            refused = self._ledger.count_refused(now - timedelta(minutes=1), MAX_DUE)
            skipped = f", but for {refused} skipped within a minute by their users' quotas" if refused else ""
            return Check("ok", f"every slot was fired in time{skipped}")
        due, late = self._schedules.count_due(now, MAX_DUE), (now - next_run).total_seconds()
        todo = "see `beat`; with one alive look at its log, and at GET /scheduler/status"
        return Check("down", f"{due} due, the first for {late:.0f} s", todo)

    def _check_documents(self) -> Check:
        """Whether all that was read lately could be read."""
        found = self._unreadable.all(MAX_DUE)
        if not found:
            return Check("ok", "all that was read could be read")
        of = Counter(one.collection for one in found)
        told = ", ".join(f"{count} of {collection}" for collection, count in sorted(of.items()))
        todo = "`discoverybot doctor` names them; nothing else is kept from being read by them"
        return Check("down", f"{len(found)} cannot be read: {told}", todo)

    def _check_webhooks(self) -> Check:
        """Whether they are called when they are due. Whose they are and where they lead is not for everybody."""
        now = self._clock()
        waiting, since, failing = self._due.webhooks(now - self._late_after)
        failed = f"calls for {failing} ended jobs failed and are repeated" if failing else ""
        if since is None:
            return Check("ok", failed or "each is called when it is due")
        late = f"{waiting} ended jobs wait for their calls, the first for {(now - since).total_seconds():.0f} s"
        todo = "see `workers`; with one alive receivers are slow: its log names their hosts with `webhook_failed`"
        return Check("down", "; ".join(filter(None, (late, failed))), todo)

    def _check_workers(self) -> Check:
        todo = "start `celery -A celery_app worker`; without one jobs wait, and none is handed to a node"
        return self._check_processes(WORKER, todo)

    def _check_beat(self) -> Check:
        todo = "start `celery -A celery_app beat`; without it no schedule is fired, and nothing lost is made up for"
        return self._check_processes(BEAT, todo)

    def _check_processes(self, kind: str, todo: str) -> Check:
        """Whether one at least gave a sign of life lately."""
        now, seen = self._clock(), [heartbeat.at for heartbeat in self._heartbeats.all(kind)]
        alive = sum(now - at <= DEAD_AFTER for at in seen)
        if alive:
            return Check("ok", f"{alive} alive")
        age = f"last seen {(now - max(seen)).total_seconds():.0f} s ago" if seen else "none was ever seen"
        return Check("down", age, todo)

    def _check_connections(self) -> Check:
        """Whether stores answer those who ask them. What happened once was asked again, and is only told of."""
        now = self._clock()
        found = [
            (one, sign.name, one.ago + (now - sign.at).total_seconds())
            for sign in self._signs()
            for one in sign.unanswered
        ]
        if not found:
            return Check("ok", "every call of the last minute was answered")
        told = ", ".join(f"{one.store} to {who} ({one.calls} ×, the last {ago:.0f} s ago)" for one, who, ago in found)
        lasts = any(one.lasted >= _LASTING and ago <= _RECENT for one, _, ago in found)
        todo = "if it lasts look at the way from the one to the other; what was asked is asked again, nothing is lost"
        return Check("down" if lasts else "ok", f"no answer from {told}", todo)

    def _check_clocks(self) -> Check:
        """Whether the clocks of all machines show MongoDB's time. No run goes by them."""
        off = [(sign.name, sign.clock_ahead) for sign in self._signs() if abs(sign.clock_ahead) > _CLOCK_OFF]
        if not off:
            return Check("ok", "every machine's clock shows MongoDB's time")
        told = ", ".join(f"{who} {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}" for who, ahead in off)
        todo = "set the clocks there, or MongoDB's; crawls go by MongoDB's alone, but logs and certificates do not"
        return Check("down", f"off from MongoDB's: {told}", todo)

    def _signs(self) -> Iterator[Heartbeat]:
        """The last of each process that is alive, and what this one would say; by names that anybody may know."""
        now = self._clock()
        for kind in (WORKER, BEAT):
            alive = [sign for sign in self._heartbeats.all(kind) if now - sign.at <= DEAD_AFTER]
            yield from (sign._replace(name=f"a {kind}") for sign in alive)
        for node in self._nodes.living():
            yield Heartbeat(node.id, node.heartbeat_at, node.clock_ahead, node.unanswered)
        yield Heartbeat("the gateway", now, seconds_ahead(now), lately_unanswered())


def _known(check: Callable[[], Check]) -> Check:
    try:
        return check()
    except PyMongoError:
        return UNKNOWN


def _broker_options(url: str) -> dict[str, Any]:
    # amqp takes none of these
    if not url.startswith(("redis", "valkey")):
        return {}
    return {"transport_options": {"socket_timeout": _BROKER_TIMEOUT, "socket_connect_timeout": _BROKER_TIMEOUT}}
