"""Dispatch with many nodes: how fast slots fill up and are filled again, how long a cancel takes, and how often
MongoDB is read.

The stores, one beat, one worker and the gateway are processes as `discoverybot up` starts them; only the nodes are
not real (`bench/fake_nodes.py`). `python -m bench dispatch --nodes 10 --slots 10 --waiting 500` takes half a minute.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import psutil
import pymongo
import redis

from bench.cpu import end_tree, tree_seconds
from bench.effort import Effort
from bench.fake_nodes import Facts, fake_nodes
from bench.our_platform import ROOT, embedded_mongo, free_port, valkey_server, wait_until
from bench.table import Row
from bench.wire_proxy import READS, Asked, Commands, CountingProxy
from gateway.contract.crawl import CrawlSpec
from gateway.dispatch.dispatcher import RECONCILE_SECONDS
from gateway.jobs.job import Assignment, CrawlOrder, Job, JobStatus, new_job_id
from gateway.jobs.queue import JobQueue
from gateway.jobs.store import JobStore
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import Document, connect, within

#: Target values: least rates, their least ratio, and most seconds, reads and milliseconds.
FILLING, STEADY, ONE_NODE, CANCEL, READS_PER_TICK, CLAIM = 120.0, 60.0, 0.8, 2.0, 5.0, 3.0
ASKED = "what was asked for"
#: Attempts that end per second while the rate of starts is measured. Starts should follow at a tenth less at least.
ENDINGS = 66.0
#: Seconds that the shortest crawls live. A single node could run more of them than the platform starts.
SHORT = 0.1
#: Number of users that own the jobs.
USERS = 20
#: Seconds between two cancels, and seconds for which reads are counted.
CANCEL_EVERY, COUNTED = 2.0, 4 * RECONCILE_SECONDS
#: With fewer slots than this, everything is measured for a quarter of the time.
QUICK = 1000
#: Slots of the single node that is compared with many nodes.
ONE_NODE_SLOTS = 50
QUEUE = "scraping"
#: Modules whose CPU time is measured, too, besides the parts of the platform.
_MEASURED = ("embedded.mongo", "bench.fake_nodes")


class Size(NamedTuple):
    nodes: int = 100
    #: Slots of each node.
    slots: int = 50
    waiting: int = 10_000
    #: Seconds for which attempts end and are replaced, and seconds for which the shortest crawls are started. A
    #: quarter of that time passes before each measurement, uncounted.
    steady: float = 60.0
    short: float = 16.0
    #: Most seconds until all slots are full.
    patience: float = 120.0

    @property
    def all_slots(self) -> int:
        return self.nodes * self.slots

    def __str__(self) -> str:
        return f"{self.nodes} nodes × {self.slots} slots, {self.waiting:,} waiting"


FULL = Size()
SIZES = Size(2, 5, 60, steady=6.0, short=1.0), Size(40, 25, 2000, steady=12.0, short=4.0), FULL


class Steady(NamedTuple):
    #: Jobs started per second.
    rate: float
    #: Seconds from the end of a "crawl" to its outcome, and messages at the broker: in the first and the last third.
    outcome: tuple[float, float]
    messages: tuple[float, float]
    #: Seconds from `POST …/cancel` to `cancel.json`.
    cancels: list[float]


def main(arguments: Sequence[str]) -> list[Row]:
    parser = argparse.ArgumentParser("python -m bench dispatch")
    for name, default in Size._field_defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    size = Size(**vars(parser.parse_args(arguments)))
    # a small platform soon reaches its steady state
    return measured(size._replace(steady=size.steady / 4, short=size.short / 4) if size.all_slots < QUICK else size)


def run(effort: Effort) -> list[Row]:
    return measured(effort.of(*SIZES))


def measured(size: Size) -> list[Row]:
    with platform() as stack, fake_nodes(1, stack.environment) as order, stack.parts():
        one_node = short_crawls(stack, order, peer := size._replace(nodes=1, slots=ONE_NODE_SLOTS))
        check(order(), peer)
    with platform() as stack:
        base = stack.reads_per_tick()
        with fake_nodes(size.nodes, stack.environment) as order:
            with stack.parts():
                short = short_crawls(stack, order, size), one_node
                filling, steady = fill_and_go_on(stack, order, size)
            reads = stack.reads_per_tick(lambda: fill_for_good(stack, order, size)) - base
            check(order(), size)
        claim = claim_ms(stack.database, size.waiting)
    return [*rates(size, filling, steady, short), *levels(size, steady), *costs(size, steady, reads, claim)]


def rates(size: Size, filling: float, steady: Steady, short: tuple[float, float]) -> list[Row]:
    what = f"dispatch, {size}"
    return [
        Row(f"{what}: filling", "jobs/s", filling, FILLING, ASKED, filling / FILLING, ">= 1"),
        Row(f"{what}: steady, with endings", "jobs/s", steady.rate, STEADY, ASKED, steady.rate / STEADY, ">= 1"),
        Row(
            f"{what}: crawls of {SHORT} s, as many as go", "jobs/s", *short,
            f"the same with one node of {ONE_NODE_SLOTS} slots", short[0] / short[1], f">= {ONE_NODE}",
        ),
    ]  # fmt: skip


def levels(size: Size, steady: Steady) -> list[Row]:
    """Rows for values that must not grow without end. A value that does would more than double from the first to the
    last third. Small values are raised to a minimum, because their growth is noise.
    """
    seconds, messages = max(steady.outcome[0], 0.25), max(steady.messages[0], 100.0)
    last = f"dispatch, {size}: in the last third of that time"
    return [
        Row(f"{last}, exit to outcome (median)", "s", steady.outcome[1], seconds,
            "in the first third, at least 0.25", steady.outcome[1] / seconds, "<= 1.5"),
        Row(f"{last}, messages at the broker", "messages", steady.messages[1], messages,
            "in the first third, at least 100", steady.messages[1] / messages, "<= 1.5"),
    ]  # fmt: skip


def costs(size: Size, steady: Steady, reads: float, claim: float) -> list[Row]:
    slowest = max(steady.cancels)
    return [
        Row(f"dispatch, {size}: POST cancel to cancel.json meanwhile, slowest of {len(steady.cancels)}", "s",
            slowest, CANCEL, ASKED, slowest / CANCEL, "<= 1"),
        Row(f"MongoDB reads per tick to reconcile {size.nodes} nodes, {size.all_slots:,} crawls", "reads",
            reads, READS_PER_TICK, ASKED, reads / READS_PER_TICK, "<= 1"),
        Row(f"one claim behind {size.waiting:,} jobs in back-off", "ms", claim, CLAIM, ASKED, claim / CLAIM, "<= 1"),
    ]  # fmt: skip


class Platform:
    """The running stores, and what is needed to run the other parts."""

    def __init__(self, folder: Path, mongo: str, valkey: str) -> None:
        self._folder = folder
        self._port = free_port()
        #: Process ids of the parts that were started last.
        self.pids: dict[str, int] = {}
        self.mongo = mongo
        self.database = connect(mongo)
        self.broker = redis.Redis.from_url(valkey)
        self.url = f"http://127.0.0.1:{self._port}"
        self.environment = {
            **os.environ,
            "DISCOVERYBOT_HOME": str(folder),
            "MONGO_URI": mongo,
            "REDIS_URL": valkey,
            "GATEWAY_PORT": str(self._port),
            "SCRAPYD_PASSWORD": "not-a-secret",
            # the log lines about each job are not part of the measurement
            "LOG_LEVEL": "warning",
            "PYTHONUNBUFFERED": "1",
        }

    @contextmanager
    def parts(self, *names: str, **variables: str) -> Iterator[None]:
        """One worker, one beat and the gateway, or those that are named, started as the laptop stack starts them."""
        names = names or ("worker", "beat", "gateway")
        with ExitStack() as ends:
            for name in names:
                command = ("gateway.web",) if name == "gateway" else ("celery", "--quiet", "-A", "celery_app", name)
                with (self._folder / f"{name}.log").open("ab") as log:
                    process = subprocess.Popen(
                        [sys.executable, "-m", *command], cwd=ROOT, env={**self.environment, **variables},
                        stdout=log, stderr=log,
                    )  # fmt: skip
                self.pids[name] = process.pid
                ends.callback(end_tree, process)
            wait_until(lambda: httpx2.get(f"{self.url}/health/live", trust_env=False).is_success, what="the gateway")
            wait_until(lambda: self._signs_of_life() >= {*names} - {"gateway"}, what="beat and worker")
            yield

    def _signs_of_life(self) -> set[str]:
        """Names of the parts that gave a sign of life within the last five seconds."""
        fresh = {"at": {"$gt": datetime.now().astimezone() - timedelta(seconds=5)}}
        return {str(one["_id"]).partition(":")[0] for one in self.database["heartbeats"].find(fresh)}

    def reads_per_tick(self, prepare: Callable[[], object] = lambda: None) -> float:
        """MongoDB reads of beat and worker between two checks of the nodes, after `prepare` has returned."""
        parts = urlsplit(self.mongo)
        with CountingProxy(parts.port or 0, Commands).running() as proxy:
            uri = parts._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()
            with self.parts(MONGO_URI=uri):
                prepare()
                # wait until everything that was begun earlier is over
                time.sleep(2 * RECONCILE_SECONDS)
                before = proxy.counts.copy()
                time.sleep(COUNTED)
                counted = proxy.since(before)
        show("asked of MongoDB in a tick", counted)
        return sum(counted[one] for one in counted if one.command in READS) * RECONCILE_SECONDS / COUNTED

    def outcomes(self, since: float) -> list[tuple[float, float]]:
        """For each crawl, in order: when it ended, and the seconds until its outcome was written."""
        moment = datetime.now().astimezone() - timedelta(seconds=time.monotonic() - since)
        ended = self.database["jobs"].find({"finished_at": {"$gte": moment}}, {"finished_at": 1, "attempts": 1})
        exits = [(one["finished_at"], list(one["attempts"].values())[-1]["ended_at"]) for one in ended]
        return [(at.timestamp(), (finished - at).total_seconds()) for finished, at in sorted(exits)]


@contextmanager
def platform() -> Iterator[Platform]:
    with (
        tempfile.TemporaryDirectory() as name,
        embedded_mongo(Path(name) / "mongo") as mongo,
        valkey_server(Path(name) / "valkey") as valkey,
    ):
        stack = Platform(Path(name), mongo, valkey)
        ensure_indexes(stack.database)
        yield stack
        stack.broker.close()
        stack.database.client.close()


def short_crawls(stack: Platform, order: Callable[..., Facts], size: Size) -> float:
    """Jobs started per second if slots are held only briefly. Afterwards nothing has changed except for the ended
    jobs.
    """
    insert(stack.database, size.waiting)
    order(slots=size.slots, lifetime=SHORT)
    with replenished(stack, order):
        time.sleep(size.short / 4)
        before, began, spent = order()["started"], time.monotonic(), processor_seconds(stack)
        time.sleep(size.short)
        started, passed = order()["started"] - before, time.monotonic() - began
        spent = {name: seconds - spent.get(name, 0) for name, seconds in processor_seconds(stack).items()}
    show_spent(size, spent, started)
    wait_for_ends(stack, order)
    order(lifetime=None)
    return float(started / passed)


def processor_seconds(stack: Platform) -> dict[str, float]:
    """CPU seconds of the started processes, by name. On a machine with other work they are more meaningful than
    rates.
    """
    names = {pid: name for name, pid in stack.pids.items()}
    spent: dict[str, float] = {}
    for process in psutil.Process().children():
        name = names.get(process.pid) or next((part for part in process.cmdline() if part in _MEASURED), None)
        if name:
            spent[name] = tree_seconds(process.pid)
    return spent


def show_spent(size: Size, spent: dict[str, float], jobs: int) -> None:
    each = ", ".join(f"{name} {seconds * 1000 / max(jobs, 1):.2f}" for name, seconds in spent.items())
    print(f"processor time of a job, {size.nodes} nodes: {each} ms", file=sys.stderr)


def fill_and_go_on(stack: Platform, order: Callable[..., Facts], size: Size) -> tuple[float, Steady]:
    """Jobs started per second until all slots are full, and the steady state in which attempts end."""
    insert(stack.database, size.waiting)
    filling = fill(order, size)
    order(ended_each_second=ENDINGS)
    with replenished(stack, order):
        time.sleep(size.steady / 4)
        steady = watch(stack, order, size)
    check(order(ended_each_second=0), size)
    return filling, steady


@contextmanager
def replenished(stack: Platform, order: Callable[..., Facts]) -> Iterator[None]:
    """During this block, a new waiting job is added for every job that is started."""
    over, started = threading.Event(), order()["started"]

    def replenish(known: int) -> None:
        while not over.wait(0.5):
            insert(stack.database, (now := order()["started"]) - known)
            known = now

    feeder = threading.Thread(target=replenish, args=(started,))
    feeder.start()
    try:
        yield
    finally:
        over.set()
        feeder.join()


def insert(database: pymongo.database.Database[Document], count: int, **fields: Any) -> list[str]:
    """Insert waiting jobs of all users in turn. Returns their ids."""
    store = JobStore(database)
    jobs = [waiting_job(f"user-{number % USERS:02}", **fields) for number in range(count)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(store.insert, jobs))
    return [job.id for job in jobs]


def waiting_job(user: str, **fields: Any) -> Job:
    job_id = new_job_id()
    crawl = CrawlOrder(spec=CrawlSpec(spider="seo", start_urls=(f"http://site.example/{job_id}",)))
    return Job.new(user, crawl, job_id, datetime.now().astimezone(), id=job_id, live_key=job_id, **fields)


def fill(order: Callable[..., Facts], size: Size) -> float:
    began, before = time.monotonic(), order()["started"]
    order(slots=size.slots)
    while order()["running"] < size.all_slots and time.monotonic() < began + size.patience:
        time.sleep(0.1)
    times = order(attempts=True)["times"]
    return float((len(times) - before) / (times[-1] - began))


def watch(stack: Platform, order: Callable[..., Facts], size: Size) -> Steady:
    began, messages, cancels = time.monotonic(), list[float](), dict[str, float]()
    with httpx2.Client(base_url=stack.url, timeout=30, trust_env=False) as http:
        while (passed := time.monotonic() - began) < size.steady:
            messages.append(float(stack.broker.llen(QUEUE)))
            if passed >= len(cancels) * CANCEL_EVERY and (attempt := order(keep=True)["kept"]):
                cancels[attempt] = time.monotonic()
                http.post(f"/jobs/{attempt.partition('-')[0]}/cancel").raise_for_status()
            time.sleep(0.5)
    ended = time.monotonic()
    started = sum(began <= moment < ended for moment in order(attempts=True)["times"])
    outcomes = [seconds for _, seconds in stack.outcomes(began)]
    return Steady(
        started / (ended - began),
        thirds(outcomes, statistics.median),
        thirds(messages, statistics.mean),
        waited_for_cancels(order, cancels),
    )


def thirds(values: list[float], middle: Callable[[list[float]], float]) -> tuple[float, float]:
    """The `middle` of the first third and of the last third."""
    third = len(values) // 3
    assert third, "next to nothing has happened"
    return middle(values[:third]), middle(values[-third:])


def waited_for_cancels(order: Callable[..., Facts], asked: dict[str, float]) -> list[float]:
    """Seconds of each cancel; for a cancel that has not arrived, the seconds until now."""
    deadline = time.monotonic() + 10 * CANCEL
    while asked.keys() - (told := order()["cancelled"]).keys() and time.monotonic() < deadline:
        time.sleep(0.2)
    return [told.get(attempt, time.monotonic()) - moment for attempt, moment in asked.items()]


def fill_for_good(stack: Platform, order: Callable[..., Facts], size: Size) -> None:
    """Fill all slots, with nothing ending or waiting."""
    wait_for_ends(stack, order)
    insert(stack.database, size.all_slots - order(slots=size.slots)["running"])
    wait_until(lambda: order()["running"] >= size.all_slots, timeout=5 * size.patience, what="full slots")


def wait_for_ends(stack: Platform, order: Callable[..., Facts]) -> None:
    """Start nothing more, wait until MongoDB has the end of everything that was begun, and delete the
    waiting jobs.
    """
    jobs, deadline = stack.database["jobs"], time.monotonic() + 300
    started = order(slots=0)["started"]
    while True:
        time.sleep(2)
        facts = order()
        if facts["started"] == started and facts["running"] == jobs.count_documents({"status": JobStatus.RUNNING}):
            break
        assert time.monotonic() < deadline, "what has ended is not known to have"
        started = facts["started"]
    with within(300):
        jobs.delete_many({"status": JobStatus.PENDING})


def claim_ms(database: pymongo.database.Database[Document], count: int) -> float:
    """Milliseconds to claim the only job that may start, behind `count` refused jobs of its partition."""
    database["jobs"].delete_many({})
    queue, later = JobQueue(database), datetime.now().astimezone() + timedelta(hours=1)
    partition = waiting_job("greedy").partition
    for job_id in insert(database, count):
        # assigning them one after the other through the queue would take minutes
        refused = Assignment(attempt=1, node="none", token=job_id, until=later)
        changed = {"user_id": "greedy", "assignment": refused.model_dump(), "attempt": 1}
        database["jobs"].update_one({"_id": job_id}, {"$set": changed, "$unset": {"lane": ""}})
        queue.release(JobStore(database).get(job_id), not_before=later, message="refused")
    times = []
    for _ in range(20):
        JobStore(database).insert(waiting_job("greedy"))
        began = time.perf_counter()
        (candidate,) = queue.best(partition, 1)
        assigned = queue.assign(
            [(candidate, Assignment(attempt=1, node="none", token=uuid.uuid4().hex, until=later))]
        )
        times.append(time.perf_counter() - began)
        assert assigned
    return statistics.median(times) * 1000


def check(facts: Facts, size: Size) -> None:
    """Fail on errors and on nodes with too many attempts, whatever the rates are."""
    assert not facts["trouble"], facts["trouble"][:5]
    assert facts["most"] <= size.slots, f"{facts['most']} ran at once on a node with {size.slots} slots"


def show(title: str, counted: Counter[Asked]) -> None:
    """Print the most frequent commands on stderr, because reducing these helps most."""
    kinds: Counter[str] = Counter()
    for asked, count in counted.items():
        kinds[f"{asked.command} {asked.collection}".strip()] += count
    shown = ", ".join(f"{kind}: {count * RECONCILE_SECONDS / COUNTED:.3g}" for kind, count in kinds.most_common(12))
    print(f"{title}: {shown or 'nothing'}", file=sys.stderr)
