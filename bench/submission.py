"""`POST /crawl` compared with a bare FastAPI handler with the same model: answers per CPU second of one process."""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import orjson
import psutil
from fastapi import FastAPI
from pydantic import BaseModel

from bench.effort import Effort
from bench.our_platform import ROOT, embedded_mongo, free_port, valkey_server
from bench.table import Row, alternate
from gateway.contract.records import SpiderInfo
from gateway.projects.eggs import SpiderStore
from gateway.stores.mongo import connect
from gateway.web.schemas.crawl import CrawlRequest

CLIENTS = 8
SECONDS = 3.0
#: Target ratios: of a request that a dedupe key answers, and of a request that makes a job.
KNOWN, NEW = 0.25, 0.05
_UVICORN = ("--loop", "uvloop", "--http", "httptools", "--no-access-log", "--log-level", "warning")


class Answer(BaseModel):
    job_id: str


def bare() -> FastAPI:
    """The upper bound: it reads and checks the same body, and answers."""
    app = FastAPI()

    @app.post("/crawl")
    async def crawl(body: CrawlRequest) -> Answer:
        return Answer(job_id=body.spider)

    return app


def run(effort: Effort) -> list[Row]:
    seconds, rounds = effort.of((0.5, 1), (SECONDS, 2), (SECONDS, 5))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours = stack.enter_context(running_gateway(folder, [SpiderInfo(project="default", name="seo")]))
        port, log = free_port(), stack.enter_context((folder / "bare.log").open("wb"))
        ceiling = ("-m", "uvicorn", "bench.submission:bare", "--factory", *_UVICORN, "--port", str(port))
        beside = stack.enter_context(served(*ceiling, log=log, port=port))
        numbers = itertools.count()
        rows = []
        for what, is_new, wanted in (("answered by its dedupe key", False, KNOWN), ("that makes a job", True, NEW)):
            measured = alternate(
                lambda is_new=is_new: asyncio.run(_measure(*ours, numbers if is_new else None, seconds)),
                lambda: asyncio.run(_measure(*beside, None, seconds)),
                rounds,
            )
            rows.append(
                Row(
                    f"`POST /crawl` {what}, per CPU second of one process", "1/s", *measured,
                    "a bare FastAPI handler with the same model", measured[0] / measured[1], f">= {wanted:g}",
                )
            )  # fmt: skip
    return rows


@contextmanager
def running_gateway(folder: Path, spiders: Sequence[SpiderInfo]) -> Iterator[tuple[int, int]]:
    """A gateway with its own stores in `folder`, and a node with these spiders. Yields its port and process id."""
    with ExitStack() as stack:
        stores = {
            "REDIS_URL": str(stack.enter_context(valkey_server(folder / "valkey"))),
            "MONGO_URI": str(stack.enter_context(embedded_mongo(folder / "mongo"))),
            "BROKER_URL": str(stack.enter_context(valkey_server(folder / "broker"))),
            "DISCOVERYBOT_HOME": str(folder / "home"),
            "CRAWL_QUEUE_MAX": "1000000",
            "CRAWL_USER_WAITING_MAX": "1000000",
        }
        with closing(connect(stores["MONGO_URI"]).client) as mongo:
            # published as by a running node
            SpiderStore(mongo.get_default_database()).publish("n1", spiders)
        port, log = free_port(), stack.enter_context((folder / "log").open("wb"))
        yield stack.enter_context(served("-m", "gateway.web", log=log, port=port, GATEWAY_PORT=str(port), **stores))


@contextmanager
def served(*command: str, log: BinaryIO, port: int, **variables: str) -> Iterator[tuple[int, int]]:
    """The server's port and its process id."""
    environment = {**os.environ, **variables}
    process = subprocess.Popen([sys.executable, *command], env=environment, cwd=ROOT, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/openapi.json").close()
                break
            time.sleep(0.1)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


async def _measure(port: int, pid: int, numbers: Iterator[int] | None, seconds: float) -> float:
    process, end = psutil.Process(pid), time.monotonic() + seconds
    before = process.cpu_times()
    answered = await asyncio.gather(*(_ask(port, numbers, end) for _ in range(CLIENTS)))
    after = process.cpu_times()
    return sum(answered) / (after.user + after.system - before.user - before.system)


async def _ask(port: int, numbers: Iterator[int] | None, end: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answered = 0
    while time.monotonic() < end:
        url = f"http://93.184.215.14/{next(numbers) if numbers else ''}"
        body = orjson.dumps({"user_id": "bench", "spider": "seo", "start_urls": [url]})
        head = (
            b"POST /crawl HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        )
        writer.write(head % len(body) + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(answer.decode())
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        answered += 1
    writer.close()
    return answered
