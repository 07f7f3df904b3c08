"""The rate limit of a site is one limit, however many crawls ask for its pages and whatever becomes of Redis."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from eggs import egg, source
from sites.server import Site
from stores import StoreProcess, valkey_server

from crawler.node.projects import ProjectCode
from crawler.node.unpacking import place, prepare

from .conftest import Attempt, Crawl, Run, Start
from .test_politeness import wait_until

RATE = 40
#: Seconds by which a busy machine may be late with the first request, whose moment is that of its arrival.
LATE = 1.0
#: A project that knows no manners: neither pauses nor robots.txt, and as much at once as it can.
RUDE = """
import scrapy

class Rude(scrapy.Spider):
    name = "rude"
    custom_settings = {"CONCURRENT_REQUESTS_PER_DOMAIN": 64, "CONCURRENT_REQUESTS": 64, "ROBOTSTXT_OBEY": False,
                       "DOWNLOAD_DELAY": 0, "USER_AGENT": "rude", "RETRY_HTTP_CODES": [404]}

    async def start(self):
        for number in range(40):
            for url in self.start_urls:
                headers = {"User-Agent": f"rude/{number}", "X-Key": "its own"}
                yield scrapy.Request(f"{url}/{number}", headers=headers, meta={"download_slot": str(number)})

    def parse(self, response):
        yield {"agent": response.request.headers["User-Agent"].decode()}
"""
#: As media pipelines do it.
GRABBY = """
import asyncio
import scrapy

class Grabby(scrapy.Spider):
    name = "grabby"

    async def start(self):
        download = self.crawler.engine.download_async
        urls = [f"{self.start_urls[0]}/tree/1/{number}" for number in range(6)]
        yield {"pages": len(await asyncio.gather(*(download(scrapy.Request(url)) for url in urls)))}
"""


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("rates")) as server:
        yield server


def span(site: Site) -> float:
    """Seconds between the first request and the last."""
    moments = [visit.at for visit in list(site.access_log)]
    return max(moments) - min(moments)


def is_held(site: Site, rate: float) -> bool:
    """Whether no more requests arrived than may."""
    return len(site.access_log) - 1 <= rate * (span(site) + LATE)


def settings(valkey: str, **others: str) -> dict[str, str]:
    return {"RATE_LIMIT_REDIS_URL": valkey, **others}


def deploy(home: Path, project: str, spiders: str) -> dict[str, str]:
    """Variables by which a runner finds the project."""
    packed, folder = home / "1.0.egg", home / "unpacked"
    packed.write_bytes(egg(source(project, spiders=spiders)))
    prepare(folder)
    return dict(ProjectCode(egg=place(packed, folder)).environment)


def stop(attempt: Attempt) -> Crawl:
    attempt.process.send_signal(signal.SIGTERM)
    return attempt.wait()


def test_two_processes_at_one_site_hold_its_rate_together(start: Start, valkey: StoreProcess) -> None:
    limit = {"site": "two", "site_rate_limit": f"{RATE}/s", "environ": settings(valkey)}
    with Site() as site:
        agents = ("one", "two")
        attempts = [start("seo", f"{site.url}/tree/1000", fetch={"user_agent": name}, **limit) for name in agents]

        def share(agent: str) -> int:
            return sum(visit.headers["User-Agent"] == agent for visit in list(site.access_log))

        # each has its share, once both have begun
        wait_until(lambda: len(site.access_log) > 4 * RATE and min(map(share, agents)) > RATE / 2)
        for attempt in attempts:
            stop(attempt)
        rate = len(site.access_log) / span(site)
        print(f"two processes at {RATE}/s: {rate:.1f}/s")  # noqa: T201 - the figure, for whoever asks
    assert is_held(site, RATE)
    assert rate > RATE / 2


def test_while_redis_is_away_each_crawl_holds_the_limit_by_itself_and_none_fails(
    start: Start, valkey: StoreProcess
) -> None:
    with Site() as site:
        limit = {"site": "alone", "site_rate_limit": "20/s", "environ": settings(valkey)}
        attempt = start("seo", f"{site.url}/tree/1000", **limit)
        wait_until(lambda: len(site.access_log) > 10)
        valkey.kill()
        wait_until(lambda: len(site.access_log) > 30)
        valkey.start()
        with redis.Redis.from_url(valkey) as client:
            client.flushall()
            wait_until(lambda: client.exists("rate:site:alone"))
        crawl = stop(attempt)
        assert is_held(site, 20)
        assert len(site.access_log) > 20 * span(site) / 2
    assert crawl.report["finish_reason"] == "shutdown"
    assert crawl.progress["errors_count"] == 0
    assert crawl.log.count("holds for this crawl alone") == 1
    assert crawl.log.count("holds for all of its crawls together again") == 1


def test_a_redis_that_hangs_costs_its_time_out_and_one_that_is_not_there_nothing(
    run: Run, valkey: StoreProcess
) -> None:
    limit = {"site": "hangs", "site_rate_limit": "20/s", "depth": 2}
    with Site() as site, valkey.frozen():
        crawl = run("seo", f"{site.url}/tree/40", **limit, environ=settings(valkey))
        assert span(site) < 15, "half a second each would be more"
        assert crawl.progress["completed_pages"] == 41
    with Site() as site:
        crawl = run("seo", f"{site.url}/tree/40", **limit, environ=settings("redis://127.0.0.1:1/0"))
        assert crawl.progress["completed_pages"] == 41
        assert is_held(site, 20)


def test_what_comes_from_the_cache_does_not_count(run: Run, valkey: StoreProcess) -> None:
    environ = {"HTTP_CACHE_REDIS_URL": valkey}
    with Site() as site:
        run("seo", f"{site.url}/tree/20", user_id="ann", environ=environ)
        visits = len(site.access_log)
        began = time.monotonic()
        # the limit's Redis is the cache's where no other is named
        limit = {"site": "cached", "site_rate_limit": "1/m", "fetch": {"min_pause_seconds": 60}}
        crawl = run("seo", f"{site.url}/tree/20", user_id="ann", environ=environ, **limit)
        assert time.monotonic() - began < 40, "not even one pause"
        assert len(site.access_log) == visits
        assert crawl.progress["completed_pages"] == 21
    with redis.Redis.from_url(valkey) as client:
        assert not client.exists("rate:site:cached")


def test_a_page_that_was_cached_for_other_headers_is_fetched_anew(run: Run, valkey: StoreProcess) -> None:
    environ = {"HTTP_CACHE_REDIS_URL": valkey}
    with Site() as site:
        for cookies in ({}, {"session": "a"}):
            run("seo", f"{site.url}/tree/1", user_id="eve", environ=environ, fetch={"cookies": cookies})
        assert site.hits("/tree/1") == 2


def test_a_deployed_project_is_held_to_all_of_it_whatever_it_sets(
    run: Run, valkey: StoreProcess, tmp_path: Path
) -> None:
    rude = deploy(tmp_path, "rude", RUDE)
    fetch = {
        "headers": {"X-Key": "ours"},
        "cookies": {"session": "c00kie"},
        "user_agent": "ours/1.0",
        "retry_codes": [418],
        "min_pause_seconds": 0.01,
        "max_pause_seconds": 0.02,
    }
    with Site(robots="User-agent: ours\nDisallow: /39\n\nUser-agent: rude\nDisallow: /") as site:
        crawl = run(
            "rude", site.url, project="rude", version="1.0", fetch={**fetch, "obey_robots": True},
            site="rude", site_rate_limit="20/s", environ=settings(valkey, DISCOVERYBOT_HOME=str(tmp_path), **rude),
        )  # fmt: skip
        assert crawl.report["finish_reason"] == "finished", crawl.log
        assert sorted(site.paths()) == sorted(f"/{number}" for number in range(39)), "no 404 was tried again"
        assert site.hits("/robots.txt") == 1
        assert is_held(site, 20)
        assert {visit.headers["User-Agent"] for visit in site.access_log} == {"ours/1.0"}
        assert {visit.headers["X-Key"] for visit in site.access_log} == {"ours"}
        assert {visit.headers["Cookie"] for visit in site.access_log} == {"session=c00kie"}


def test_not_even_what_goes_past_scrapys_queues_is_too_much_at_once(run: Run, tmp_path: Path) -> None:
    grabby = deploy(tmp_path, "grabby", GRABBY)
    with Site(delay=0.3) as site:
        crawl = run(
            "grabby", site.url, project="grabby", version="1.0", fetch={"concurrency": 2},
            environ={"DISCOVERYBOT_HOME": str(tmp_path), **grabby},
        )  # fmt: skip
        assert crawl.items == [{"pages": 6}]
        moments = sorted(visit.at for visit in site.access_log if visit.path != "/robots.txt")
        assert all(third - first >= 0.28 for first, third in zip(moments, moments[2:], strict=False))


def test_a_crawl_that_is_killed_or_stopped_leaves_the_others_no_longer_wait(
    start: Start, run: Run, valkey: StoreProcess, tmp_path: Path
) -> None:
    with Site() as site, redis.Redis.from_url(valkey) as client:
        limit = {"site": "slow", "site_rate_limit": "1/m", "depth": 0, "fetch": {"obey_robots": False}}
        run("seo", f"{site.url}/tree/1", **limit, environ=settings(valkey))
        first = bytes(client.get("rate:site:slow") or b"")
        waiting = start("seo", f"{site.url}/tree/1", **limit, environ=settings(valkey))
        wait_until(lambda: client.get("rate:site:slow") != first)
        stop(waiting)
        assert client.get("rate:site:slow") == first, "its turn is free again"
        killed = {}
        for point in ("reserve.before", "reserve.after", "withdraw.before", "withdraw.after"):
            plan = tmp_path / point
            plan.mkdir()
            (plan / f"rate.{point}").touch()
            environ = settings(valkey, DISCOVERYBOT_CRASH_PLAN=str(plan))
            killed[point] = start("seo", f"{site.url}/tree/1", **limit, environ=environ)
        wait_until(lambda: reservations_since(client, first) == 3)
        for point, attempt in killed.items():
            if "withdraw" in point:
                attempt.process.send_signal(signal.SIGTERM)
            assert attempt.process.wait(60) == -signal.SIGKILL, point
        assert site.hits("/tree/1") == 1
        # one for each that died with one in hand; whose was the newest could be given back
        assert reservations_since(client, first) in {2, 3}


def reservations_since(client: redis.Redis, before: bytes) -> float:
    return (int(client.get("rate:site:slow") or 0) - int(before)) / 60_000_000
