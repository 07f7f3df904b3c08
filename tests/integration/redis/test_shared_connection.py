"""Many callers share one connection to Redis: each gets its own answer, or all of them the same failure."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
import redis
import redis.asyncio
from stores import StoreProcess, valkey_server

from gateway.stores.redis import connect_shared

#: Answers nothing for so long: seconds.
_SHORT = 0.2


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("shared")) as server:
        yield server


@pytest.fixture
async def shared(valkey: StoreProcess) -> AsyncIterator[redis.asyncio.Redis]:
    client = connect_shared(valkey)
    await client.flushall()
    yield client
    await client.aclose()


async def test_each_caller_gets_its_own_answer(shared: redis.asyncio.Redis) -> None:
    assert (
        await asyncio.gather(*(shared.set(f"k{n}", f"v{n}", nx=True, get=True) for n in range(100))) == [None] * 100
    )
    assert await asyncio.gather(*(shared.get(f"k{n}") for n in range(100))) == [f"v{n}".encode() for n in range(100)]
    assert len(await shared.client_list()) > 0


async def test_they_share_one_connection(shared: redis.asyncio.Redis, valkey: StoreProcess) -> None:
    await asyncio.gather(*(shared.get("k") for _ in range(50)))
    with redis.Redis.from_url(valkey) as other:
        # this one's own is the second
        assert other.info("clients")["connected_clients"] == 2


async def test_a_caller_that_gives_up_does_not_shift_the_others_answers(shared: redis.asyncio.Redis) -> None:
    await shared.set("a", "1")
    await shared.set("b", "2")
    first, second = asyncio.create_task(shared.get("a")), asyncio.create_task(shared.get("b"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == b"2"
    assert await shared.get("a") == b"1"


async def test_scripts_are_loaded_when_redis_does_not_know_them(shared: redis.asyncio.Redis) -> None:
    script = shared.register_script("return ARGV[1]")
    assert await script(args=["one"]) == b"one"
    await shared.script_flush()
    assert await script(args=["two"]) == b"two"


async def test_what_redis_refuses_is_an_error_and_the_connection_goes_on(shared: redis.asyncio.Redis) -> None:
    await shared.set("text", "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await shared.lpush("text", "y")
    assert await shared.get("text") == b"x"


async def test_a_connection_that_was_cut_is_made_anew(shared: redis.asyncio.Redis, valkey: StoreProcess) -> None:
    await shared.set("k", "v")
    with redis.Redis.from_url(valkey) as other:
        other.client_kill_filter(skipme=True)
    # the loop has not run since, so it has not seen the end of the connection
    with pytest.raises(redis.ConnectionError):
        await shared.get("k")
    assert await shared.get("k") == b"v"


async def test_a_redis_that_is_silent_fails_all_who_wait_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect_shared(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", timeout=_SHORT)
        answers = await asyncio.gather(*(client.get("k") for _ in range(20)), return_exceptions=True)
        assert all(isinstance(answer, redis.RedisError) for answer in answers)
        await client.aclose()


async def test_after_a_silence_nobody_else_waits_until_redis_answers_again(valkey: StoreProcess) -> None:
    shared = connect_shared(valkey, timeout=1.0)
    await shared.set("k", "v")
    with valkey.frozen():
        with pytest.raises(redis.TimeoutError):
            await shared.get("k")
        async with asyncio.timeout(10):
            for _ in range(30):
                with pytest.raises(redis.TimeoutError):
                    await shared.get("k")
    async with asyncio.timeout(30):
        await _answered(shared)
    assert await shared.get("k") == b"v"
    await shared.aclose()


async def _answered(shared: redis.asyncio.Redis) -> None:
    with suppress(redis.RedisError):
        await shared.get("k")
        return
    await asyncio.sleep(_SHORT)
    await _answered(shared)


async def test_no_redis_is_an_error_at_once() -> None:
    client = connect_shared("redis://127.0.0.1:1/0")
    with pytest.raises(redis.ConnectionError):
        await client.get("k")
    await client.aclose()
