"""The load on the stores: MongoDB commands of a crawl and of an idle stack, and Redis round trips of a log.

`python -m bench commands` also shows, on stderr, which process sends what.
"""

from __future__ import annotations

import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil
import pymongo

from bench.effort import Effort
from bench.our_platform import Site, Stack, embedded_mongo, html, links, running_stack, valkey_server, wait_until
from bench.table import Row
from bench.wire_proxy import Asked, Commands, CountingProxy, RoundTrips

#: Target values: commands of a crawl, commands per second of an idle stack, and round trips.
CRAWL, IDLE, TRIPS = 20.0, 8.0, 25.0
ASKED = "what was asked for"
CRAWLS, PAGES, LINES = 6, 3, 108
#: Seconds for which an idle stack is watched, and seconds to wait for late commands after a crawl's end.
REST, AFTER = 10.0, 2.0
#: Commands per second, or per crawl, by process, command and collection.
Kinds = dict[tuple[str, str, str], float]


class Watched(NamedTuple):
    stack: Stack
    #: A connection that does not go through the proxies.
    jobs: pymongo.collection.Collection[dict[str, Any]]
    mongo: CountingProxy
    redis: CountingProxy


def run(effort: Effort) -> list[Row]:
    crawls, rest = effort.of((1, 1.0), (CRAWLS, REST))
    with Site() as site, watched_stack() as watched:
        for _ in range(crawls):
            crawl(watched, site)
        idle = at_rest(watched, rest)
        mongo, trips = of_crawls(watched, site, idle, crawls)
    show("a second, at rest", idle[0])
    show(f"a crawl of {PAGES} pages", mongo)
    show(f"round trips to Redis for {LINES} log lines", trips)
    cost, idle_cost, waits = (sum(kinds.values()) for kinds in (mongo, idle[0], trips))
    return [
        Row(f"MongoDB commands from POST to settled, a crawl of {PAGES} pages, nobody looking", "commands",
            cost, CRAWL, ASKED, cost / CRAWL, "<= 1"),
        Row("MongoDB commands a second, the stack at rest", "1/s", idle_cost, IDLE, ASKED, idle_cost / IDLE, "<= 1"),
        Row(f"round trips to Redis for {LINES} log lines", "trips", waits, TRIPS, ASKED, waits / TRIPS, "<= 1"),
    ]  # fmt: skip


@contextmanager
def watched_stack() -> Iterator[Watched]:
    """A stack whose MongoDB and Redis are behind proxies; the broker and the HTTP cache are not measured."""
    with (
        tempfile.TemporaryDirectory() as name,
        embedded_mongo(Path(name) / "mongo") as mongo,
        valkey_server(Path(name) / "valkey") as valkey,
        CountingProxy(urlsplit(mongo).port or 0, Commands).running() as mongo_proxy,
        CountingProxy(urlsplit(valkey).port or 0, RoundTrips).running() as redis_proxy,
        pymongo.MongoClient[dict[str, Any]](mongo) as client,
        running_stack(
            Path(name) / "home",
            MONGO_URI=f"mongodb://127.0.0.1:{mongo_proxy.port}/discoverybot",
            REDIS_URL=f"redis://127.0.0.1:{redis_proxy.port}/0",
            BROKER_URL=valkey.replace("/0", "/2"),
            HTTP_CACHE_REDIS_URL=valkey.replace("/0", "/1"),
        ) as stack,
    ):
        yield Watched(stack, client.get_default_database()["jobs"], mongo_proxy, redis_proxy)


def crawl(watched: Watched, site: Site) -> int:
    """Run a crawl until there is nothing left to do. Returns the number of its log lines."""
    first, *others = (f"/{uuid.uuid4().hex}" for _ in range(PAGES))
    site.pages |= {first: links(*others), **{path: html(path) for path in others}}
    body = {"user_id": "bench", "spider": "seo", "start_urls": [site.url + first], "depth": 1}
    stack = watched.stack
    job_id = stack.http.post(f"{stack.url}/crawl", json=body).raise_for_status().json()["job_id"]
    wait_until(lambda: watched.jobs.find_one({"_id": job_id, "settled": True}), what="the crawl's end")
    time.sleep(AFTER)
    ended = watched.jobs.find_one({"_id": job_id})
    assert ended is not None
    assert (ended["status"], ended["progress"]["completed_pages"]) == ("finished", PAGES), ended
    return len(stack.log_on_node(job_id).splitlines())


def at_rest(watched: Watched, rest: float) -> tuple[Kinds, Kinds]:
    (mongo, redis), seconds = counted(watched, lambda: time.sleep(rest))
    names = names_of(watched.stack)
    return each(mongo, names, seconds), each(redis, names, seconds)


def of_crawls(watched: Watched, site: Site, idle: tuple[Kinds, Kinds], crawls: int) -> tuple[Kinds, Kinds]:
    """The commands of one crawl, without those of an idle stack in that time. Redis's are in proportion
    to the lines.
    """
    lines: list[int] = []
    (mongo, redis), seconds = counted(watched, lambda: lines.extend(crawl(watched, site) for _ in range(crawls)))
    print(f"lines of log of each crawl: {lines}", file=sys.stderr)
    names = names_of(watched.stack)
    return (
        without(each(mongo, names, crawls), idle[0], seconds / crawls),
        without(each(redis, names, sum(lines) / LINES), idle[1], seconds * LINES / sum(lines)),
    )


def counted(watched: Watched, step: Callable[[], object]) -> tuple[tuple[Counter[Asked], Counter[Asked]], float]:
    proxies, began = (watched.mongo, watched.redis), time.monotonic()
    before = [proxy.counts.copy() for proxy in proxies]
    step()
    mongo, redis = (proxy.since(then) for proxy, then in zip(proxies, before, strict=True))
    return (mongo, redis), time.monotonic() - began


def names_of(stack: Stack) -> dict[int, str]:
    """Names of the processes that send commands, by process id: the stack's processes, and what they have started."""
    names: dict[int, str] = {}
    for name, pid in stack.ready["pids"].items():
        process = psutil.Process(pid)
        names |= {child.pid: f"{name}'s" for child in process.children(recursive=True)} | {pid: name}
    return names


def each(counts: Counter[Asked], names: dict[int, str], parts: float) -> Kinds:
    kinds: Kinds = {}
    for (pid, command, collection), count in counts.items():
        kind = names.get(pid, "a spider"), command, collection
        kinds[kind] = kinds.get(kind, 0) + count / parts
    return kinds


def without(kinds: Kinds, idle: Kinds, seconds: float) -> Kinds:
    return {kind: kinds.get(kind, 0) - idle.get(kind, 0) * seconds for kind in kinds.keys() | idle.keys()}


def show(title: str, kinds: Kinds) -> None:
    print(f"\n{title}:", file=sys.stderr)
    for kind, count in sorted(kinds.items(), key=lambda one: -one[1]):
        if abs(count) >= 0.05:
            print(f"{count:8.2f}  {' '.join(kind)}", file=sys.stderr)
