"""GCRA in Redis: reservations lie an interval apart, for several clients and any value of the key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import redis
from scrapy import Request
from scrapy.settings import Settings
from stores import StoreProcess, valkey_server

from crawler.pace.pacing import Pacing
from crawler.setting_names import RATE_LIMIT_REDIS_URL
from gateway.stores import site_rate_limit
from gateway.stores.redis import connect_async
from gateway.stores.site_rate_limit import ANSWER_SECONDS, MAX_RESERVED, SiteRateLimit, rate_key

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

KEY = rate_key("site", "here")
#: Seconds that all answers of a test may take on a busy machine: less than half the time between two reservations.
LATE = 0.9


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer over its first answer than a crawl waits for."""
    monkeypatch.setattr(site_rate_limit, "ANSWER_SECONDS", 30.0)


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("rates")) as server:
        yield server


@pytest.fixture
def client(valkey: StoreProcess) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey) as client:
        client.flushall()
        yield client


@pytest.fixture
async def limits(valkey: StoreProcess, client: redis.Redis) -> AsyncIterator[list[SiteRateLimit]]:
    """Two crawls of the same site, at one request in two seconds."""
    limits = [SiteRateLimit.open(valkey, KEY, 0.5) for _ in range(2)]
    yield limits
    for limit in limits:
        await limit.close()


async def test_two_take_turns_an_interval_apart(limits: list[SiteRateLimit]) -> None:
    waits = [await limit.reserve() for limit in limits * 3]
    assert waits == sorted(waits)
    assert waits == pytest.approx([0, 2, 4, 6, 8, 10], abs=LATE)
    assert waits[0] == 0


async def test_many_at_once_get_a_time_each(limits: list[SiteRateLimit]) -> None:
    waits = sorted(await asyncio.gather(*(limit.reserve() for limit in limits * 5)))
    assert waits == pytest.approx([2 * number for number in range(10)], abs=LATE)


async def test_after_a_rest_as_many_go_at_once_as_are_saved_up(valkey: StoreProcess, client: redis.Redis) -> None:
    limit = SiteRateLimit(connect_async(valkey), KEY, 0.5, burst=3)
    assert [await limit.reserve() for _ in range(5)] == pytest.approx([0, 0, 0, 2, 4], abs=LATE)
    await limit.close()


async def test_the_newest_reservation_can_be_withdrawn_and_one_before_it_cannot(limits: list[SiteRateLimit]) -> None:
    first, second = limits
    await first.reserve()
    await second.reserve()
    await second.withdraw()
    await second.withdraw()
    assert await first.reserve() == pytest.approx(2, abs=LATE), "once"
    await second.reserve()
    await first.withdraw()
    assert await second.reserve() == pytest.approx(6, abs=LATE), "somebody stood behind it"


async def test_a_key_lives_as_long_as_it_says_something(limits: list[SiteRateLimit], client: redis.Redis) -> None:
    for _ in range(3):
        await limits[0].reserve()
    assert 4000 < int(client.pttl(KEY)) <= 7000
    await limits[0].withdraw()
    assert int(client.pttl(KEY)) > 0, "also after a reservation was withdrawn"


@pytest.mark.parametrize("nonsense", ["", "soon", "nan", "-1", "9" * 30, "inf"])
async def test_whatever_else_stands_there_stops_nobody(
    limits: list[SiteRateLimit], client: redis.Redis, nonsense: str
) -> None:
    client.set(KEY, nonsense)
    assert await limits[0].reserve() == 0
    assert await limits[1].reserve() == pytest.approx(2, abs=LATE)


async def test_a_clock_that_was_set_back_delays_nobody_for_long(
    limits: list[SiteRateLimit], client: redis.Redis
) -> None:
    seconds, microseconds = client.time()
    client.set(KEY, (seconds + 2 * MAX_RESERVED + 10) * 1_000_000 + microseconds)
    assert await limits[0].reserve() == 0


async def test_a_redis_that_does_not_answer_is_reported_in_time(
    limits: list[SiteRateLimit], valkey: StoreProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await limits[0].reserve()
    monkeypatch.setattr(site_rate_limit, "ANSWER_SECONDS", ANSWER_SECONDS)
    with valkey.frozen(), pytest.raises((redis.RedisError, OSError)):
        async with asyncio.timeout(2 * ANSWER_SECONDS + LATE):
            await limits[0].reserve()


async def test_a_crawl_of_many_hosts_with_a_delay_takes_few_connections(
    valkey: StoreProcess, client: redis.Redis, limits: list[SiteRateLimit]
) -> None:
    crawler = SimpleNamespace(settings=Settings({RATE_LIMIT_REDIS_URL: str(valkey)}), engine=None)
    pacing = Pacing(cast("Crawler", crawler), None, None, [])
    await asyncio.gather(*(limit.reserve() for limit in limits))
    before = client.info("clients")["connected_clients"]
    for number in range(100):
        pacing.keep_apart(f"{number}.example", 30)
        async with pacing.turn(Request(f"http://{number}.example/")):
            assert client.exists(rate_key("host", f"{number}.example"))
    assert client.info("clients")["connected_clients"] == before + 1
    await pacing.close()
