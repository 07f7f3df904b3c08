"""Redis forgets everything, and MongoDB is away: clients are told, and all else waits and goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx2
import pytest
import redis
from breakable import Platform
from crawl_verifier import CrawlVerifier
from event_source import Event, log_text, read_events
from fault_table import record
from forms import full_or_short
from sites.server import Site
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

FLUSHES = full_or_short(20, 2)
FOLLOWED = full_or_short(12, 4)
SECONDS = full_or_short(30, 4)
#: Crawls that run when MongoDB goes away, and that are asked for meanwhile.
RUNNING, ASKED = 4, full_or_short(100, 8)
#: Clients that ask at the same time: many more than the gateway has threads.
CLIENTS = 100


class Follower(threading.Thread):
    """Follows one crawl with a single request, and notes when it heard what."""

    def __init__(self, stack: Stack, job_id: str) -> None:
        super().__init__(daemon=True)
        self._address = f"{stack.url}/jobs/{job_id}/logs"
        self.job_id = job_id
        self.heard: list[tuple[float, Event]] = []

    def run(self) -> None:
        headers = {"Accept": "text/event-stream"}
        with httpx2.stream("GET", self._address, headers=headers, timeout=60, trust_env=False) as response:
            for event in read_events(response):
                self.heard.append((time.monotonic(), event))
                if event.event == "end":
                    return

    def first_line(self, *, after: float) -> float | None:
        return next((at for at, event in list(self.heard) if at > after and event.event == "log"), None)

    @property
    def events(self) -> list[Event]:
        return [event for _, event in self.heard]


@pytest.fixture
def long_crawls(platform: Platform, site: Site) -> Iterator[CrawlVerifier]:
    """Of some seconds each."""
    site.delay = 0.2
    with CrawlVerifier(platform.stack, site, pages=40) as verifier:
        yield verifier


def test_redis_is_emptied_while_crawls_run_and_are_followed(platform: Platform, long_crawls: CrawlVerifier) -> None:
    verifier, stack = long_crawls, platform.stack
    crawls = verifier.begin(FOLLOWED)
    followers = [Follower(stack, verifier.jobs[crawl.number]) for crawl in crawls]
    for follower in followers:
        follower.start()
    wait_until(lambda: any(follower.first_line(after=0) for follower in followers), what="the first line")
    slowest = 0.0
    with ExitStack() as stores:
        clients = [stores.enter_context(redis.Redis.from_url(url)) for url in (platform.redis, platform.broker)]
        for _ in range(FLUSHES):
            for client in clients:
                client.flushall()
            flushed = time.monotonic()
            # what runs is known to be running though nobody remembers that it was asked for
            [crawl] = verifier.begin(1)
            again = stack.crawl(f"{verifier.site.url}{crawl.paths[0]}")
            assert again == verifier.jobs[crawl.number]
            slowest = max(slowest, verifier.wait_for_visit(verifier.crawls, after=flushed))
    verifier.wait(timeout=240)
    for follower in followers:
        follower.join(60)
        assert follower.events[-1].event == "end"
        assert log_text(follower.events).encode() == stack.log(follower.job_id)
    injected = f"FLUSHALL × {FLUSHES}, {len(verifier.crawls)} crawls, {FOLLOWED} followed"
    record("Redis emptied while crawls run", injected, recovered=slowest, **verifier.verdict())


def test_mongodb_is_away_clients_are_told_and_everything_else_waits(
    platform: Platform, long_crawls: CrawlVerifier
) -> None:
    verifier, stack = long_crawls, platform.stack
    running = verifier.begin(RUNNING)
    verifier.wait_for_visit(running, after=0)
    with ThreadPoolExecutor(1) as users:
        with platform.mongo.away():
            gone = time.monotonic()
            # what runs needs nothing of it
            verifier.wait_for_visit(running, after=gone)
            asking = users.submit(verifier.begin, ASKED, at_once=CLIENTS)
            refused = stack.http.get(f"{stack.url}/jobs/{verifier.jobs[0]}/status")
            assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
            # how long it is away is what is tested
            time.sleep(max(0.0, gone + SECONDS - time.monotonic()))
            back = time.monotonic()
        asked = asking.result()
    recovered = verifier.wait_for_visit(asked, after=back)
    # every client was told so, and none was left without an answer
    assert verifier.client.refused.keys() == {httpx2.codes.SERVICE_UNAVAILABLE}
    verifier.wait(timeout=240)
    injected = f"killed for {SECONDS} s, {RUNNING} crawls running, {ASKED} asked for"
    record("MongoDB away", injected, recovered=recovered, **verifier.verdict())
