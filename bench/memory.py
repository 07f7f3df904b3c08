"""How much memory a running spider takes."""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.cpu import proportional_bytes
from bench.effort import Effort
from bench.our_platform import Site, Stack, running_stack, wait_until
from bench.stock_scrapyd import StockScrapyd, stock_scrapyd
from bench.table import Row, in_turn

#: Spiders that run at once. All wait for a page.
SPIDERS = 8
#: Seconds until the page is answered: enough for the slowest spider to request it meanwhile.
PAGE_SECONDS = 10
STOCK = f"poll_interval = 0.1\nmax_proc = {SPIDERS}\n"


def run(effort: Effort) -> list[Row]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Site() as site,
        running_stack(Path(folder) / "home", HTTP_CACHE_TTL="0", NODE_SLOTS=str(SPIDERS)) as stack,
        stock_scrapyd(Path(folder) / "stock", STOCK) as stock,
    ):
        rounds = in_turn(lambda: ours_bytes(stack, site), lambda: stock_bytes(stock, site), effort.of(1, 1, 3))
    ours, beside = (statistics.median(pair[side] for pair in rounds) / 2**20 for side in (0, 1))
    return [
        Row(
            f"PSS of a running spider, {SPIDERS} at once", "MiB", ours, beside,
            "stock Scrapyd, a plain project", ours / beside, "<= 0.5",
        )
    ]  # fmt: skip


def ours_bytes(stack: Stack, site: Site) -> float:
    jobs: list[str] = []
    held = _held(site, lambda url: jobs.append(stack.crawl(url)), lambda: _our_pids(stack, jobs))
    for job in jobs:
        stack.wait_final(job)
    return held


def stock_bytes(stock: StockScrapyd, site: Site) -> float:
    held = _held(site, stock.schedule, stock.running_pids)
    stock.wait_idle()
    return held


def _our_pids(stack: Stack, jobs: list[str]) -> list[int]:
    marks = (stack.home / "node" / "outbox" / f"{job}-1" / "started" for job in jobs)
    return [json.loads(mark.read_bytes())["pid"] for mark in marks]


def _held(site: Site, start: Callable[[str], object], pids: Callable[[], list[int]]) -> float:
    """The spiders' mean bytes while each waits for its page, which it requests after robots.txt."""
    before = site.hits("/robots.txt")
    for index in range(SPIDERS):
        start(f"{site.url}/slow/{PAGE_SECONDS}.{index:03}{random.randrange(10**6):06}")
    wait_until(lambda: site.hits("/robots.txt") - before >= SPIDERS, what="that all spiders wait for a page")
    time.sleep(1)
    return statistics.mean(proportional_bytes(pids()))
