from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from integration.event_stream.fixtures import LIMITS
from integration.event_stream.gateway_process import gateway_process
from integration.event_stream.stage import PATIENCE, Gateway, Play, gateway, line, lines
from pymongo.database import Database
from stores import StoreProcess, embedded_mongo, valkey_server

from gateway.stores import mongo
from gateway.stores.mongo import Document

MakePlay = Callable[..., Play]


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[StoreProcess]:
    """One that may be stopped."""
    with valkey_server(tmp_path / "own") as server:
        yield server


async def test_a_client_that_does_not_read_is_dropped(
    database: Database[Document], valkey: StoreProcess, redis_client: redis.Redis
) -> None:
    play = Play(database, redis_client)
    play.start()
    for first in range(1, 60_000, 2000):
        play.write(lines(first, first + 1999), redis=False)
    async with gateway(database, valkey, LIMITS._replace(send_timeout=0.3)) as streams:
        with socket.create_connection(("127.0.0.1", int(streams.url.rpartition(":")[2]))) as client:
            client.sendall(f"GET /jobs/{play.id}/logs HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            async with asyncio.timeout(PATIENCE):
                while not streams.server.server_state.connections:  # noqa: ASYNC110 - uvicorn has no event for it
                    await asyncio.sleep(0.01)
                while streams.server.server_state.connections:  # noqa: ASYNC110 - nor for this
                    await asyncio.sleep(0.01)


async def test_a_quiet_stream_is_kept_open_by_comments(
    database: Database[Document], valkey: StoreProcess, redis_client: redis.Redis
) -> None:
    play = Play(database, redis_client)
    async with (
        gateway(database, valkey, LIMITS._replace(ping=0.05)) as streams,
        streams.http.stream("GET", f"/jobs/{play.id}/logs") as answer,
    ):
        text = ""
        async for part in answer.aiter_text():
            text += part
            if text.count(": ping\n\n") > 1:
                break


async def test_streams_go_on_while_redis_is_away_and_after(
    database: Database[Document], own_valkey: StoreProcess
) -> None:
    with redis.Redis.from_url(own_valkey) as client:
        play = Play(database, client)
        play.start()
        play.write(lines(1, 10))
        async with (
            gateway(database, own_valkey, LIMITS) as streams,
            streams.listen(play.id) as early,
        ):
            await early.until("log", 10)
            own_valkey.kill()
            play.write(lines(11, 20), redis=False)
            await early.until("log", 20)
            async with streams.listen(play.id) as late:
                await late.until("log", 20)
                own_valkey.start()
                play.write(lines(21, 30))
                await late.until("log", 30)
                await early.until("log", 30)
                play.finish()
                heard = [await early.to_the_end(), await late.to_the_end()]
        assert [one.ids() for one in heard] == [play.event_ids()] * 2


async def test_live_lines_go_on_while_mongodb_is_away_and_the_end_comes_after(
    valkey: StoreProcess, redis_client: redis.Redis, tmp_path: Path
) -> None:
    with embedded_mongo(tmp_path / "mongo") as server:
        database = mongo.connect(server, timeout=1)
        play = Play(database, redis_client)
        play.start()
        play.write(lines(1, 10))
        async with gateway(database, valkey, LIMITS) as streams, streams.listen(play.id) as listener:
            await listener.until("log", 10)
            server.kill()
            for first in range(11, 40, 5):
                play.write(lines(first, first + 4), mongodb=False)
                await listener.until("log", first + 4)
            server.start()
            play.finish()
            assert (await listener.to_the_end()).ids() == play.event_ids()
        database.client.close()


async def test_a_job_is_followed_to_its_end_though_nothing_is_announced(streams: Gateway, play: MakePlay) -> None:
    job = play()
    async with streams.listen(job.id) as listener:
        await listener.until("status")
        job.publisher.status = lambda job: None  # type: ignore[method-assign]  # Redis was away just then
        job.start()
        job.write(line(1), redis=False)
        await listener.until("log")
        job.finish()
        assert len((await listener.to_the_end()).of("end")) == 1


async def test_a_gateway_that_is_stopped_says_so_and_streams_end_at_once(
    valkey: StoreProcess,
    mongo_url: StoreProcess,
    shared_database: Database[Document],
    redis_client: redis.Redis,
    tmp_path: Path,
) -> None:
    play = Play(shared_database, redis_client)
    play.start()
    play.write(lines(1, 3))
    with gateway_process(mongo_url, valkey, tmp_path / "gateway.log") as process:
        reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
        writer.write(f"GET /jobs/{play.id}/logs HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await reader.readuntil(b"line 3")
        stopping = asyncio.create_task(asyncio.to_thread(process.stop))
        rest = await reader.read()
        writer.close()
        assert await stopping < 3
    assert b"retry: 500\n: the gateway is shutting down\n\n" in rest
    # a complete answer: the client knows that nothing was cut off
    assert rest.endswith(b"0\r\n\r\n")
    assert "Traceback" not in process.log()
