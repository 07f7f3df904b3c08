"""Several projects: the first line with different environments in turn, and a small project beside a very
large one.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import httpx2

from bench.effort import Effort
from bench.first_line import WARM_UP, WHAT, deploy, line_of
from bench.our_platform import Site, running_stack
from bench.stock_scrapyd import write_project
from bench.submission import running_gateway
from bench.table import Row, alternate
from gateway.contract.records import SpiderInfo

#: One environment for each of these versions of a package that has no dependencies.
ENVIRONMENTS = ("1.10.0", "1.11.0", "1.12.0", "1.13.0", "1.14.0", "1.15.0", "1.16.0", "1.17.0")
ROUNDS, WANTED = 3, 0.2
#: Spiders of the large project, in each of two versions; requests of one measurement.
SPIDERS, REQUESTS = 5000, 100


def run(effort: Effort) -> list[Row]:
    if effort is Effort.SMOKE:
        # the eight environments come from a package index, which tests must not use
        return [beside_a_large_one(50, 1)]
    return [in_turn(), beside_a_large_one(SPIDERS, 7)]


def in_turn() -> Row:
    with (
        tempfile.TemporaryDirectory() as folder,
        Site() as site,
        running_stack(Path(folder) / "home", HTTP_CACHE_TTL="0") as stack,
    ):
        plain = Path(folder) / "plain"
        plain.mkdir()
        write_project(plain)
        names = [f"plain{number}" for number in range(len(ENVIRONMENTS))]
        for name, number in zip(names, ENVIRONMENTS, strict=True):
            requirements = f"scrapy=={version('scrapy')}\nsix=={number}\n"
            deploy(stack, plain, Path(folder) / f"{name}.egg", requirements, name)
            # this starts a Python; meanwhile the process is made from which later ones are forked
            line_of(stack, site, name)
        time.sleep(WARM_UP)
        seconds = [line_of(stack, site, name) for _ in range(ROUNDS) for name in names]
    median = statistics.median(seconds)
    what = f"{WHAT}, {len(names)} environments in turn"
    return Row(
        what, "s", median, WANTED, f"what was asked for; slowest {max(seconds):.3g} s", median / WANTED, "<= 1"
    )


def beside_a_large_one(spiders: int, rounds: int) -> Row:
    with _gateway() as alone, _gateway(spiders) as crowded:
        ours, beside = alternate(lambda: _answer(crowded), lambda: _answer(alone), rounds)
    what = f"`POST /crawl` of a small project beside one of {spiders} spiders in two versions, median answer"
    return Row(what, "s", ours, beside, "alone", ours / beside, "<= 1.2")


@contextmanager
def _gateway(spiders: int = 0) -> Iterator[httpx2.Client]:
    """A gateway whose node has a small project, and also a large one with `spiders`, if that is not 0."""
    large = [
        SpiderInfo(project="large", version=number, latest=number == "2", name=f"spider{one}", module=f"large.s{one}")
        for number in ("1", "2")
        for one in range(spiders)
    ]
    small = [SpiderInfo(project="default", name="seo"), SpiderInfo(project="small", version="1", name="offers")]
    with (
        tempfile.TemporaryDirectory() as folder,
        running_gateway(Path(folder), [*small, *large]) as (port, _),
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client,
    ):
        yield client


_numbers = itertools.count()


def _answer(gateway: httpx2.Client) -> float:
    """Seconds of the median answer to a crawl's submission."""
    seconds = []
    for _ in range(REQUESTS):
        page = f"http://93.184.215.14/{next(_numbers)}"
        body = {"user_id": "bench", "project": "small", "spider": "offers", "start_urls": [page]}
        began = time.perf_counter()
        gateway.post("/crawl", json=body).raise_for_status()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)
