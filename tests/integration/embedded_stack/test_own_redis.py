"""The Redis that `discoverybot up` brings: the platform has all of it, spiders have pages and rates."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from stores import StoreProcess

from embedded.stack.ports import PortPicker
from embedded.stack.stores import RedisServer, SnapshotFormat, StackStore, choose_mongo, choose_redis
from gateway.settings import Settings
from gateway.stores.site_rate_limit import SiteRateLimit, rate_key


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
    limit = SiteRateLimit.open(url, rate_key("site", "here"), 0.5)
    try:
        assert [await limit.reserve(), await limit.reserve() > 0] == [0, True]
        await limit.withdraw()
    finally:
        await limit.close()


def _install(program: str, version: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program on `PATH` that says its version."""
    (path := folder / "bin" / program).parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{version}'\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    return path


def test_a_redis_that_was_installed_later_gets_no_data_that_it_cannot_read(
    store: StackStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis7 = _install("redis-server", "Redis server v=7.0.15 sha=00000000:0", tmp_path, monkeypatch)
    again = choose_redis(Settings(), tmp_path, PortPicker({}))
    assert again.process
    assert store.process
    assert again.process.command[0] == store.process.command[0]
    assert again.origin == f"{store.origin}; {redis7} cannot read the data here"
    fresh = choose_redis(Settings(), tmp_path / "another", PortPicker({}))
    assert fresh.process
    assert fresh.process.command[0] == str(redis7)


@pytest.mark.parametrize(
    ("data", "product", "version", "reads"),
    [
        ("VALKEY080", "Valkey", "8.1.0", False),
        ("VALKEY080", "Valkey", "9.0.0", True),
        ("REDIS0011", "Valkey", "9.1.2", True),
        ("REDIS0012", "Valkey", "9.1.2", False),
        ("REDIS0011", "Redis", "7.0.15", False),
        ("REDIS0012", "Redis", "7.4.1", True),
        ("REDIS0013", "Redis", "8.4.0", True),
        ("VALKEY080", "Redis", "8.4.0", False),
    ],
)
def test_a_server_reads_its_own_data_and_older_data_of_others(
    data: str, product: str, version: str, *, reads: bool
) -> None:
    server = RedisServer(Path("server"), "it", tuple(map(int, version.split("."))), product == "Valkey")
    assert server.reads(SnapshotFormat(data[:-3].rstrip("0"), int(data[-3:]))) is reads


def test_data_that_no_server_here_reads_is_put_aside(tmp_path: Path) -> None:
    for _ in range(2):
        (base := tmp_path / "redis/appendonlydir/appendonly.aof.1.base.rdb").parent.mkdir(parents=True)
        base.write_bytes(b"REDIS0099\xfa")
        chosen = choose_redis(Settings(), tmp_path, PortPicker({}))
        aside = tmp_path / "redis-of-redis-99"
        assert chosen.origin.endswith(f"; it cannot read the data here, now in {aside}")
        assert (aside / base.relative_to(tmp_path / "redis")).exists()
        assert not base.exists()


def test_a_mongod_that_was_installed_later_does_not_take_the_place_of_the_embedded_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/{name}" if name == "mongod" else None)
    assert "/opt/mongod" in str(choose_mongo(Settings(), tmp_path, PortPicker({})).process)
    (file := tmp_path / "before/mongo/discoverybot.sqlite").parent.mkdir(parents=True)
    file.touch()
    kept = choose_mongo(Settings(), tmp_path / "before", PortPicker({}))
    assert kept.origin == "the embedded server, which has the data here; /opt/mongod has not"
