from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

import redis
from integration.event_stream.gateway_process import GatewayProcess, ReturningClient, gateway_process
from integration.event_stream.stage import Play, lines
from pymongo.database import Database
from stores import StoreProcess

from gateway.stores.mongo import Document

CLIENTS = 40
LINES = 6000
LINES_PER_SECOND = 1000
#: Lines shipped at once, as the tailer does.
BATCH = 20


async def write(play: Play) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for first in range(1, LINES, BATCH):
        await asyncio.to_thread(play.write, lines(first, first + BATCH - 1))
        await asyncio.sleep(max(0, began + first / LINES_PER_SECOND - loop.time()))
    await asyncio.to_thread(play.finish)


async def kill_now_and_then(gateway: GatewayProcess) -> None:
    for signum in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        await asyncio.sleep(1.2)
        await asyncio.to_thread(gateway.stop, signum)
        gateway.start()
        await asyncio.to_thread(gateway.wait_ready)


async def test_every_client_gets_every_line_once_whoever_hangs_up(
    valkey: StoreProcess,
    mongo_url: str,
    shared_database: Database[Document],
    redis_client: redis.Redis,
    tmp_path: Path,
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    play = Play(shared_database, redis_client)
    play.start()
    with gateway_process(mongo_url, valkey, tmp_path / "gateway.log") as gateway:
        clients = [ReturningClient(gateway.port, play.id, random.Random(chance.random())) for _ in range(CLIENTS)]
        async with asyncio.timeout(200), asyncio.TaskGroup() as tasks:
            tasks.create_task(write(play))
            tasks.create_task(kill_now_and_then(gateway))
            for client in clients:
                tasks.create_task(client.run())
        assert gateway.stop() < 4.5, "less than it waits for connections that stay"
    written = [event_id.encode() for event_id in play.event_ids()]
    assert len(written) == LINES
    assert [client.ids == written for client in clients] == [True] * CLIENTS
    assert [client.ends for client in clients] == [1] * CLIENTS
    assert sum(client.connections for client in clients) > 3 * CLIENTS
