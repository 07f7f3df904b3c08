"""Two hundred simultaneous identical requests over two gateway processes are one crawl."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis
import warm
from breakable import Platform
from fault_table import record
from forms import full_or_short
from sites.server import Site, html
from stack import ROOT, Stack, wait_until
from stores import free_port
from warm import WarmProcess

pytestmark = [pytest.mark.stack]

REQUESTS = full_or_short(200, 50)


@pytest.fixture(scope="module")
def stack(platform: Platform) -> Stack:
    return platform.stack


@pytest.fixture(scope="module")
def second(stack: Stack) -> Iterator[str]:
    """Where another gateway of the same platform is."""
    with another_gateway(stack) as (url, _):
        yield url


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    pages = {f"/?{name}": html("hello", title="hello") for name in ("plain", "flush", "owner")}
    with Site(pages=pages) as site:
        yield site


@contextmanager
def another_gateway(stack: Stack, plan: Path | None = None) -> Iterator[tuple[str, WarmProcess]]:
    """A second gateway process on the same stores; one that has a crash plan is expected to die of it."""
    port = free_port()
    variables = {"GATEWAY_PORT": str(port), **({"DISCOVERYBOT_CRASH_PLAN": str(plan)} if plan else {})}
    env = {**stack.environment(), **variables}
    process = warm.start("gateway.web.__main__", env=env, cwd=ROOT, stdout=Path(os.devnull))
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: httpx2.get(f"{url}/health/live").is_success, what="the second gateway")
        yield url, process
    finally:
        process.terminate()
        process.wait(60)


async def post_all(urls: list[str], body: dict[str, Any], *, flush: str | None = None) -> list[dict[str, Any]]:
    """The bodies of what was answered; one that met a dying gateway has none."""
    limits = httpx2.Limits(max_connections=REQUESTS)
    async with httpx2.AsyncClient(limits=limits, timeout=30, trust_env=False) as client:

        async def post(number: int) -> dict[str, Any] | None:
            if flush and number == REQUESTS // 2:
                await asyncio.to_thread(redis.Redis.from_url(flush).flushall)
            try:
                answer = await client.post(f"{urls[number % len(urls)]}/crawl", json=body)
            except httpx2.TransportError:
                return None
            assert answer.status_code == httpx2.codes.OK, answer.text
            described: dict[str, Any] = answer.json()
            return described

        answers = await asyncio.gather(*(post(number) for number in range(REQUESTS)))
    return [answer for answer in answers if answer is not None]


def request(site: Site, name: str) -> dict[str, Any]:
    return {"user_id": "racer", "spider": "seo", "start_urls": [f"{site.url}/?{name}"], "depth": 0}


def the_one_job(stack: Stack, site: Site, answers: list[dict[str, Any]], name: str, injected: str) -> None:
    """All were given the same job; it is the only one, and the site saw one visit."""
    jobs = {answer["job_id"] for answer in answers}
    lost = sum(stack.wait_final(job_id)["status"] != "finished" for job_id in jobs)
    doubled = max(len(jobs), site.hits(f"/?{name}")) - 1
    record(f"{REQUESTS} identical requests at once", injected, lost=lost, doubled=doubled, recovered=None)
    assert sum(not answer["cached"] for answer in answers) <= 1


async def test_identical_requests_over_two_gateways_make_one_job(stack: Stack, second: str, site: Site) -> None:
    answers = await post_all([stack.url, second], request(site, "plain"))
    assert len(answers) == REQUESTS
    the_one_job(stack, site, answers, "plain", "two gateways")


async def test_also_when_redis_is_flushed_in_between(stack: Stack, second: str, site: Site) -> None:
    answers = await post_all([stack.url, second], request(site, "flush"), flush=stack.ready["redis_url"])
    assert len(answers) == REQUESTS
    the_one_job(stack, site, answers, "flush", "two gateways, FLUSHALL in between")


async def test_also_when_the_owner_dies_between_key_and_document(stack: Stack, site: Site, tmp_path: Path) -> None:
    (tmp_path / "jobs.insert.before").touch()
    body = request(site, "owner")
    with another_gateway(stack, plan=tmp_path) as (doomed, process):
        async with httpx2.AsyncClient(timeout=30, trust_env=False) as client:
            with pytest.raises(httpx2.TransportError):
                await client.post(f"{doomed}/crawl", json=body)
        assert process.wait(60) == -9
    answers = await post_all([stack.url], body)
    assert len(answers) == REQUESTS
    the_one_job(stack, site, answers, "owner", "gateway dies between key and document")
