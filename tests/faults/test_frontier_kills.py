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
from pathlib import Path
from typing import NamedTuple

import pytest
from fault_table import record
from nodes import spiders
from sites.server import Site, links
from stack import FINAL, Stack, running_stack

#: Only `make faults` gives it.
FULL = "FAULT_SECONDS" in os.environ
KILLS, PAGES, CRAWLS = (200, 2000, 40) if FULL else (8, 250, 3)
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


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    variables = {
        "DISCOVERYBOT_RESTART_BACKOFF_MAX": "0.2",
        "CRAWL_STOP_GRACE": "2",
        "CRAWL_MAX_UNDONE": str(UNDONE),
        "NODE_SLOTS": str(SLOTS),
        "CRAWL_USER_RUNNING_MAX": str(SLOTS),
    }
    with running_stack(tmp_path / "home", **variables) as stack:
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
