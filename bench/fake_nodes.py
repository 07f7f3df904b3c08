"""Crawl nodes without crawls: one process that answers as the Scrapyds of many nodes would, and reports for each node
as its tailer would.

An attempt "runs" from its post until an order ends it, or until its lifetime is over. Then its exit is recorded.
Heartbeats contain exactly the running attempts. All writes use the tailer's own code.
"""

from __future__ import annotations

import asyncio
import base64
import heapq
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qs

import httpx2
import uvicorn

from bench.cpu import end_tree
from gateway import logging
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.jobs.completion import Completion
from gateway.nodes.store import NodeStore
from gateway.settings import Settings
from gateway.tailer.__main__ import TailerParts
from gateway.tailer.heartbeat import EVERY

#: Seconds between two checks for attempts that must end.
_LOOK = 0.02
#: An order from the benchmark as JSON, and the answer to it.
Facts = dict[str, Any]


@dataclass
class FakeNode:
    name: str
    port: int
    slots: int = 0
    #: Attempts whose simulated processes live.
    alive: set[str] = field(default_factory=set)
    #: Attempts whose end MongoDB has not acknowledged yet.
    present: set[str] = field(default_factory=set)
    #: The most attempts that were alive at once.
    most: int = 0


class FakeNodes:
    """All times are monotonic: all processes of the machine share that clock."""

    def __init__(self, nodes: list[FakeNode], control: int, settings: Settings) -> None:
        self.nodes = {node.port: node for node in nodes}
        self._control = control
        password = settings.scrapyd_password.get_secret_value()
        self._key = base64.b64encode(f"{settings.scrapyd_username}:{password}".encode())
        parts = TailerParts(settings)
        self._completion, self._clock, self._store = parts[Completion], parts.clock, parts[NodeStore]
        self._since = self._clock()
        self._beats, self._tailers = ThreadPoolExecutor(4), ThreadPoolExecutor(8)
        #: Seconds that a new attempt lives; `None` means until it is ended. Besides, `_ended_each_second` attempts,
        #: chosen at random, end each second.
        self._lifetime: float | None = None
        self._ended_each_second = 0.0
        self._running: dict[str, FakeNode] = {}
        #: Attempts that only a cancel ends.
        self._kept: set[str] = set()
        #: Jobs that have a running attempt.
        self._jobs: set[str] = set()
        self._ends: list[tuple[float, str]] = []
        self._began: dict[str, Any] = {}
        #: When each attempt was first posted, and first asked to stop; and errors that must never happen (`trouble`).
        self.started: dict[str, float] = {}
        self.cancelled: dict[str, float] = {}
        self.recorded = 0
        self.trouble: list[str] = []

    async def __call__(self, scope: Facts, receive: Callable[[], Awaitable[Facts]], send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        status, answer = self._answer(scope, body)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    def _answer(self, scope: Facts, body: bytes) -> tuple[int, Facts]:
        port = scope["server"][1]
        if port == self._control:
            return 200, self._ordered(json.loads(body or b"{}"))
        if dict(scope["headers"]).get(b"authorization") != b"Basic " + self._key:
            return 401, {}
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        doors = {"/schedule.json": self._schedule, "/cancel.json": self._cancel, "/daemonstatus.json": self._status}
        door = doors.get(scope["path"])
        return (404, {}) if door is None else (200, {"status": "ok", **door(self.nodes[port], form)})

    def _schedule(self, node: FakeNode, form: dict[str, str]) -> Facts:
        attempt = form["jobid"]
        if attempt not in self.started:
            self.started[attempt] = time.monotonic()
            self._run(node, attempt)
        elif self._running.get(attempt, node) is not node:
            self.trouble.append(f"{attempt} was posted to two nodes")
        return {"jobid": attempt}

    def _run(self, node: FakeNode, attempt: str) -> None:
        job_id = attempt.partition("-")[0]
        if job_id in self._jobs:
            self.trouble.append(f"{job_id} runs twice")
        self._jobs.add(job_id)
        self._running[attempt] = node
        self._began[attempt] = self._clock()
        node.alive.add(attempt)
        node.present.add(attempt)
        node.most = max(node.most, len(node.alive))
        if self._lifetime is not None:
            heapq.heappush(self._ends, (time.monotonic() + self._lifetime, attempt))
        self._tailers.submit(self._record_start, attempt)

    def _cancel(self, _: FakeNode, form: dict[str, str]) -> Facts:
        attempt = form["job"]
        self.cancelled.setdefault(attempt, time.monotonic())
        was = "running" if attempt in self._running else None
        self._end(attempt, stopped_by="cancel")
        return {"prevstate": was}

    def _status(self, node: FakeNode, _: dict[str, str]) -> Facts:
        return {"running": len(node.alive), "pending": 0, "finished": 0}

    def _ordered(self, order: Facts) -> Facts:
        """Carry out an order about lifetimes, slots and so on. Returns all current figures."""
        if "slots" in order:
            for node in self.nodes.values():
                node.slots = order["slots"]
            # all nodes at once, not one after the other
            list(self._beats.map(self._beat, self.nodes.values()))
        self._lifetime = order.get("lifetime", self._lifetime)
        self._ended_each_second = order.get("ended_each_second", self._ended_each_second)
        kept = random.choice(list(self._running)) if "keep" in order and self._running else None
        self._kept |= {kept} if kept else set()
        facts: Facts = {
            "kept": kept,
            "started": len(self.started),
            "running": len(self._running),
            "recorded": self.recorded,
        }
        if "attempts" in order:
            facts |= {"times": sorted(self.started.values()), "attempts": list(self._running)}
        most = max(node.most for node in self.nodes.values())
        return {**facts, "cancelled": self.cancelled, "trouble": self.trouble, "most": most}

    async def end_attempts(self) -> None:
        owed, looked = 0.0, time.monotonic()
        while True:
            await asyncio.sleep(_LOOK)
            now = time.monotonic()
            owed, looked = owed + (now - looked) * self._ended_each_second, now
            endless = self._running.keys() - self._kept
            over = random.sample(sorted(endless), min(int(owed), len(endless)))
            owed -= int(owed)
            while self._ends and self._ends[0][0] <= now:
                over.append(heapq.heappop(self._ends)[1])
            for attempt in over:
                self._end(attempt)

    def _end(self, attempt: str, stopped_by: str | None = None) -> None:
        if (node := self._running.pop(attempt, None)) is None:
            return
        self._jobs.discard(attempt.partition("-")[0])
        node.alive.discard(attempt)
        self._tailers.submit(self._record_exit, node, attempt, stopped_by)

    def _record_start(self, attempt: str) -> None:
        name = AttemptId.parse(attempt)
        assert name is not None
        self._try(lambda: self._completion.attempt_started(name, self._began[attempt]))

    def _record_exit(self, node: FakeNode, attempt: str, stopped_by: str | None) -> None:
        name = AttemptId.parse(attempt)
        assert name is not None
        now = self._clock()
        report = SpiderReport(
            finish_reason="shutdown" if stopped_by else "finished", progress=Progress(completed_pages=1), ended_at=now
        )
        facts = ExitReport(
            attempt=name.attempt, started_at=self._began.pop(attempt), ended_at=now, exit_code=0,
            stopped_by=stopped_by, report=report,
        )  # fmt: skip
        self._try(lambda: self._completion.record_exit(name, facts, 0))
        node.present.discard(attempt)
        self.recorded += 1

    def _try(self, step: Callable[[], object]) -> None:
        """Repeat `step` until the store accepts it, as a tailer does."""
        while True:
            try:
                step()
            except Exception as error:  # noqa: BLE001 - every error must be seen
                self.trouble.append(f"{type(error).__name__}: {error}"[:300])
                time.sleep(0.5)
            else:
                return

    def beat(self) -> None:
        """Send heartbeats for ever: each node every `EVERY` seconds, one node after the other."""
        began, turn = time.monotonic(), 0
        nodes = list(self.nodes.values())
        while True:
            time.sleep(max(0.0, began + turn * EVERY / len(nodes) - time.monotonic()))
            self._beats.submit(self._try, partial(self._beat, nodes[turn % len(nodes)]))
            turn += 1

    def _beat(self, node: FakeNode) -> None:
        # another thread changes the sets; copying one is a single step
        alive, present = sorted(node.alive.copy()), sorted(node.present.copy())
        url = f"http://127.0.0.1:{node.port}"
        self._store.heartbeat(
            node.name, url=url, max_slots=node.slots, alive=alive, present=present, beating_since=self._since
        )


@contextmanager
def fake_nodes(count: int, environment: dict[str, str]) -> Iterator[Callable[..., Facts]]:
    """Nodes that send heartbeats, without slots at first. Yields a function that gives them orders (see
    `_ordered`).
    """
    control = socket.create_server(("127.0.0.1", 0))
    with control:
        command = [sys.executable, "-m", "bench.fake_nodes", str(count), str(control.fileno())]
        process = subprocess.Popen(command, env=environment, pass_fds=[control.fileno()])
        port = control.getsockname()[1]
    with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:

        def order(**fields: Any) -> Facts:
            facts: Facts = client.post("/", json=fields).raise_for_status().json()
            return facts

        try:
            yield order
        finally:
            end_tree(process)


async def serve(count: int, control: socket.socket) -> None:
    settings = Settings.load()
    logging.configure(settings.log_level)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    nodes = [FakeNode(f"fake-{number:03}", one.getsockname()[1]) for number, one in enumerate(sockets, 1)]
    fakes = FakeNodes(nodes, control.getsockname()[1], settings)
    threading.Thread(target=fakes.beat, daemon=True).start()
    config = uvicorn.Config(fakes, lifespan="off", log_level="error", access_log=False, ws="none")
    async with asyncio.TaskGroup() as tasks:
        ending = tasks.create_task(fakes.end_attempts())
        await uvicorn.Server(config).serve(sockets=[*sockets, control])
        ending.cancel()
    # its threads may be waiting for a store that is gone
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))))
