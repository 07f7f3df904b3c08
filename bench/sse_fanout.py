"""The event stream compared with a bare ASGI loop: how many log lines a server process sends per CPU second."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import redis

from bench.effort import Effort
from bench.table import Row, alternate
from gateway.stores import mongo

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tests")]
from integration.event_stream.gateway_process import GatewayProcess  # noqa: E402 - shared with the tests
from integration.event_stream.stage import Play, lines  # noqa: E402
from stores import embedded_mongo, valkey_server  # noqa: E402

CLIENTS = 100
#: The lines of one second come in this many batches, as from a tailer.
BATCHES, BATCH = 25, 40
_DATA = b'{"ts":"2027-06-01T09:00:00.001Z","level":"INFO","logger":"seo","msg":"line 1"}'
_LINE = b"event: log\nid: 1-20480\ndata: " + _DATA


def run(effort: Effort) -> list[Row]:
    seconds, rounds = effort.of((0.5, 1), (4.0, 2), (4.0, 5))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis_url = stack.enter_context(valkey_server(folder / "valkey"))
        mongo_url = stack.enter_context(embedded_mongo(folder / "mongo"))
        gateway = GatewayProcess(mongo_url, redis_url, folder / "gateway.log")
        bare = GatewayProcess("", "", folder / "bare.log", app="bench.sse_fanout:bare")
        for server in (gateway, bare):
            server.start()
            stack.callback(server.stop, signal.SIGKILL)
            server.wait_ready()
        play = Play(mongo.connect(mongo_url), redis.Redis.from_url(redis_url))
        ours, beside = alternate(
            lambda: asyncio.run(_while_writing(gateway, play, seconds)),
            lambda: asyncio.run(_measure(bare, "/", seconds)),
            rounds,
        )
    what = f"log lines sent per CPU second, {BATCH * BATCHES} lines/s to {CLIENTS} clients"
    peer = "a bare ASGI loop that sends as many bytes per tick"
    return [Row(what, "lines", ours, beside, peer, ours / beside, ">= 0.8")]


async def bare(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """The upper bound: the same bytes at the same pace, with no platform behind them."""
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    # without this, loops for clients of earlier rounds would slow this side down with each round
    gone = asyncio.ensure_future(_until_gone(receive))
    while not gone.done():
        await send({"type": "http.response.body", "body": (_LINE + b"\n\n") * BATCH, "more_body": True})
        await asyncio.sleep(1 / BATCHES)


async def _until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _while_writing(gateway: GatewayProcess, play: Play, seconds: float) -> float:
    # a new attempt each time, so that no client gets earlier lines first
    play.start()
    writing = asyncio.create_task(_write(play))
    try:
        return await _measure(gateway, f"/jobs/{play.id}/logs", seconds, last_event_id=f"{play.number}-0")
    finally:
        writing.cancel()


async def _write(play: Play) -> None:
    loop = asyncio.get_running_loop()
    began, batch = loop.time(), 0
    while True:
        await asyncio.to_thread(play.write, lines(batch * BATCH + 1, (batch + 1) * BATCH), mongodb=False)
        batch += 1
        await asyncio.sleep(max(0, began + batch / BATCHES - loop.time()))


async def _measure(server: GatewayProcess, path: str, seconds: float, *, last_event_id: str = "1-0") -> float:
    counts = [0] * CLIENTS
    head = f"GET {path} HTTP/1.1\r\nHost: bench\r\nLast-Event-ID: {last_event_id}\r\n\r\n".encode()
    clients = [asyncio.create_task(_listen(server.port, head, counts, number)) for number in range(CLIENTS)]
    await asyncio.sleep(1)
    process = psutil.Process(server.pid)
    before, sent = process.cpu_times(), sum(counts)
    await asyncio.sleep(seconds)
    after, sent = process.cpu_times(), sum(counts) - sent
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return sent / (after.user + after.system - before.user - before.system)


async def _listen(port: int, head: bytes, counts: list[int], number: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head)
    try:
        while data := await reader.read(1 << 18):
            # a match that is split between two reads is missed: one in hundreds, on both sides
            counts[number] += data.count(b"event: log")
    finally:
        writer.close()
