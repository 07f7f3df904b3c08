"""The Redis that `discoverybot up` brings: the platform has all of it, spiders have pages and rates."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from stores import StoreProcess

from embedded.stack.ports import PortPicker
from embedded.stack.stores import StackStore, choose_redis
from gateway.settings import Settings
from gateway.stores.site_rate_limit import SiteRateLimit, site_rate_key


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StackStore]:
    chosen = choose_redis(Settings(), tmp_path, PortPicker({}))
    assert chosen.process
    with redis.Redis.from_url(chosen.url) as client:
        process = StoreProcess.at(chosen.url, chosen.process.command, client.ping, tmp_path / "log")
        process.start()
        try:
            yield chosen
        finally:
            process.stop()


async def test_spiders_keep_pages_and_rates_there_and_reach_nothing_of_the_platforms(store: StackStore) -> None:
    url = str(store.cache_url)
    with redis.Redis.from_url(store.url) as platform, redis.Redis.from_url(url) as spider:
        platform.set("crawl:anne:seo:1", "C|job|1")
        assert spider.set("cache:anne:1", b"page", ex=60)
        assert spider.get("cache:anne:1") == b"page"
        await _reserve_twice(url)
        for command in (
            *("GET crawl:anne:seo:1", "SET crawl:anne:seo:1 x", "DEL cache:anne:1", "KEYS *", "SCAN 0", "RANDOMKEY"),
            *("XRANGE logs:job:1 - +", "LPUSH scraping x", "SUBSCRIBE events", "PUBLISH events x", "MONITOR"),
            *("CONFIG GET *", "ACL LIST", "FLUSHALL", "SAVE", "CLIENT LIST", "INFO", "DBSIZE"),
            *("COPY cache:anne:1 crawl:x", "MODULE LIST", "REPLICAOF 127.0.0.1 1", "SCRIPT FLUSH"),
            "EVAL return(redis.call('GET','crawl:anne:seo:1')) 0",
        ):
            for database in (0, 1, 2):
                spider.execute_command("SELECT", database)
                with pytest.raises(redis.ResponseError) as refused:
                    spider.execute_command(*shlex.split(command, posix=False))
                assert "permission" in str(refused.value).lower(), command


async def _reserve_twice(url: str) -> None:
    limit = SiteRateLimit.open(url, site_rate_key("here"), 0.5)
    try:
        assert [await limit.reserve(), await limit.reserve() > 0] == [0, True]
        await limit.withdraw()
    finally:
        await limit.close()
