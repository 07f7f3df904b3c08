"""What one user, or one node, takes up: a crawl of another user begins as ever, and others get their answers."""

from __future__ import annotations

import itertools
import json
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest
from bson import BSON
from eggs import SPIDER, egg, source
from fault_table import record
from forms import full_or_short, in_full
from jobs import make_job
from node_double import NodeDouble, node_double
from pymongo.database import Database
from sites.server import Site
from stack import Stack, running_stack, wait_until

from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.clock import to_iso, utc_now
from gateway.contract.crawl import Egg
from gateway.contract.records import ExitReport
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import Attempt, JobStatus
from gateway.jobs.store import JobStore
from gateway.logs.store import LogChunk, LogStore
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import EggStore
from gateway.stores.mongo import connect

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

#: Seconds within which another user's crawl fetches its first page, and within which each of its reads is answered.
#: In the short form other tests keep the machine busy.
BEGUN_WITHIN, READ_WITHIN = full_or_short(2.0, 20.0), full_or_short(1.0, 10.0)
#: Of the platform's own node, and of one that hangs.
SLOTS = 4
#: Crawls and rounds of reads while it lasts.
ROUNDS = full_or_short(10, 1)
STREAMS, READS, ACTS = full_or_short(1000, 200), full_or_short(50, 20), 30
#: Jobs that one bulk act cancels, and pieces of the log that an expensive read goes through.
#: Downloads and pages whose clients do not read, and bytes that they may take of the gateway's memory.
UNREAD, UNREAD_MEMORY = full_or_short(200, 50), full_or_short(1 << 30, 400 << 20)
ACTED_UPON, PIECES = full_or_short(3000, 300), full_or_short(300, 60)
PATHS = (
    "/jobs", "/jobs/count", "/jobs?q=x", "/nodes", "/schedules", "/schedules/calendar", "/spiders", "/sites",
    "/health", "/console/jobs",
)  # fmt: skip

Load = AbstractContextManager[object]
_numbers = itertools.count()


class Platform:
    """A stack with keys: `anne` is the one who asks for much, the others are `bert` and `root`, who may read all."""

    def __init__(self, stack: Stack, site: Site, database: Database[dict[str, Any]]) -> None:
        self.stack, self.site, self.database = stack, site, database
        issue = KeyIssue(KeyStore(self.database))
        scopes = {"anne": Scope.CRAWL, "bert": Scope.CRAWL, "root": Scope.ADMIN}
        tokens = {user: issue.issue(user, [scope]).token for user, scope in scopes.items()}
        self.headers = {user: {"Authorization": f"Bearer {token}"} for user, token in tokens.items()}
        stack.http.headers.update(self.headers["root"])
        wait_until(lambda: httpx2.get(f"{stack.url}/jobs").status_code == httpx2.codes.UNAUTHORIZED, what="keys")

    def begins(self) -> float:
        """Seconds until a crawl of `bert` fetches its page."""
        path = f"/only/{next(_numbers)}"
        self.site.pages[path] = ""
        body = {"spider": "seo", "start_urls": [f"{self.site.url}{path}"], "max_pages": 1}
        began = time.monotonic()
        with self._client("bert") as http:
            http.post("/crawl", json=body).raise_for_status()
        wait_until(lambda: self.site.hits(path), timeout=60, what="the crawl's page")
        return time.monotonic() - began

    def reads(self) -> dict[str, float]:
        """The seconds that each read of `root` takes."""
        took: dict[str, float] = {}
        with self._client("root") as http:
            for path in PATHS:
                began = time.monotonic()
                http.get(path).raise_for_status()
                took[path] = time.monotonic() - began
        return took

    def _client(self, user: str) -> httpx2.Client:
        return httpx2.Client(base_url=self.stack.url, headers=self.headers[user], timeout=60, trust_env=False)

    @contextmanager
    def repeated(self, count: int, call: Callable[[httpx2.Client], object]) -> Iterator[None]:
        """So many threads of `anne`, each with one call after another."""
        over, begun = threading.Event(), threading.Semaphore(0)

        def keep_on() -> None:
            with self._client("anne") as http:
                while not over.is_set():
                    begun.release()
                    # whoever asks for too much may wait for long
                    with suppress(httpx2.TimeoutException):
                        call(http)

        threads = [threading.Thread(target=keep_on) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            for _ in threads:
                begun.acquire()
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    home = tmp_path_factory.mktemp("load") / "home"
    with Site() as site, running_stack(home, NODE_SLOTS=str(SLOTS), GATEWAY_USER_STREAMS=str(STREAMS)) as stack:
        database = connect(stack.ready["mongo_uri"])
        try:
            platform = Platform(stack, site, database)
            # what is imported at the first use
            platform.begins()
            platform.reads()
            yield platform
        finally:
            database.client.close()


# --- what lasts


@contextmanager
def hanging(platform: Platform, call: str) -> Iterator[None]:
    """A node that answers everything but this, with crawls of `anne` that it was to run."""
    # what the platform's own node takes of them ends at once, and asks no name server
    page = f"/only/{next(_numbers)}"
    platform.site.pages[page] = ""
    spec = make_job().spec.model_copy(update={"start_urls": (f"{platform.site.url}{page}",), "max_pages": 1})
    if call == "/addversion.json":
        eggs, egg = EggStore(platform.database), platform.stack.home / "shop.egg"
        egg.write_bytes(b"none")
        assert eggs.put(Egg("shop", "2"), eggs.write(egg), None)
        spec = spec.model_copy(update={"project": "shop", "version": "2"})
    jobs = [make_job(user_id="anne", spec=spec) for _ in range(9)]
    with node_double() as double, _beating(platform, double):
        # it runs nothing: what it takes fills it, and it is at fault if it takes nothing
        double.silent, double.mode = {call}, "full" if call == "/addversion.json" else "ok"
        for job in jobs:
            JobStore(platform.database).insert(job)
        wait_until(lambda: double.probes or double.requests, what="a call to the node that hangs")
        if call == "/cancel.json":
            wait_until(lambda: len(double.posted) >= SLOTS, what="crawls in all of its slots")
            # by a time, because some of them have ended on another node before that
            act = {"filter": {"user_id": "anne"}, "action": "cancel", "expect": len(jobs), "as_of": to_iso(utc_now())}
            platform.stack.http.post(f"{platform.stack.url}/jobs/bulk", json=act).raise_for_status()
        yield
    platform.database["jobs"].delete_many({"_id": {"$in": [job.id for job in jobs]}})
    platform.database["holds"].delete_many({"_id": {"$regex": "hung|anne"}})


@contextmanager
def _beating(platform: Platform, double: NodeDouble) -> Iterator[None]:
    """It is a node of the platform, and runs what was posted to it."""
    nodes, over, since = NodeStore(platform.database), threading.Event(), utc_now() - timedelta(hours=1)
    # a new one each time: nothing that is still said of the one before makes it rest
    name = f"hung-{next(_numbers)}"
    facts: dict[str, Any] = {"url": double.url, "max_slots": SLOTS, "beating_since": since}

    def beat() -> None:
        alive = double.posted
        nodes.heartbeat(name, alive=alive, present=alive, eggs=(Egg("shop", "1"),), **facts)

    def keep_beating() -> None:
        while not over.wait(2):
            beat()

    beat()
    beating = threading.Thread(target=keep_beating)
    beating.start()
    try:
        yield
    finally:
        over.set()
        beating.join()
        platform.database["nodes"].delete_one({"_id": name})


@contextmanager
def streams(platform: Platform) -> Iterator[None]:
    address, token = urlsplit(platform.stack.url), platform.headers["anne"]["Authorization"]
    head = f"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {token}\r\n\r\n".encode()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * STREAMS)), hard))
    with ExitStack() as opened:
        for _ in range(STREAMS):
            connection = opened.enter_context(socket.create_connection((address.hostname, address.port), 60))
            connection.sendall(head)
        yield


def reads(platform: Platform) -> Load:
    """Of a log in which nothing is found, so that all of it is read."""
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    over: dict[str, Any] = {"status": JobStatus.FINISHED, "attempt": 1, "attempts": {"1": attempt}, "settled": True}
    job = make_job(user_id="anne", live_key=None, finished_at=utc_now(), **over)
    JobStore(platform.database).insert(job)
    data = b"2027-06-01 09:00:00 [seo] INFO: Spider opened\n" * 1000
    for start in range(0, len(data) * PIECES, len(data)):
        LogStore(platform.database).append(LogChunk(job.id, 1, start, start + len(data), "INFO", data))
    return platform.repeated(READS, lambda http: http.get(f"/jobs/{job.id}/logs?format=text&q=nowhere"))


def bulk_acts(platform: Platform) -> Load:
    later = utc_now() + timedelta(days=1)
    for _ in range(ACTED_UPON):
        JobStore(platform.database).insert(
            make_job(user_id="anne", status=JobStatus.SCHEDULED, not_before=later, tags=["many"])
        )
    act = {"filter": {"user_id": "anne", "tag": "many"}, "action": "cancel"}
    body = json.dumps({**act, "expect": ACTED_UPON, "as_of": utc_now().isoformat()})
    headers = {"Content-Type": "application/json"}
    return platform.repeated(ACTS, lambda http: http.post("/jobs/bulk", content=body, headers=headers))


@contextmanager
def unread(platform: Platform) -> Iterator[None]:
    """Answers with large items, as pages and as downloads, of which nobody reads more than the beginning."""
    over: dict[str, Any] = {"status": JobStatus.FINISHED, "attempt": 1, "settled": True}
    attempts = {"1": Attempt(attempt=1, node="n1", dispatched_at=utc_now())}
    job = make_job(user_id="anne", live_key=None, finished_at=utc_now(), attempts=attempts, **over)
    JobStore(platform.database).insert(job)
    items = [Item(job.id, 1, end, {"n": end, "text": "x" * (1 << 19)}) for end in range(60)]
    ItemStore(platform.database).insert(items)
    address, token = urlsplit(platform.stack.url), platform.headers["anne"]["Authorization"]
    gateway = psutil.Process(platform.stack.ready["pids"]["gateway"])
    before = gateway.memory_info().rss
    with ExitStack() as opened:
        connections = []
        for query in itertools.islice(itertools.cycle(("limit=100", "format=jsonl")), UNREAD):
            connections.append(socket.create_connection((address.hostname, address.port), 60))
            opened.enter_context(connections[-1])
            head = f"GET /jobs/{job.id}/items?{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {token}\r\n\r\n"
            connections[-1].sendall(head.encode())
        for connection in connections:
            # those that have waited longest may be cut already
            with suppress(ConnectionResetError):
                connection.recv(1)
        yield
        assert gateway.memory_info().rss - before < UNREAD_MEMORY


@contextmanager
def unwritable(platform: Platform) -> Iterator[None]:
    """A crawl that has ended, and whose document has no room to say so."""
    now = utc_now()
    attempt = Attempt(attempt=1, node="n1", dispatched_at=now, exit=ExitReport(attempt=1, ended_at=now, exit_code=1))
    job = make_job(user_id="anne", status=JobStatus.RUNNING, attempt=1, attempts={"1": attempt}, max_retries=0)
    document = job.to_document() | {"attend_at": now}
    room = MOST_BYTES - len(BSON.encode(document)) - 40
    platform.database["jobs"].insert_one({**document, "padding": "x" * room})
    yield
    assert platform.stack.status(job.id)["status"] == "running"
    platform.database["jobs"].update_one({"_id": job.id}, {"$unset": {"padding": ""}})
    platform.stack.wait_final(job.id, timeout=90)


#: Of a document.
MOST_BYTES = 16 << 20
HOSTILE = """
import os, time
import scrapy

class Crowds(scrapy.Spider):
    name = "crowds"

    async def start(self):
        for _ in range(2_000):
            os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
        time.sleep(60)
        yield {}

class Litters(scrapy.Spider):
    name = "litters"

    async def start(self):
        for number in range(1_000_000):
            open(f"empty-{number}", "w").close()
        yield {}
"""
#: Leaves a process behind that hides.
HAUNTED = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "60"], {})
    os._exit(0)
os.wait()
"""


def deploy(platform: Platform, project: str, content: bytes) -> httpx2.Response:
    url = f"{platform.stack.url}/projects/{project}/versions?version={next(_numbers)}"
    return platform.stack.http.post(url, content=content, timeout=60)


@contextmanager
def hostile(platform: Platform, spider: str) -> Iterator[None]:
    """Crawls of `anne`, one after the other, on the node that the others have."""
    deploy(platform, "hostile", egg(source("hostile", spiders=HOSTILE))).raise_for_status()
    ends = []

    def crawl(http: httpx2.Client) -> None:
        order = {"project": "hostile", "spider": spider, "start_urls": [platform.site.url], "ignore_cache": True}
        job_id = http.post("/crawl", json={**order, "max_retries": 0}).raise_for_status().json()["job_id"]
        ends.append(platform.stack.wait_final(job_id, timeout=90))

    with platform.repeated(1, crawl):
        yield
    assert {end["status"] for end in ends} in ({"partial"}, {"error"})


def imports(platform: Platform) -> Load:
    settings = f"SPIDER_MODULES = ['haunted.spiders']\n{HAUNTED}"
    content = egg(source("haunted", settings=settings, spiders=SPIDER.replace("VERSION", "1")))
    return platform.repeated(1, lambda _: deploy(platform, "haunted", content).raise_for_status())


LOADS: dict[str, Callable[[Platform], Load]] = {
    **{
        f"a node that hangs in {call}": lambda platform, call=call: hanging(platform, call)  # type: ignore[misc]
        for call in ("/daemonstatus.json", "/schedule.json", "/cancel.json", "/addversion.json")
    },
    f"{STREAMS} open streams of one user": streams,
    f"{READS} expensive reads of one user": reads,
    f"{ACTS} bulk acts of one user": bulk_acts,
    f"{UNREAD} answers that nobody reads": unread,
    "a job whose document cannot be written": unwritable,
}
#: Their parts are tested by themselves: crawler_node/test_users.py, eggs/test_refusals.py.
OF_EGGS: dict[str, Callable[[Platform], Load]] = {
    "an egg with 2,000 children": lambda platform: hostile(platform, "crowds"),
    "an egg with a million empty files": lambda platform: hostile(platform, "litters"),
    "a daemon at import": imports,
}


@pytest.mark.parametrize("load", [*LOADS, *(pytest.param(name, marks=in_full("their parts")) for name in OF_EGGS)])
def test_while_it_lasts_crawls_of_others_begin_and_their_reads_are_answered(loaded: Platform, load: str) -> None:
    begun, took = [], []
    with (LOADS | OF_EGGS)[load](loaded):
        for _ in range(ROUNDS):
            begun.append(loaded.begins())
            took.append(loaded.reads())
    slowest = max((seconds, path) for each in took for path, seconds in each.items())
    record(
        "What one takes up",
        f"{load}: {max(begun):.1f} s to another's page, {slowest[0]:.2f} s for a read ({slowest[1]})",
        lost=0,
        doubled=0,
        recovered=None,
    )
    assert max(begun) < BEGUN_WITHIN, begun
    assert slowest[0] < READ_WITHIN, slowest
