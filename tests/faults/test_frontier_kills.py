"""Spiders, Scrapyd and the tailer are killed while crawls are under way: each crawl goes on where it was.

The verifier is each site's access log: the same pages as of a crawl that nobody killed, each item once, and no more
pages asked for again than were not yet done.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple

import pytest
from eggs import egg, source
from fault_table import record
from forms import FULL, full_or_short, in_full
from nodes import spiders
from sites.server import Reply, Site, links
from stack import FINAL, Stack, running_stack, wait_until

KILLS, PAGES, CRAWLS = (200, 2000, 40) if FULL else (5, 120, 2)
#: Crawls at a time.
SLOTS = 4
#: Of five kills three are of spiders.
VICTIMS = ("spider", "spider", "spider", "tailer", "scrapyd")
#: Seconds between two kills, and in full pages as well: the first crawls would get them all, most while they wait for
#: their next attempt.
PAUSE = (0.3, 1.5)
PAGES_PER_KILL = CRAWLS * PAGES // KILLS if FULL else 0
#: Requests under way in one crawl (`CRAWL_MAX_UNDONE`), and one that may have been on its way to the site.
UNDONE = 16


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    variables = {
        "DISCOVERYBOT_RESTART_BACKOFF_MAX": "0.2",
        "CRAWL_STOP_GRACE": "2",
        "CRAWL_MAX_UNDONE": str(UNDONE),
        "NODE_SLOTS": str(SLOTS),
        "CRAWL_USER_RUNNING_MAX": str(SLOTS),
    }
    with running_stack(tmp_path_factory.mktemp("frontier") / "home", **variables) as stack:
        yield stack


class Crawled(NamedTuple):
    site: Site
    job: str


def graph() -> dict[str, str]:
    chance = random.Random(7)
    return {
        f"/p/{n}": links(
            *(f"/p/{chance.randrange(PAGES)}" for _ in range(6)),
            f"/p/{(2 * n + 1) % PAGES}",
            f"/p/{(2 * n + 2) % PAGES}",
        )
        for n in range(PAGES)
    }


def kill(stack: Stack, victim: str, chance: random.Random) -> bool:
    """Whether there was one to kill."""
    with suppress(ProcessLookupError, KeyError, IndexError):
        if victim == "spider":
            os.kill(chance.choice(spiders(stack)), signal.SIGKILL)
        else:
            stack.kill(victim)
        return True
    return False


@pytest.mark.stack
@pytest.mark.timeout(300 + 6 * KILLS)
def test_crawls_go_on_where_they_were_killed(stack: Stack) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed of the random kills: {seed}\n")  # shown where the test fails
    chance, pages, killed = random.Random(seed), graph(), 0
    with ExitStack() as sites:
        crawls: list[Crawled] = []
        # a spider first, while each crawl is certainly under way; then at random
        deck = ["scrapyd", "tailer", "spider", "spider", "spider"]
        while killed < KILLS or len(crawls) < CRAWLS:
            running = [crawl for crawl in crawls if stack.status(crawl.job)["status"] not in FINAL]
            while len(running) < SLOTS and len(crawls) < max(CRAWLS, SLOTS):
                site = sites.enter_context(Site(pages, delay=0.1))
                job = stack.crawl(f"{site.url}/p/0", max_retries=20)
                running.append(Crawled(site, job))
                crawls.append(running[-1])
            if not running:
                break
            time.sleep(chance.uniform(*PAUSE))  # at any moment, that is
            deck = deck or chance.sample(VICTIMS, len(VICTIMS))
            is_due = killed < KILLS and sum(len(crawl.site.paths()) for crawl in crawls) >= killed * PAGES_PER_KILL
            killed += is_due and kill(stack, deck.pop(), chance)
        last_kill = time.monotonic()
        ends = [stack.wait_final(crawl.job, timeout=240) for crawl in crawls]
        recovered = time.monotonic() - last_kill
        lost = sum(set(crawl.site.paths()) != set(pages) for crawl in crawls)
        doubled = sum(too_often(stack, crawl) for crawl in crawls)
        attempts = sum(len(stack.job(crawl.job)["attempts"]) for crawl in crawls)
        statuses = Counter(end["status"] for end in ends)
        sys.stdout.write(f"killed: {killed}, crawls: {len(crawls)}, attempts: {attempts}, ends: {statuses}\n")
        what = f"{len(crawls)} crawls of {PAGES} pages in {attempts} attempts"
        injected = f"SIGKILL × {killed}: spiders, Scrapyd, tailer; {what}"
        record("Crawls killed go on", injected, lost=lost, doubled=doubled, recovered=recovered)
        assert attempts > len(crawls)
        assert set(statuses) == {"finished"}
        assert {end["completed_pages"] for end in ends} == {PAGES}
        assert lost == doubled == 0


def too_often(stack: Stack, crawl: Crawled) -> bool:
    """Whether it asked for more pages again than were under way when it was killed, or has not each item, and each
    page in the record of its requests, once.
    """
    visits = Counter(crawl.site.paths())
    again = visits.total() - len(visits)
    interrupted = len(stack.job(crawl.job)["attempts"]) - 1
    items = [item["url"] for item in stack.items(crawl.job) if item["type"] == "page"]
    sys.stdout.write(f"{crawl.job}: {interrupted} interrupted, {again} pages again, {len(items)} items\n")
    answer = stack.http.get(f"{stack.url}/jobs/{crawl.job}/requests", params={"format": "jsonl", "q": "/p/"})
    asked = [json.loads(line)["url"] for line in answer.raise_for_status().text.splitlines()]
    sys.stdout.write(f"{len(asked)} requests recorded\n")
    wrong = any(len(found) != PAGES or len(set(found)) != PAGES for found in (items, asked))
    return again > interrupted * UNDONE or wrong


# --- pipelines that finish in any order, try again, fetch files; and feeds

INTERRUPTIONS = full_or_short(200, 5)
#: In short one of each first.
HOW = ("spider", "pause", "node", "spider", "pause")
#: Crawls that have not ended, and after how many interruptions one is left to come to its end. Before each try it
#: waits twice as long as before the last, so of few crawls with many interruptions none would run most of the time.
CROWD, SHARE = full_or_short(16, 2), full_or_short(6, 5)
#: Of a tree, and beside each a page that fails once.
NODES = full_or_short(20, 8)
#: Of each page; that of the root has more.
ITEMS, MANY = 4, 80
RESTLESS = f"""
import asyncio, json, random, time
import scrapy
from scrapy.exceptions import DropItem
from scrapy.pipelines.files import FilesPipeline

class AnyOrder:
    async def process_item(self, item):
        for _ in range(2):  # the second time it succeeds
            await asyncio.sleep(4 * random.random() ** 4)
        if item["number"] < 0:
            raise DropItem("not wanted")
        item["at"] = time.time()
        return item

class Restless(scrapy.Spider):
    name = "restless"
    custom_settings = {{
        "ITEM_PIPELINES": {{AnyOrder: 1, FilesPipeline: 2}},
        "FILES_STORE": "kept",
        "FEEDS": {{"feed.jsonl": {{"format": "jsonlines"}}}},
        "RETRY_TIMES": 5,
    }}

    async def start(self):
        for number in range({ITEMS}):
            yield {{"page": "start", "number": number}}
        async for one in super().start():
            yield one

    def parse(self, response):
        page = "/" + response.url.split("/", 3)[3]
        for number in range(-1, {MANY} if page == "/p/0" else {ITEMS}):
            files = [response.urljoin(f"/file{{page}}/{{number % 2}}")]
            yield {{"page": page, "number": number, "file_urls": files}}
        yield from response.follow_all(css="a")
"""


def tree() -> dict[str, str | Reply]:
    children = {n: [child for child in (2 * n + 1, 2 * n + 2) if child < NODES] for n in range(NODES)}
    pages: dict[str, str | Reply] = {
        f"/p/{n}": links(*(f"/p/{child}" for child in children[n]), f"/flaky/1/{n}") for n in children
    }
    files = [f"/file/{kind}{n}/{number}" for kind in ("p/", "flaky/1/") for n in children for number in (0, 1)]
    return pages | {path: Reply(path, content_type="text/plain") for path in files}


def expected() -> Counter[tuple[str, int]]:
    pages = ["start", *(f"{kind}/{n}" for kind in ("/p", "/flaky/1") for n in range(NODES))]
    return Counter((page, number) for page in pages for number in range(MANY if page == "/p/0" else ITEMS))


class Crowd:
    """The crawls that are interrupted."""

    def __init__(self, stack: Stack, chance: random.Random, sites: ExitStack) -> None:
        self._stack, self._chance, self._sites = stack, chance, sites
        self.crawls: list[Crawled] = []
        #: By job.
        self._interrupted: Counter[str] = Counter()
        self.statuses: dict[str, str] = {}

    def look(self) -> bool:
        """Let what is paused go on. Whether all have ended."""
        for job in [crawl.job for crawl in self.crawls if self.statuses.get(crawl.job) not in FINAL]:
            self.statuses[job] = status = self._stack.status(job)["status"]
            if status == "paused":
                self._stack.http.post(f"{self._stack.url}/jobs/{job}/resume")
        return {*self.statuses.values()} <= FINAL

    def fill(self) -> None:
        """Have as many crawls under way as there may be."""
        for _ in range(CROWD - sum(status not in FINAL for status in self.statuses.values())):
            site = self._sites.enter_context(Site(tree(), delay=0.05))
            job = self._stack.crawl(f"{site.url}/p/0", project="restless", spider="restless", max_retries=20)
            self.crawls.append(Crawled(site, job))
            self.statuses[job] = "pending"

    def interrupt(self, how: str) -> bool:
        """Whether there was something to interrupt."""
        jobs = [
            job for job, is_now in self.statuses.items() if is_now == "running" and self._interrupted[job] < SHARE
        ]
        if not jobs:
            return False
        job = self._chance.choice(jobs)
        self._interrupted[job] += 1
        if how == "pause":
            return self._stack.http.post(f"{self._stack.url}/jobs/{job}/pause").is_success
        if how == "node":
            for name in ("scrapyd", "tailer"):
                kill(self._stack, name, self._chance)
        found = spiders(self._stack, "" if how == "node" else job)
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(found)


def feed(stack: Stack, job: str) -> Counter[tuple[str, int]]:
    """That of the last attempt."""
    files = stack.http.get(f"{stack.url}/jobs/{job}/files").raise_for_status().json()["files"]
    [url] = [file["url"] for file in files if file["name"] == "feed.jsonl"]
    items = map(json.loads, stack.http.get(stack.url + url).raise_for_status().text.splitlines())
    return Counter((item["page"], item["number"]) for item in items)


@in_full("a kill of each kind of crawl in crawler/test_frontier.py")
@pytest.mark.stack
@pytest.mark.timeout(600 + 10 * INTERRUPTIONS)
def test_interrupted_crawls_have_each_item_once_whatever_their_pipelines_do(stack: Stack) -> None:
    content = egg(source("restless", spiders=RESTLESS))
    stack.http.post(f"{stack.url}/projects/restless/versions?version=1", content=content).raise_for_status()
    known = f"{stack.url}/spiders?project=restless"
    wait_until(lambda: stack.http.get(known).json().get("projects"), timeout=90, what="the project")
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed of the interruptions: {seed}\n")  # shown where the test fails
    with ExitStack() as sites:
        chance = random.Random(seed)
        crowd, done = Crowd(stack, chance, sites), 0
        crawls = crowd.crawls
        while done < INTERRUPTIONS:
            time.sleep(chance.uniform(*PAUSE))  # at any moment, that is
            crowd.look()
            crowd.fill()
            done += crowd.interrupt(HOW[done % len(HOW)])
        last = time.monotonic()
        wait_until(crowd.look, timeout=400, what="the end of all crawls")
        ends = Counter(crowd.statuses.values())
        recovered = time.monotonic() - last
    lost = doubled = 0
    for crawl in crawls:
        items = stack.items(crawl.job)
        found = Counter((item["page"], item["number"]) for item in items)
        without_file = sum(not item["files"] for item in items if item["page"] != "start")
        lost += (expected() - found).total() + without_file
        doubled += (found - expected()).total() + (feed(stack, crawl.job) - found).total()
    attempts = sum(len(stack.job(crawl.job)["attempts"]) for crawl in crawls)
    sys.stdout.write(f"interrupted: {done}, crawls: {len(crawls)}, attempts: {attempts}, ends: {ends}\n")
    injected = f"{done} kills, pauses and deaths of the node; {len(crawls)} crawls in {attempts} attempts; items"
    record(
        "Crawls whose pipelines finish in any order go on", injected, lost=lost, doubled=doubled, recovered=recovered
    )
    assert attempts > len(crawls)
    assert set(ends) == {"finished"}
