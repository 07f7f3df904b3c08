"""What a crawl, and each of its pages, costs in each part of the platform, measured with real crawls on a real node.

Crawls of one page and crawls of many pages are run. The difference is the cost of the pages, and the rest is the cost
of the crawl itself. Stored documents are measured in BSON, before MongoDB compresses them. The figures are for
`docs/how-to/sizing.md`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pymongo
import redis
from bson.raw_bson import RawBSONDocument

from bench.cpu import tree, tree_seconds
from bench.effort import Effort
from bench.fleet import Figures, Urls, answered, measured_stores, show, store_pid
from bench.our_platform import Site, Stack, running_stack, wait_until
from bench.table import Row
from bench.wire_proxy import BYTES, UPKEEP, CountingProxy
from gateway.clock import utc_now
from gateway.retention.retention import Retention
from gateway.retention.windows import WINDOW, Windows
from gateway.settings import Settings
from gateway.worker.app import WorkerParts

#: Pages of the smaller crawls.
ONE = 1
#: Seconds to wait after the last crawl, for costs that come late.
AFTER = 3.0
#: The costs of a step, by name.
Costs = Mapping[str, float]


class Size(NamedTuple):
    #: How many crawls of `ONE` page, how many larger ones, and the pages of each larger one.
    small: int = 20
    large: int = 5
    pages: int = 201
    #: Seconds for which the idle stack is measured; its costs are subtracted.
    rest: float = 10.0

    @property
    def crawls(self) -> dict[int, int]:
        return {ONE: self.small, self.pages: self.large}


FULL = Size()
#: For the table of all benchmarks: less than a minute.
SMOKE = Size(small=1, large=1, pages=11, rest=1.0)
SHORT = Size(small=8, large=2, pages=101, rest=4.0)


class Measured:
    """A running platform whose stores are behind proxies."""

    def __init__(self, stack: Stack, urls: Urls, through: Urls, proxies: Mapping[str, CountingProxy]) -> None:
        self.stack, self.through, self._proxies = stack, through, proxies
        self._stores = {name: store_pid(url) for name, url in urls.items()}
        client: pymongo.MongoClient[RawBSONDocument] = pymongo.MongoClient(
            urls["mongo"], document_class=RawBSONDocument
        )
        self.database = client.get_default_database()
        self._redis = redis.Redis.from_url(urls["redis"])

    def costs(self) -> dict[str, float]:
        """All costs so far, and the sizes of everything that is stored."""
        found = {f"ms of {name}": seconds * 1000 for name, seconds in self._seconds().items()}
        for store, proxy in self._proxies.items():
            counts = proxy.counts.copy().items()
            words = "commands to mongo" if store == "mongo" else f"round trips to {store}"
            found[words] = sum(n for asked, n in counts if asked.command not in {BYTES, *UPKEEP})
            found[f"kB to and from {store}"] = sum(n for asked, n in counts if asked.command == BYTES) / 1000
        for name in self.database.list_collection_names():
            found[f"kB kept in {name}"] = sum(len(one.raw) for one in self.database[name].find()) / 1000
        found["kB in Redis"] = float(self._redis.info("memory")["used_memory"]) / 1000
        files = (self.stack.home / "node" / "outbox").rglob("*")
        found["kB on the node's disk"] = sum(one.stat().st_size for one in files if one.is_file()) / 1000
        return found

    def _seconds(self) -> dict[str, float]:
        pids = {**self.stack.ready["pids"], **self._stores}
        node = tree(pids.pop("scrapyd"))
        seconds = {name: tree_seconds(pid) for name, pid in pids.items()}
        # children_user and children_system are the times of spiders that have ended; the others are Scrapyd's own
        seconds["scrapyd"] = sum(times.user + times.system for times in (one.cpu_times() for one in node))
        ended = (one.cpu_times() for one in node)
        return seconds | {"spiders": sum(times.children_user + times.children_system for times in ended)}

    def crawl(self, site: Site, pages: int, count: int) -> None:
        body = {"user_id": "bench", "spider": "seo", "ignore_cache": True, "max_pages": 100_000}
        body["start_urls"] = [f"{site.url}/tree/{pages}"]
        for _ in range(count):
            answered(lambda: self.stack.http.post(f"{self.stack.url}/crawl", json=body))
        jobs = self.database["jobs"]
        unsettled: dict[str, Any] = {"settled": {"$ne": True}}
        wait_until(lambda: not jobs.count_documents(unsettled, limit=1), timeout=300, what="all crawls' ends")
        time.sleep(AFTER)
        fewer = {"$or": [{"status": {"$ne": "finished"}}, {"progress.completed_pages": {"$lt": ONE}}]}
        assert not jobs.count_documents(fewer), "a crawl has failed"

    def remove_all(self) -> float:
        """Remove all crawls, as retention does. Returns the CPU milliseconds of the thread that does it."""
        days = ("job_retention_days", "item_retention_days", "log_retention_days")
        fields: dict[str, Any] = {
            "mongo_uri": self.through["mongo"],
            "redis_url": self.through["redis"],
            "discoverybot_home": self.stack.home,
            **dict.fromkeys(days, 1e-6),
        }
        parts = WorkerParts(Settings(**fields))
        # only whole windows are removed, so without this those of the last minute would stay
        parts[Windows] = parts.build(Windows, clock=_later)
        parts[Retention] = parts.build(Retention, clock=_later)
        retention, began = parts[Retention], time.thread_time()
        retention.run()
        assert not self.database["jobs"].count_documents({}), "not all were removed"
        return (time.thread_time() - began) * 1000


def _later() -> datetime:
    return utc_now() + 2 * WINDOW


def run(effort: Effort) -> list[Row]:
    size = effort.of(SMOKE, SHORT, FULL)
    with Site() as site, measured() as platform:
        for pages in size.crawls:
            platform.crawl(site, pages, 2)
        rest = spent(platform, lambda: time.sleep(size.rest))
        by_pages = {
            pages: {
                name: value / count
                for name, value in spent(platform, partial(platform.crawl, site, pages, count), rest).items()
            }
            for pages, count in size.crawls.items()
        }
        crawls, removal = platform.database["jobs"].count_documents({}), list[float]()
        removed = spent(platform, lambda: removal.append(platform.remove_all()), rest)
    page = {name: (by_pages[size.pages][name] - value) / (size.pages - ONE) for name, value in by_pages[ONE].items()}
    crawl = {name: value - page[name] for name, value in by_pages[ONE].items()}
    figures: Figures = {name: {"a crawl": crawl[name], "a page": page[name]} for name in sorted(crawl)}
    show("a crawl, besides its pages, and each page", figures)
    gone = {name: removed[name] / crawls for name in ("commands to mongo", "ms of mongo")}
    show(
        "the removal of a crawl",
        {name: {"a crawl": value} for name, value in {**gone, "ms of retention": removal[0] / crawls}.items()},
    )
    return [row("a crawl", crawl), row("a page of it", page)]


def row(what: str, costs: Costs) -> Row:
    spiders = costs["ms of spiders"]
    others = sum(value for name, value in costs.items() if name.startswith("ms of ")) - spiders
    return Row(f"{what}: processor time of all parts but the spider", "ms", others, spiders, "its spider's",
               others / spiders)  # fmt: skip


def spent(platform: Measured, step: Callable[[], object], rest: Costs | None = None) -> dict[str, float]:
    """The cost of the step, without what the idle platform costs in that time."""
    before, began = platform.costs(), time.monotonic()
    step()
    seconds, now = time.monotonic() - began, platform.costs()
    share = seconds / rest["seconds"] if rest else 0.0
    less = {name: share * value for name, value in rest.items()} if rest else {}
    found = {name: value - before.get(name, 0) - less.get(name, 0) for name, value in now.items()}
    return found if rest else {**found, "seconds": seconds}


@contextmanager
def measured() -> Iterator[Measured]:
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        urls, through, proxies = measured_stores(folder, ends)
        stack = ends.enter_context(
            running_stack(
                folder / "home", MONGO_URI=through["mongo"], REDIS_URL=through["redis"],
                BROKER_URL=through["broker"], HTTP_CACHE_TTL="0",
            )
        )  # fmt: skip
        yield Measured(stack, urls, through, proxies)
