"""What a crawl, a second of rest and a look at a page cost each part of the platform, and how these costs change with
the numbers of nodes and of waiting jobs.

The stores, one beat, one worker and the gateway are real processes; only the nodes are simulated
(`bench/fake_nodes.py`). A proxy in front of each store counts its requests. All figures are CPU time, commands and
bytes, which other work on the machine hardly changes. `docs/how-to/sizing.md` is based on them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2
import psutil

from bench.cpu import tree_seconds
from bench.dispatch import Platform, waiting_job
from bench.effort import Effort
from bench.fake_nodes import Facts, fake_nodes
from bench.our_platform import embedded_mongo, valkey_server, wait_until
from bench.table import Row
from bench.wire_proxy import BYTES, UPKEEP, Asked, Commands, CountingProxy, RoundTrips, WithBytes
from gateway.contract.records import SpiderInfo
from gateway.dispatch.dispatcher import RECONCILE_SECONDS
from gateway.jobs.job import Job
from gateway.jobs.queries import MAX_USERS
from gateway.jobs.store import JobStore
from gateway.projects.eggs import SpiderStore
from gateway.status.facts import KEPT
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import within

#: Seconds that a crawl lives.
LIFETIME = 1.0
#: Number of nodes of the platform on which jobs wait.
WAITED_FOR = 10
#: The pages that are requested: name in the table, and path.
HEALTH = "/health"
PAGES = {HEALTH: HEALTH, "/metrics": "/metrics", "overview": "/", "/nodes": "/nodes", "/jobs/health": "/jobs/health"}
#: Pages whose content is kept for a while, and shared by all clients.
READ_FOR_ALL = ("/metrics", "overview")
#: Name of the answer that clients poll while a crawl waits.
WAITS = "the status of a job that waits"
STORES = ("mongo", "redis", "broker")
PARTS = ("gateway", "worker", "beat", *STORES)
#: Values by the name of the figure, and then by column.
Figures = dict[str, dict[str, float]]
#: URLs by the name of the store.
Urls = dict[str, str]


class Size(NamedTuple):
    nodes: tuple[int, ...] = (1, 10, 100)
    #: Numbers of waiting jobs, with ten nodes and all slots full.
    waiting: tuple[int, ...] = (10, 1_000, 100_000)
    #: Slots of each node.
    slots: int = 20
    #: Users that own the crawls, in turn.
    users: int = 20
    #: Crawls that are requested per second.
    rate: float = 10.0
    #: Seconds for which each state is watched.
    seconds: float = 10.0
    #: How often each page is requested.
    looks: int = 20
    #: Whether to fill all slots for each number of nodes, and to request all of `PAGES`.
    thorough: bool = True


FULL = Size()
SMOKE = Size(nodes=(1, 2), waiting=(2, 4), slots=2, seconds=1.0, looks=1, thorough=False)
#: For the table of all benchmarks: a minute.
SHORT = Size(nodes=(2, 20), waiting=(10, 1_000), slots=5, seconds=2.0, looks=5, thorough=False)
#: Figures that must hardly grow from the first column to the last, with the largest allowed ratio.
BY_NODES = {
    "a crawl: commands to mongo": 1.2,
    "a crawl: kB to and from mongo": 1.6,
    "a crawl: ms of worker": 1.5,
    "a look at /health: commands to mongo": 1.2,
}
BY_WAITING = {
    "a second with all slots full: commands to mongo": 1.2,
    "a crawl with all slots full: commands to mongo": 1.2,
    "a crawl with all slots full: ms of worker": 1.5,
}
#: Seconds between two heartbeats of a node: each is one command.
BEATS = 2.0


def main(arguments: Sequence[str]) -> list[Row]:
    parser = argparse.ArgumentParser("python -m bench fleet")
    parser.add_argument("--nodes", type=int, nargs="+", default=FULL.nodes)
    parser.add_argument("--waiting", type=int, nargs="+", default=FULL.waiting)
    parser.add_argument("--slots", type=int, default=FULL.slots)
    parser.add_argument("--users", type=int, default=FULL.users)
    parser.add_argument("--rate", type=float, default=FULL.rate)
    parser.add_argument("--seconds", type=float, default=FULL.seconds)
    return measured(Size(**vars(parser.parse_args(arguments))))


def run(effort: Effort) -> list[Row]:
    return measured(effort.of(SMOKE, SHORT, FULL))


def measured(size: Size) -> list[Row]:
    by_nodes: Figures = {}
    for nodes in size.nodes:
        with fleet(nodes, size) as one:
            of_nodes(one, size, by_nodes)
    show(f"by the number of nodes, with {size.slots} slots each", by_nodes)
    by_waiting: Figures = {}
    with fleet(WAITED_FOR, size) as one:
        of_waiting(one, size, by_waiting)
    show(f"by the number of waiting jobs, {WAITED_FOR} nodes with {size.slots} full slots each", by_waiting)
    return [
        of_heartbeats(size, by_nodes),
        *(growth(f"{name}, {size.nodes[-1]} nodes", f"{size.nodes[0]} nodes", by_nodes[name], BY_NODES[name])
          for name in BY_NODES),
        *(growth(f"{name}, {size.waiting[-1]:,} waiting", f"{size.waiting[0]:,} waiting", by_waiting[name],
                 BY_WAITING[name]) for name in BY_WAITING),
        of_place(size, by_waiting),
    ]  # fmt: skip


def growth(what: str, beside: str, values: Mapping[str, float], most: float) -> Row:
    first, *_, last = values.values()
    unit = next((unit for unit in ("ms", "kB") if f": {unit} " in what), "commands")
    return Row(f"fleet: {what}", unit, last, first, f"the same with {beside}", last / first, f"<= {most:g}")


def of_heartbeats(size: Size, figures: Figures) -> Row:
    """How many commands each further node adds to an idle platform."""
    first, *_, last = figures["a second of rest: commands to mongo"].values()
    more = size.nodes[-1] - size.nodes[0]
    each = (last - first) / more
    what = f"fleet: a second of rest: commands to mongo for each of {more} more nodes"
    return Row(what, "commands", each, 1 / BEATS, "a heartbeat", each * BEATS, "<= 1.2")


def of_place(size: Size, figures: Figures) -> Row:
    """How many commands it takes to find a job's place in the queue, for each user with waiting jobs."""
    *_, commands = figures[f"a look at {WAITS}: commands to mongo"].values()
    each = commands / min(size.users, MAX_USERS)
    what = f"fleet: a look at {WAITS}: commands to mongo for each user that waits, {size.waiting[-1]:,} waiting"
    return Row(what, "commands", each, 3.0, "a user's first job, and two counts", each / 3, "<= 1")


# --- what is measured


class Spent(NamedTuple):
    """The cost of a step."""

    #: Processor seconds, by process.
    cpu: Mapping[str, float]
    #: By store: commands or round trips of each process, and bytes.
    asked: Mapping[str, Counter[Asked]]
    seconds: float

    def commands(self, store: str) -> float:
        kinds = self.asked[store].items()
        return sum(count for asked, count in kinds if asked.command not in {BYTES, *UPKEEP})

    def bytes(self, store: str) -> float:
        return sum(count for asked, count in self.asked[store].items() if asked.command == BYTES)

    def of(self, pid: int) -> Spent:
        """The same, with the requests of this process only."""
        asked = {
            store: Counter({one: count for one, count in counts.items() if one.pid == pid})
            for store, counts in self.asked.items()
        }
        return self._replace(asked=asked)

    def figures(self, parts: float, rest: Spent | None = None) -> dict[str, float]:
        """The figures for one of `parts` equal parts, without what `rest` costs in the same time."""
        share = self.seconds / rest.seconds if rest else 0.0
        found: dict[str, float] = {}
        for store in STORES:
            less = (rest.commands(store), rest.bytes(store)) if rest else (0.0, 0.0)
            words = "commands to mongo" if store == "mongo" else f"round trips to {store}"
            found[words] = (self.commands(store) - less[0] * share) / parts
            found[f"kB to and from {store}"] = (self.bytes(store) - less[1] * share) / parts / 1000
        for part in PARTS:
            less_cpu = rest.cpu[part] * share if rest else 0.0
            found[f"ms of {part}"] = (self.cpu[part] - less_cpu) * 1000 / parts
        return found


class Fleet:
    """A running platform, and what is needed to measure it."""

    def __init__(
        self, nodes: int, size: Size, stack: Platform, proxies: Mapping[str, CountingProxy], stores: Mapping[str, int]
    ) -> None:
        self.nodes, self._size = nodes, size
        self.stack, self._proxies, self._stores = stack, proxies, stores
        self.order: Callable[..., Facts] = lambda **_: {}
        self.http = httpx2.Client(base_url=stack.url, timeout=60, trust_env=False)
        self.posted = 0

    def measure(self, step: Callable[[], object]) -> Spent:
        before = {name: proxy.counts.copy() for name, proxy in self._proxies.items()}
        cpu, began = self._cpu(), time.monotonic()
        step()
        seconds, now = time.monotonic() - began, self._cpu()
        asked = {name: proxy.since(before[name]) for name, proxy in self._proxies.items()}
        return Spent({name: now[name] - cpu[name] for name in now}, asked, seconds)

    def _cpu(self) -> dict[str, float]:
        return {name: tree_seconds(pid) for name, pid in {**self._stores, **self.stack.pids}.items()}

    def post(self) -> None:
        self.posted += 1
        user, url = f"user-{self.posted % self._size.users:02}", f"http://93.184.215.14/{self.posted}"
        body = {"user_id": user, "spider": "seo", "start_urls": [url]}
        answered(lambda: self.http.post("/crawl", json=body))

    def post_for(self, seconds: float) -> int:
        """Request crawls at an even pace. Returns their number."""
        began, count = time.monotonic(), 0
        while (at := count / self._size.rate) < seconds:
            time.sleep(max(0.0, began + at - time.monotonic()))
            self.post()
            count += 1
        return count

    def post_until_settled(self, seconds: float) -> int:
        count = self.post_for(seconds)
        self.wait_settled()
        return count

    def wait_settled(self) -> None:
        wanted = {"settled": {"$ne": True}}
        wait_until(lambda: not self.stack.database["jobs"].count_documents(wanted, limit=1), what="all crawls' ends")

    def fill(self, slots: int) -> None:
        """Give each node this many slots, and fill all of them with crawls that do not end by themselves."""
        self.order(lifetime=None)
        all_slots = self.nodes * slots
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(JobStore(self.stack.database).insert, self._jobs(all_slots)))
        self.post()
        wait_until(lambda: self.order()["running"] >= all_slots, timeout=300, what="full slots")

    def let_wait(self, count: int) -> None:
        """Insert this many waiting jobs."""
        waiting = [job.to_document() for job in self._jobs(count)]
        with within(300):
            for start in range(0, count, 1000):
                self.stack.database["jobs"].insert_many(waiting[start : start + 1000])

    def waiting(self) -> dict[str, str]:
        """The page of a waiting job, by its name, if there is such a job."""
        last = self.stack.database["jobs"].find_one(
            {"status": "pending"}, {"_id": 1}, sort=[("lane", -1), ("rank", -1)]
        )
        return {WAITS: f"/jobs/{last['_id']}/status"} if last else {}

    def _jobs(self, count: int) -> list[Job]:
        return [waiting_job(f"user-{number % self._size.users:02}") for number in range(count)]

    def look(self, path: str, times: int) -> None:
        for _ in range(times):
            answered(lambda: self.http.get(path, headers={"Accept": "text/html, application/json"}))


def answered(ask: Callable[[], httpx2.Response]) -> None:
    """Ask again if the platform cannot answer (503), because other work on the machine may keep its stores from
    answering. Raises `httpx2.HTTPStatusError`.
    """
    for pause in (1.0, 2.0, 4.0, None):
        answer = ask()
        if answer.status_code != httpx2.codes.SERVICE_UNAVAILABLE or pause is None:
            break
        time.sleep(pause)
    answer.raise_for_status()


def measured_stores(folder: Path, ends: ExitStack) -> tuple[Urls, Urls, dict[str, CountingProxy]]:
    """The stores' URLs, their URLs through counting proxies, and these proxies."""
    urls = {
        "mongo": str(ends.enter_context(embedded_mongo(folder / "mongo"))),
        "redis": str(ends.enter_context(valkey_server(folder / "redis"))),
        "broker": str(ends.enter_context(valkey_server(folder / "broker"))),
    }
    proxies = {name: ends.enter_context(proxy(name, url)) for name, url in urls.items()}
    return urls, {name: _through(url, proxies[name]) for name, url in urls.items()}, proxies


@contextmanager
def fleet(nodes: int, size: Size) -> Iterator[Fleet]:
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        urls, through, proxies = measured_stores(folder, ends)
        pids = {name: store_pid(url) for name, url in urls.items()}
        stack = Platform(folder, urls["mongo"], urls["broker"])
        stack.environment |= {
            "MONGO_URI": through["mongo"], "REDIS_URL": through["redis"], "BROKER_URL": through["broker"],
            "CRAWL_QUEUE_MAX": "1000000", "CRAWL_USER_WAITING_MAX": "1000000",
        }  # fmt: skip
        ensure_indexes(stack.database)
        for number in range(1, nodes + 1):
            SpiderStore(stack.database).publish(f"fake-{number:03}", [SpiderInfo(project="default", name="seo")])
        one = Fleet(nodes, size, stack, proxies, pids)
        one.order = ends.enter_context(fake_nodes(nodes, stack.environment))
        ends.enter_context(stack.parts())
        yield one


def proxy(name: str, url: str) -> AbstractContextManager[CountingProxy]:
    observe = Commands if name == "mongo" else RoundTrips
    return CountingProxy(urlsplit(url).port or 0, partial(WithBytes, observe)).running()


def _through(url: str, by: CountingProxy) -> str:
    return urlsplit(url)._replace(netloc=f"127.0.0.1:{by.port}").geturl()


def store_pid(url: str) -> int:
    """The process that listens on this port. It may not be our child: some are forked from a warm process."""
    port = urlsplit(url).port
    return next(
        one.pid
        for one in psutil.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port and one.pid is not None
    )


# --- by the number of nodes, and of waiting jobs


def of_nodes(one: Fleet, size: Size, figures: Figures) -> None:
    column = str(one.nodes)
    one.order(slots=size.slots, lifetime=LIFETIME)
    one.post_for(2.0)
    one.wait_settled()
    rest = one.measure(lambda: time.sleep(size.seconds))
    put(figures, "a second of rest", column, rest.figures(rest.seconds))
    looks(one, column, figures, rest, pages_of(size), times=size.looks)
    crawls: list[int] = []
    spent = one.measure(lambda: crawls.append(one.post_until_settled(size.seconds)))
    put(figures, "a crawl", column, spent.figures(crawls[0], rest))
    if size.thorough:
        one.fill(size.slots)
        full(one, size, column, figures)


def of_waiting(one: Fleet, size: Size, figures: Figures) -> None:
    one.order(slots=size.slots)
    one.fill(size.slots)
    known = 0
    for waiting in size.waiting:
        one.let_wait(waiting - known)
        known = waiting
        rest = full(one, size, f"{waiting:,}", figures)
        looks(one, f"{waiting:,}", figures, rest, {**pages_of(size), **one.waiting()}, times=size.looks)


def full(one: Fleet, size: Size, column: str, figures: Figures) -> Spent:
    """Measure with all slots full, and then with a new crawl for each one that ends. Returns the costs of
    the former.
    """
    # wait until nothing changes any more
    time.sleep(2 * RECONCILE_SECONDS)
    rest = one.measure(lambda: time.sleep(size.seconds))
    put(figures, "a second with all slots full", column, rest.figures(rest.seconds))
    one.order(ended_each_second=size.rate)
    crawls: list[int] = []
    spent = one.measure(lambda: crawls.append(one.post_for(size.seconds)))
    one.order(ended_each_second=0)
    put(figures, "a crawl with all slots full", column, spent.figures(crawls[0], rest))
    return rest


def pages_of(size: Size) -> Mapping[str, str]:
    return PAGES if size.thorough else {HEALTH: HEALTH}


def looks(one: Fleet, column: str, figures: Figures, rest: Spent, pages: Mapping[str, str], *, times: int) -> None:
    """Measure requests of pages. Commands are those of the first request, before anything is cached; times are those
    of the others.
    """
    for name, path in pages.items():
        if name in READ_FOR_ALL:
            time.sleep(KEPT)
        first = one.measure(partial(one.look, path, 1)).of(one.stack.pids["gateway"]).figures(1)
        more = one.measure(partial(one.look, path, times)).figures(times, rest)
        found = {name: (more if name.startswith("ms") else first)[name] for name in first}
        put(figures, f"a look at {name}", column, found)


def put(figures: Figures, what: str, column: str, found: Mapping[str, float]) -> None:
    for name, value in found.items():
        figures.setdefault(f"{what}: {name}", {})[column] = value


def show(title: str, figures: Figures) -> None:
    print(f"\n{title}:", file=sys.stderr)
    for name, values in figures.items():
        if any(abs(value) >= 0.005 for value in values.values()):
            cells = "".join(f"{column:>9}: {value:<8.3g}" for column, value in values.items())
            print(f"{name:60} {cells}", file=sys.stderr)
