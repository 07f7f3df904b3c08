"""The platform compared with plain `scrapy crawl`: how many pages per second."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from bench.effort import Effort
from bench.our_platform import ROOT, Site, Stack, running_stack
from bench.table import Row, alternate, in_turn


class Peer(NamedTuple):
    """What is measured, what it is compared with, and the wanted ratio of the page rates."""

    about: str
    peer: str
    wanted: str


class Size(NamedTuple):
    #: Pages of the crawl whose rate is measured.
    pages: int
    rounds: int


SIZES = Size(20, 1), Size(1000, 3), Size(1500, 7)


def run(effort: Effort) -> list[Row]:
    size = effort.of(*SIZES)
    # no cache: the rate of pages from Redis would say nothing about crawling
    with (
        tempfile.TemporaryDirectory() as folder,
        Site() as site,
        running_stack(Path(folder) / "home", HTTP_CACHE_TTL="0") as stack,
    ):
        home = Path(folder)
        return [
            page_rate(stack, site, size),
            *frontier_cost(stack, site, home / "b", size),
            *record_cost(stack, site, home / "c", size),
        ]


def page_rate(stack: Stack, site: Site, size: Size) -> Row:
    pages, rounds = size
    ours, beside = alternate(lambda: _crawl(stack, site, pages).rate, lambda: _plain_rate(site, pages), rounds)
    return Row(
        f"page rate of `seo`, {pages} pages", "pages/s", ours, beside,
        "the same spider under plain `scrapy crawl`", ours / beside, ">= 0.85",
    )  # fmt: skip


def frontier_cost(stack: Stack, site: Site, home: Path, size: Size) -> list[Row]:
    words = Peer("which can go on after a kill", "the same without a frontier file", ">= 0.95")
    return _beside_without(stack, site, home, size, words, CRAWL_FRONTIER="false")


def record_cost(stack: Stack, site: Site, home: Path, size: Size) -> list[Row]:
    words = Peer("each request recorded", "the same without a record", ">= 0.97")
    return _beside_without(stack, site, home, size, words, REQUESTS_MAX_COUNT="0")


def _beside_without(stack: Stack, site: Site, home: Path, size: Size, words: Peer, **variables: str) -> list[Row]:
    """Compare with a stack that has these settings."""
    about, peer, wanted = words
    pages, rounds = size
    with running_stack(home, HTTP_CACHE_TTL="0", **variables) as without:
        _crawl(stack, site, pages), _crawl(without, site, pages)
        pairs = in_turn(lambda: _crawl(stack, site, pages), lambda: _crawl(without, site, pages), rounds)
    ours, beside = (Crawled(*map(statistics.median, zip(*side, strict=True))) for side in zip(*pairs, strict=True))
    what, ratio, cost = f"`seo`, {pages} pages, {about}", ours.rate / beside.rate, ours.cpu / beside.cpu
    return [
        Row(f"page rate of {what}", "pages/s", ours.rate, beside.rate, peer, ratio, wanted),
        Row(f"CPU time a page of {what}", "ms", ours.cpu, beside.cpu, peer, cost),
    ]


def _body(url: str) -> dict[str, object]:
    return {"user_id": "bench", "spider": "seo", "start_urls": [url], "ignore_cache": True, "max_pages": 100_000}


def _scrapy(url: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    command = [str(Path(sys.executable).with_name("scrapy")), "crawl", "seo", "-a", f"start_urls={url}", *arguments]
    return command, {**os.environ, "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8"}


class Crawled(NamedTuple):
    #: Pages per second by Scrapy's own clock, from the spider's opening to its end, so without the start.
    rate: float
    #: CPU milliseconds of the spider's process per page. Other work on the machine changes them less.
    cpu: float


def _crawl(stack: Stack, site: Site, wanted: int) -> Crawled:
    answer = stack.http.post(f"{stack.url}/crawl", json=_body(f"{site.url}/tree/{wanted}"))
    job_id = answer.raise_for_status().json()["job_id"]
    stack.wait_final(job_id, timeout=300)
    (attempt,) = stack.job(job_id)["attempts"]
    pages: int = attempt["progress"]["completed_pages"]
    assert pages >= wanted, attempt
    return Crawled(
        pages / float(attempt["stats"]["elapsed_time_seconds"]), attempt["exit"]["cpu_seconds"] * 1000 / pages
    )


def _plain_rate(site: Site, wanted: int) -> float:
    """The page rate without the add-on: no report, no record, no egress rule. Items go to a feed."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ("-s", "ADDONS={}", "-s", "HTTPCACHE_ENABLED=False")
        command, environment = _scrapy(f"{site.url}/tree/{wanted}", *settings, "-o", f"{folder}/items.jsonl")
        log = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stderr
        items = (Path(folder) / "items.jsonl").read_text().splitlines()
    pages = sum(json.loads(line)["type"] == "page" for line in items)
    assert pages >= wanted, log[-2000:]
    elapsed = re.search(r"'elapsed_time_seconds': ([0-9.]+)", log)
    assert elapsed is not None, log[-2000:]
    return pages / float(elapsed[1])
