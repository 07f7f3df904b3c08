"""The streams in a process of their own, to be killed, and a client that comes back and counts."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import warm
from stores import ROOT, free_port
from warm import WarmProcess

_TESTS = ROOT / "tests"
_LOG = b"event: log\nid: "
_END = b"event: end\nid: "


_APP = "integration.event_stream.gateway_app:create_app"


class GatewayProcess:
    def __init__(self, mongo_url: str, redis_url: str, log: Path, *, app: str = _APP, **environment: str) -> None:
        self.port = free_port()
        self._log = log
        self._app = app
        self._environment = {**os.environ, "TEST_MONGO": mongo_url, "TEST_REDIS": redis_url, **environment}
        self._process: WarmProcess | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns at once."""
        factory = ("--factory",) if self._app.endswith(":create_app") else ()
        self._process = warm.start(
            *("uvicorn.main", self._app, "--app-dir", str(_TESTS), *factory),
            *("--port", str(self.port), "--no-access-log", "--timeout-graceful-shutdown", "5"),
            env=self._environment, cwd=ROOT, stdout=self._log,
        )  # fmt: skip

    def wait_ready(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    def stop(self, signum: signal.Signals = signal.SIGTERM) -> float:
        """Seconds until it was gone."""
        if self._process is None:
            return 0
        began = time.monotonic()
        self._process.send_signal(signum)
        self._process.wait(60)
        self._process = None
        return time.monotonic() - began

    def log(self) -> str:
        return self._log.read_text()


@contextmanager
def gateway_process(mongo_url: str, redis_url: str, log: Path) -> Iterator[GatewayProcess]:
    gateway = GatewayProcess(mongo_url, redis_url, log)
    gateway.start()
    try:
        gateway.wait_ready()
        yield gateway
    finally:
        gateway.stop(signal.SIGKILL)


class ReturningClient:
    """Cuts its connection at random moments, and comes back with the last id it has seen."""

    def __init__(self, port: int, job_id: str, chance: random.Random) -> None:
        self.ids: list[bytes] = []
        self.ends = 0
        self.connections = 0
        self._port = port
        self._job_id = job_id
        self._chance = chance
        self._last_id = b""

    async def run(self) -> None:
        """Until it is told that there is nothing more."""
        await asyncio.sleep(self._chance.uniform(0, 1))
        done = False
        while not done:
            try:
                async with asyncio.timeout(self._chance.uniform(0.5, 3)):
                    done = await self._connect()
            except (OSError, EOFError, TimeoutError):
                await asyncio.sleep(0.3)

    async def _connect(self) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)
        self.connections += 1
        try:
            resume = b"Last-Event-ID: %b\r\n" % self._last_id if self._last_id else b""
            writer.write(b"GET /jobs/%b/logs HTTP/1.1\r\nHost: gateway\r\n%b\r\n" % (self._job_id.encode(), resume))
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 204 " in head.partition(b"\r\n")[0]:
                return True
            rest = b""
            while data := await reader.read(1 << 18):
                *blocks, rest = (rest + data).split(b"\n\n")
                self._take(blocks)
        finally:
            writer.close()
        return False

    def _take(self, blocks: list[bytes]) -> None:
        for raw in blocks:
            # HTTP's own chunks begin where events do: their sizes are all that ever stands before a CR LF
            block = raw.rpartition(b"\r\n")[2]
            if block.startswith(_LOG):
                self._last_id = block[len(_LOG) : block.index(b"\n", len(_LOG))]
                self.ids.append(self._last_id)
            elif block.startswith(_END):
                self._last_id = block[len(_END) : block.index(b"\n", len(_END))]
                self.ends += 1
