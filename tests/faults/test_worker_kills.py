"""Gateways and workers are killed where it hurts: between a write and the word about it, and under load."""

from __future__ import annotations

import time
from contextlib import suppress

import httpx2
import pytest
from breakable import Platform
from crawl_verifier import CrawlVerifier
from fault_table import record
from forms import full_or_short
from stack import wait_until
from worker_kills import kill_workers

pytestmark = [pytest.mark.stack, pytest.mark.timeout(420)]

TIMES = full_or_short(10, 1)
KILLS = full_or_short(20, 2)


def test_a_gateway_that_dies_before_it_wakes_anybody_has_accepted_the_crawl(
    platform: Platform, verifier: CrawlVerifier
) -> None:
    """Its client has no answer: the crawl runs all the same, and who asks again is given that very one."""
    slowest = 0.0
    for _ in range(TIMES):
        crawl, start = verifier.prepare()
        point = platform.die_at("jobs.insert.after")
        body = {"user_id": "tester", "spider": "seo", "start_urls": [start]}
        with suppress(httpx2.TransportError):
            answer = platform.stack.http.post(f"{platform.stack.url}/crawl", json=body)
            raise AssertionError(answer.text)
        died = time.monotonic()
        assert not point.exists()
        slowest = max(slowest, verifier.wait_for_visit([crawl], after=died))
        verifier.accept(crawl, verifier.client.crawl(start, key=start))
    verifier.wait()
    injected = f"SIGKILL × {TIMES}"
    record("Gateway dies between insert and wake", injected, recovered=slowest, **verifier.verdict())


def test_a_worker_that_dies_before_it_records_that_a_node_has_accepted(
    platform: Platform, verifier: CrawlVerifier
) -> None:
    slowest = 0.0
    for _ in range(TIMES):
        point = platform.die_at("jobs.mark_running.before")
        [crawl] = verifier.begin(1)
        wait_until(lambda point=point: not point.exists(), what="the death of the worker")
        died = time.monotonic()
        wait_until(lambda crawl=crawl: platform.stack.status(verifier.jobs[crawl.number])["status"] == "finished")
        slowest = max(slowest, time.monotonic() - died)
    verifier.wait()
    injected = f"SIGKILL × {TIMES}"
    record("Worker dies between Scrapyd's answer and its record", injected, recovered=slowest, **verifier.verdict())


def test_workers_that_are_killed_under_load_lose_nothing_and_double_nothing(
    platform: Platform, verifier: CrawlVerifier
) -> None:
    slowest = kill_workers(platform.stack, verifier, KILLS)
    verifier.wait(timeout=240)
    injected = f"SIGKILL × {KILLS}, {len(verifier.crawls)} crawls"
    record("Worker killed under load, Redis as broker", injected, recovered=slowest, **verifier.verdict())
