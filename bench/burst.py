"""Many tiny crawls at once: how long until the last one has ended, and how much processor time that takes."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.cpu import tree_seconds
from bench.effort import Effort
from bench.first_line import fresh
from bench.our_platform import Site, Stack, running_stack
from bench.stock_scrapyd import BEST, POLL, StockScrapyd, stock_scrapyd
from bench.table import Row, in_turn

CRAWLS = 100
WARM_UP = 4
#: Most seconds to wait; a busy machine takes many times as long as a quiet one.
TIMEOUT = 900
UNFINISHED = ("scheduled", "pending", "running")
PEER = f"stock Scrapyd, its best settings ({', '.join(BEST.split(chr(10))[:2])})"


class Cost(NamedTuple):
    """What a burst of crawls costs, in seconds."""

    wall: float
    #: Scrapyd and the processes that it has started.
    node_cpu: float
    #: The node, and everything that is needed to ask for a crawl and to see its end.
    platform_cpu: float


def run(effort: Effort) -> list[Row]:
    crawls = effort.of(4, CRAWLS // 2, CRAWLS)
    with (
        tempfile.TemporaryDirectory() as folder,
        Site() as site,
        running_stack(Path(folder) / "home", HTTP_CACHE_TTL="0") as stack,
        stock_scrapyd(Path(folder) / "stock", BEST) as stock,
    ):
        ours_burst(stack, site, WARM_UP), stock_burst(stock, site, WARM_UP)
        rounds = in_turn(
            lambda: ours_burst(stack, site, crawls), lambda: stock_burst(stock, site, crawls), effort.of(1, 1, 3)
        )
    ours = Cost(*map(statistics.median, zip(*(pair[0] for pair in rounds), strict=True)))
    beside = Cost(*map(statistics.median, zip(*(pair[1] for pair in rounds), strict=True)))
    return [
        row(crawls, "first POST to the last one's end", ours.wall, beside.wall),
        row(crawls, "CPU of the node: Scrapyd and its spiders", ours.node_cpu, beside.node_cpu),
        row(crawls, "CPU of the whole platform, stores and gateway too", ours.platform_cpu, beside.platform_cpu),
    ]


def row(crawls: int, what: str, ours: float, beside: float) -> Row:
    return Row(f"{crawls} tiny crawls at once: {what}", "s", ours, beside, PEER, ours / beside, "<= 0.2")


def ours_burst(stack: Stack, site: Site, crawls: int) -> Cost:
    def has_ended() -> bool:
        jobs = stack.http.get(f"{stack.url}/jobs/health").raise_for_status().json()["jobs"]
        return not any(jobs.get(status) for status in UNFINISHED)

    def burst() -> None:
        for _ in range(crawls):
            stack.crawl(fresh(site))
        deadline = time.monotonic() + TIMEOUT
        while not has_ended():
            assert time.monotonic() < deadline, "our crawls do not end"
            time.sleep(POLL)

    return _cost(burst, node=lambda: stack.ready["pids"]["scrapyd"], platform=lambda: stack.process.pid)


def stock_burst(stock: StockScrapyd, site: Site, crawls: int) -> Cost:
    def burst() -> None:
        for _ in range(crawls):
            stock.schedule(fresh(site))
        stock.wait_idle(TIMEOUT)

    return _cost(burst, node=lambda: stock.process.pid, platform=lambda: stock.process.pid)


def _cost(burst: Callable[[], None], *, node: Callable[[], int], platform: Callable[[], int]) -> Cost:
    node_before, platform_before = tree_seconds(node()), tree_seconds(platform())
    began = time.perf_counter()
    burst()
    wall = time.perf_counter() - began
    # a spider may still be running although its end is known
    time.sleep(1)
    return Cost(wall, tree_seconds(node()) - node_before, tree_seconds(platform()) - platform_before)
