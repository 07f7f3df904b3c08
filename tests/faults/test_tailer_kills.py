"""The tailer is killed again and again, and frozen, while crawls write and people watch.

The verifiers are the attempts' own logs, in which each line has its number, and the spools of their items.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from breakable import Platform
from crawl_verifier import CrawlVerifier
from eggs import egg, source
from event_source import Event, log_text, read_events
from fault_table import record
from forms import full_or_short, in_full
from sites.gated import GatedSite
from sites.server import Site, html
from stack import Stack, running_stack, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(420)]

CRAWLS = 3
KILLS = full_or_short(20, 3)
#: Seconds from a tailer's start to its end; longer than it takes to begin.
LIVES = (0.0, 3.0)
FROZEN = full_or_short(10, 3)
#: Writes numbered lines, one that is printed among them, and numbered items until the file `gate` is there.
TALKER = """
import asyncio, pathlib
import scrapy

class Talker(scrapy.Spider):
    name = "talker"

    async def parse(self, response):
        number = 0
        while not pathlib.Path(self.gate).exists():
            for number in range(number + 1, number + 11):
                self.logger.info("line %d", number)
            print("printed", number)
            yield {"number": number}
            await asyncio.sleep(0.05)
"""


@pytest.fixture(scope="module")
def project(platform: Platform) -> str:
    """Deployed where the platform keeps it; it is in nobody's way."""
    stack, content = platform.stack, egg(source("talker", spiders=TALKER))
    answer = stack.http.post(f"{stack.url}/projects/talker/versions?version=1", content=content, timeout=90)
    answer.raise_for_status()
    known = f"{stack.url}/spiders?project=talker"
    wait_until(lambda: stack.http.get(known).json().get("projects"), timeout=90, what="the project")
    return "talker"


class Talk:
    """Crawls that write until they are told to stop, and who watches them."""

    def __init__(self, stack: Stack, site: Site, gate: Path, project: str) -> None:
        self.stack, self.gate = stack, gate
        site.pages |= {f"/talk/{gate.parent.name}/{number}": html("talk") for number in range(CRAWLS)}
        fields = {"project": project, "spider": "talker", "params": {"gate": str(gate)}}
        starts = [f"{site.url}/talk/{gate.parent.name}/{number}" for number in range(CRAWLS)]
        self.jobs = [stack.crawl(start, **fields) for start in starts]
        self._pool = ThreadPoolExecutor(CRAWLS)
        self._seen = [self._pool.submit(self._watch, job) for job in self.jobs]

    def _watch(self, job: str) -> list[Event]:
        with httpx2.stream("GET", f"{self.stack.url}/jobs/{job}/logs", timeout=120, trust_env=False) as response:
            return list(read_events(response))

    def wait_until_shipped(self) -> None:
        """Until MongoDB has a line of each that was not written before."""
        sizes = {job: len(self.stack.log_on_node(job)) for job in self.jobs}
        for job, size in sizes.items():
            wait_until(lambda job=job, size=size: len(self.stack.log(job)) > size, timeout=90, what="new lines")

    def end(self) -> None:
        self.gate.touch()
        self._pool.shutdown()

    def verdict(self) -> dict[str, int]:
        """Lines and items, in MongoDB and in the streams, that are missing, and those that came twice."""
        lost = doubled = 0
        for job, watcher in zip(self.jobs, self._seen, strict=True):
            assert self.stack.wait_final(job, timeout=90)["status"] == "finished"
            assert len(self.stack.job(job)["attempts"]) == 1, "a tailer that is away is no reason to crawl again"
            written = self.stack.log_on_node(job)
            assert self.stack.log(job) == written
            for shown in (log_text(watcher.result()).encode(), written):
                lost += (Counter(written.splitlines()) - Counter(shown.splitlines())).total()
                doubled += (Counter(shown.splitlines()) - Counter(written.splitlines())).total()
            numbers = [item["number"] for item in self.stack.items(job)]
            spool = (self.stack.home / "node/outbox" / f"{job}-1" / "items.jsonl").read_text().count("\n")
            lost += spool - len(set(numbers))
            doubled += len(numbers) - len(set(numbers))
        return {"lost": lost, "doubled": doubled}


@pytest.fixture
def talk(platform: Platform, site: Site, tmp_path: Path, project: str) -> Iterator[Talk]:
    talk = Talk(platform.stack, site, tmp_path / "gate", project)
    for job in talk.jobs:
        platform.stack.wait_begun(job, timeout=90)
    yield talk
    talk.end()


def kill(stack: Stack) -> float:
    """When, by the monotonic clock. Returns once there is another."""
    pid, at = stack.ready["pids"]["tailer"], time.monotonic()
    stack.kill("tailer")
    wait_until(lambda: stack.ready["pids"].get("tailer") not in (None, pid), timeout=90, what="a new tailer")
    return at


def test_no_line_is_lost_or_repeated_whenever_the_tailer_is_killed(platform: Platform, talk: Talk) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed of the random kills: {seed}\n")  # shown where the test fails
    chance = random.Random(seed)
    for _ in range(KILLS):
        time.sleep(chance.uniform(*LIVES))  # at any moment, that is
        killed = kill(platform.stack)
    talk.wait_until_shipped()
    recovered = time.monotonic() - killed
    talk.end()
    record(
        "Tailer killed (log lines and items counted)", f"{KILLS} × SIGKILL, {CRAWLS} crawls that log and are watched",
        recovered=recovered, **talk.verdict(),
    )  # fmt: skip


def test_a_tailer_that_stood_still_ships_what_was_written_meanwhile(platform: Platform, talk: Talk) -> None:
    talk.wait_until_shipped()
    platform.stack.kill("tailer", signal.SIGSTOP)
    try:
        time.sleep(FROZEN)  # how long it is frozen is what is tested
    finally:
        platform.stack.kill("tailer", signal.SIGCONT)
    thawed = time.monotonic()
    talk.wait_until_shipped()
    recovered = time.monotonic() - thawed
    talk.end()
    record(
        "Tailer frozen (log lines and items counted)", f"SIGSTOP for {FROZEN} s, {CRAWLS} crawls that log",
        recovered=recovered, **talk.verdict(),
    )  # fmt: skip


@in_full("such attempts in services/test_reconciliation.py")
def test_what_ran_on_a_node_that_was_taken_for_dead_is_told_once(tmp_path: Path) -> None:
    """Scrapyd and its crawls go on, but nobody hears of it; what they did is not what counts in the end."""
    with (
        # long before Scrapy asks again for a page that does not come, which would count as a second visit
        running_stack(tmp_path / "home", NODE_DEAD_AFTER="12") as stack,
        GatedSite() as site,
        CrawlVerifier(stack, site) as verifier,
    ):
        crawls = verifier.begin(CRAWLS)
        wait_until(lambda: site.under_way == CRAWLS, timeout=90, what="crawls under way")
        stack.kill("tailer", signal.SIGSTOP)
        try:
            for job in verifier.jobs.values():
                wait_until(lambda job=job: stack.status(job)["status"] == "pending", timeout=120, what="the verdict")
            site.open()
            wait_until(lambda: all(site.hits(path) for crawl in crawls for path in crawl.paths), what="unseen ends")
        finally:
            stack.kill("tailer", signal.SIGCONT)
        thawed = time.monotonic()
        # not by their visits: what the first attempts fetched is in the HTTP cache
        verifier.wait()
        recovered = time.monotonic() - thawed
        record(
            "Tailer frozen until its node counts as dead", f"SIGSTOP, {CRAWLS} crawls that run on meanwhile",
            recovered=recovered, **verifier.verdict(retried=True),
        )  # fmt: skip
