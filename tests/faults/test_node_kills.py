"""A node's processes are killed at random while it crawls: zygote, Scrapyd, tailer and spiders.

The verifiers are the crawled site, whose pages carry the job's number, and the attempts' own logs.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from fault_table import record
from forms import full_or_short
from nodes import spiders
from sites.server import Reply, Site, html
from stack import FINAL, Stack, running_stack, wait_until

#: Seconds of kills; `make faults` gives more.
SECONDS = float(os.environ.get("FAULT_SECONDS", "9"))
VICTIMS = ("zygote", "zygote", "spider", "spider", "tailer", "scrapyd")
#: Seconds between two kills.
PAUSE = (0.2, 1.4)
#: Jobs that are to be under way at any time.
UNDER_WAY = full_or_short(10, 5)
TIMEOUT = 4
GRACE = 2
PAGES = ("", "a", "b", "c")


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    variables = {
        "DISCOVERYBOT_RESTART_BACKOFF_MAX": "0.2",
        "CRAWL_STOP_GRACE": str(GRACE),
        "NODE_SLOTS": "6",
        "NODE_FORK_RENEW_AFTER": "15",
    }
    with running_stack(tmp_path / "home", **variables) as stack:
        yield stack


class Load:
    """Crawls that end by themselves, at their time limit, or because they are cancelled, in equal shares."""

    def __init__(self, stack: Stack, site: Site) -> None:
        self.stack, self.site = stack, site
        #: By number; what is to become of it, and its job.
        self.jobs: list[tuple[str, str]] = []
        self._under_way: set[str] = set()

    def top_up(self) -> None:
        self._under_way -= {job for job in self._under_way if self.stack.status(job)["status"] in FINAL}
        while len(self._under_way) < UNDER_WAY:
            self._under_way.add(self._begin())

    def _begin(self) -> str:
        number = len(self.jobs)
        expected = ("finished", "finished", "partial", "cancelled")[number % 4]
        if expected == "finished":
            for name in PAGES:
                links = html("".join(f'<a href="{other}">.</a>' for other in PAGES if other), title=f"{number}{name}")
                self.site.pages[f"/c/{number}/{name}"] = links
            job = self.stack.crawl(f"{self.site.url}/c/{number}/", max_retries=20)
        else:
            self.site.pages[f"/c/{number}/"] = html('<a href="wait">.</a>', title=f"{number}")
            self.site.pages[f"/c/{number}/wait"] = Reply(delay=600)
            timeout = TIMEOUT if expected == "partial" else 600
            job = self.stack.crawl(f"{self.site.url}/c/{number}/", max_retries=20, timeout=timeout)
        if expected == "cancelled" and number % 8 == 3:
            self._cancel(job)
        self.jobs.append((expected, job))
        return job

    def cancel_the_rest(self) -> None:
        for expected, job in self.jobs:
            if expected == "cancelled":
                self._cancel(job)

    def _cancel(self, job: str) -> None:
        self.stack.http.post(f"{self.stack.url}/jobs/{job}/cancel")


def node_processes(stack: Stack, *named: str) -> list[psutil.Process]:
    """Processes of this node that were started as one of the modules; what is forked is named as its zygote is."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ", "status"]):
        ours = (process.info["environ"] or {}).get("DISCOVERYBOT_HOME") == str(stack.home)
        if ours and set(named) & set(process.info["cmdline"] or ()) and process.info["status"] != "zombie":
            found.append(process)
    return found


def zygotes(stack: Stack) -> list[psutil.Process]:
    scrapyd = stack.ready["pids"]["scrapyd"]
    return [process for process in node_processes(stack, "crawler.node.zygote") if process.ppid() == scrapyd]


def starters(stack: Stack) -> list[psutil.Process]:
    """Of the zygotes, those that have nothing imported and execute commands."""
    return [process for process in zygotes(stack) if process.cmdline()[-1] == "crawler.node.zygote"]


def kill(stack: Stack, victim: str, chance: random.Random) -> bool:
    """Whether there was one to kill."""
    with suppress(ProcessLookupError, psutil.NoSuchProcess, KeyError, IndexError):
        if victim == "zygote":
            chance.choice(zygotes(stack)).kill()
        elif victim == "spider":
            os.kill(chance.choice(spiders(stack)), signal.SIGKILL)
        else:
            stack.kill(victim)
        return True
    return False


def kill_at_random(stack: Stack, load: Load, chance: random.Random) -> Counter[str]:
    killed: Counter[str] = Counter()
    deck: list[str] = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        load.top_up()
        time.sleep(chance.uniform(*PAUSE))  # at any moment, that is
        # in turn, so that each has its turn however short the time is
        deck = deck or chance.sample(VICTIMS, len(VICTIMS))
        victim = deck.pop()
        killed[victim] += kill(stack, victim, chance)
    return killed


@pytest.mark.stack
@pytest.mark.timeout(420 + 4 * SECONDS)
def test_every_job_ends_truthfully_whatever_is_killed_on_its_node(stack: Stack) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed of the random kills: {seed}\n")  # shown where the test fails
    with Site() as site:
        load = Load(stack, site)
        killed = kill_at_random(stack, load, random.Random(seed))
        last_kill = time.monotonic()
        sys.stdout.write(f"killed: {dict(killed)}, jobs: {len(load.jobs)}\n")
        load.cancel_the_rest()
        ends = [(expected, stack.wait_final(job, timeout=150)) for expected, job in load.jobs]
        recovered = time.monotonic() - last_kill
        assert set(killed) == set(VICTIMS)
        injected = f"SIGKILL × {killed.total()}: zygote, Scrapyd, tailer, spiders; {len(load.jobs)} crawls"
        untrue = [(expected, end) for expected, end in ends if end["status"] != expected]
        sys.stdout.write(f"not as expected: {untrue}\n")
        doubled = sum(is_doubled(stack, site, number, job) for number, (_, job) in enumerate(load.jobs))
        record("Node's processes killed at random", injected, lost=len(untrue), doubled=doubled, recovered=recovered)
        for number, (expected, job) in enumerate(load.jobs):
            check(stack, site, number, expected, job)
    nothing_is_left(stack)


def is_doubled(stack: Stack, site: Site, number: int, job: str) -> bool:
    """More visits than attempts, or more than one attempt that is said to be complete."""
    attempts = stack.job(job)["attempts"]
    finished = sum(attempt["status"] == "finished" for attempt in attempts)
    return site.hits(f"/c/{number}/") > len(attempts) or finished > 1


def check(stack: Stack, site: Site, number: int, expected: str, job: str) -> None:
    """Each attempt ran at most once; what is said to be finished is all there."""
    attempts = [attempt["attempt"] for attempt in stack.job(job)["attempts"]]
    for attempt in attempts:
        log = stack.home / "node/outbox" / f"{job}-{attempt}" / "crawl.log"
        assert len(re.findall(rb"Spider opened", log.read_bytes() if log.exists() else b"")) <= 1
    if expected == "finished":
        assert all(1 <= site.hits(f"/c/{number}/{name}") <= len(attempts) for name in PAGES)
        assert len(stack.items(job)) == len(PAGES)
    else:
        assert site.hits(f"/c/{number}/") <= len(attempts)


def nothing_is_left(stack: Stack) -> None:
    """Every slot is free, and of processes there is one zygote, one starter and no crawl."""

    def slots_are_free() -> bool:
        (node,) = stack.http.get(f"{stack.url}/nodes").json()["nodes"]
        return bool(node["used_slots"] == 0 and node["free_slots"] == node["max_slots"])

    def processes_are_gone() -> bool:
        left = node_processes(stack, "crawler.node.zygote", "crawler.node.runner")
        return len(left) == 2 and left == zygotes(stack) and len(starters(stack)) == 1

    wait_until(slots_are_free, timeout=90, what="the freeing of all slots")
    wait_until(processes_are_gone, timeout=TIMEOUT + GRACE + 80, what="the end of all crawls")
