"""Callers that can do without Redis: one of them waits for a Redis that is silent, and no other after it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
import redis
import redis.asyncio
import uvloop
from stores import StoreProcess, valkey_server

from gateway.stores.redis import connect_async, connect_wary

#: Answers nothing for so long: seconds.
_SHORT = 0.2


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("wary")) as server:
        yield server


@pytest.fixture
async def wary(valkey: StoreProcess) -> AsyncIterator[redis.asyncio.Redis]:
    client = connect_wary(valkey)
    await client.flushall()
    yield client
    await client.aclose()


async def test_what_redis_refuses_is_an_error_and_the_connection_goes_on(wary: redis.asyncio.Redis) -> None:
    await wary.set("text", "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        await wary.lpush("text", "y")
    assert await wary.get("text") == b"x"


async def test_a_connection_that_was_cut_is_made_anew(wary: redis.asyncio.Redis, valkey: StoreProcess) -> None:
    await wary.set("k", "v")
    with redis.Redis.from_url(valkey) as other:
        other.client_kill_filter(skipme=True)
    # the loop has not run since, so it has not seen the end of the connection
    with pytest.raises(redis.ConnectionError):
        await wary.get("k")
    assert await wary.get("k") == b"v"


async def test_a_redis_that_is_silent_fails_all_who_wait_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect_wary(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", timeout=_SHORT)
        answers = await asyncio.gather(*(client.get("k") for _ in range(20)), return_exceptions=True)
        assert all(isinstance(answer, redis.RedisError) for answer in answers)
        await client.aclose()


async def test_after_a_silence_nobody_else_waits_until_redis_answers_again(valkey: StoreProcess) -> None:
    wary = connect_wary(valkey, timeout=1.0)
    await wary.set("k", "v")
    with valkey.frozen():
        with pytest.raises(redis.TimeoutError):
            await wary.get("k")
        async with asyncio.timeout(10):
            for _ in range(30):
                with pytest.raises(redis.TimeoutError):
                    await wary.get("k")
    async with asyncio.timeout(30):
        await _answered(wary)
    assert await wary.get("k") == b"v"
    await wary.aclose()


async def _answered(wary: redis.asyncio.Redis) -> None:
    with suppress(redis.RedisError):
        await wary.get("k")
        return
    await asyncio.sleep(_SHORT)
    await _answered(wary)


async def test_no_redis_is_an_error_at_once() -> None:
    client = connect_wary("redis://127.0.0.1:1/0")
    with pytest.raises(redis.ConnectionError):
        await client.get("k")
    await client.aclose()


def test_a_connection_that_the_system_has_given_up_is_opened_anew(valkey: StoreProcess) -> None:
    """As after a link was cut: uvloop has closed it, and redis-py, which has not used it since, has not noticed."""

    async def ask() -> bytes | None:
        async with connect_async(valkey) as client:
            await client.set("a", "b")
            (connection,) = client.connection_pool._available_connections
            connection._writer.transport.abort()
            answer: bytes | None = await client.get("a")
            return answer

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(ask()) == b"b"
