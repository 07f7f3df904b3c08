"""A crawl node without Scrapyd: the tailer is a real process, and the test plays the launcher and the spider."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import orjson
import redis
import warm
from jobs import make_job
from stores import ROOT
from warm import WarmProcess

from gateway.clock import utc_now
from gateway.contract.outbox import (
    EXIT,
    ITEMS,
    LOG,
    PROGRESS,
    REQUESTS,
    SPEC,
    STARTED,
    AttemptId,
    write_atomically,
    write_exclusively,
)
from gateway.contract.records import ExitReport, NodeSpec, Progress
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.progress import ProgressStore
from gateway.jobs.store import JobStore
from gateway.logs.store import LogStore
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import SpiderStore
from gateway.requests.store import RequestStore
from gateway.stores.mongo import connect
from gateway.stores.redis import log_stream

Value = TypeVar("Value")


def eventually(question: Callable[[], Value | None], *, timeout: float = 60.0) -> Value:
    """The first truthy answer. The longer it has waited, the longer it waits to ask again: most questions go to a
    store, whose answers cost a processor that others share.
    """
    began = time.monotonic()
    while not (answer := question()):
        waited = time.monotonic() - began
        assert waited < timeout, f"not within {timeout} s: {answer!r}"
        time.sleep(min(0.01 + waited / 20, 0.1))
    return answer


class Crawl:
    """An attempt's folder, written as the launcher and the spider do."""

    def __init__(self, folder: Path, attempt_id: AttemptId) -> None:
        self.id = attempt_id
        self.folder = folder
        self._mark: int | None = None
        #: How many items were written.
        self.items = 0

    def start(self) -> None:
        temporary = self.folder / ".started.test"
        self._mark = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(self._mark, fcntl.LOCK_EX)
        temporary.write_bytes(orjson.dumps({"started_at": utc_now().isoformat(), "pid": os.getpid()}))
        os.link(temporary, self.folder / STARTED)
        temporary.unlink()

    def log(self, data: bytes) -> None:
        _append(self.folder / LOG, data)

    def log_line(self, text: str) -> None:
        self.log(f"2027-06-01T09:00:01.250Z [seo] INFO: {text}\n".encode())

    def item(self, data: bytes) -> None:
        _append(self.folder / ITEMS, data)
        self.items += 1

    def request(self, data: bytes) -> None:
        """Write a line of the record of requests."""
        _append(self.folder / REQUESTS, data)

    def progress(self, progress: Progress) -> None:
        write_atomically(self.folder / PROGRESS, progress.model_dump_json().encode())

    def end(self, **facts: Any) -> None:
        report = ExitReport(attempt=self.id.attempt, ended_at=utc_now(), **({"exit_code": 0} | facts))
        write_exclusively(self.folder / EXIT, report.model_dump_json().encode())
        self.die()

    def die(self) -> None:
        if self._mark is not None:
            os.close(self._mark)
            self._mark = None

    @property
    def log_path(self) -> Path:
        return self.folder / LOG

    @property
    def log_file(self) -> bytes:
        return self.log_path.read_bytes()


class Node:
    def __init__(self, home: Path, mongo_uri: str, redis_url: str, **variables: str) -> None:
        self.home = home
        self.node_dir = home / "node"
        self.outbox = self.node_dir / "outbox"
        self.outbox.mkdir(parents=True, exist_ok=True)
        self.redis_url = redis_url
        database = self._database = connect(mongo_uri, timeout=10)
        self.jobs = JobStore(database)
        self.logs = LogStore(database)
        self.items = ItemStore(database)
        self.progress = ProgressStore(database)
        self.requests = RequestStore(database)
        self.nodes = NodeStore(database)
        self.spiders = SpiderStore(database)
        self.name = f"node-{home.parent.name}-{home.name}"
        self.environment = {
            **os.environ, "DISCOVERYBOT_HOME": str(home), "NODE_NAME": self.name, "MONGO_URI": mongo_uri,
            "REDIS_URL": redis_url, "LOG_LEVEL": "info", **variables,
        }  # fmt: skip
        self._tailer: WarmProcess | None = None

    # --- the tailer

    def start_tailer(self) -> None:
        log = self.home / "tailer.log"
        self._tailer = warm.start("gateway.tailer.__main__", env=self.environment, cwd=ROOT, stdout=log)

    def kill_tailer(self, signum: signal.Signals = signal.SIGKILL) -> None:
        """Kill the tailer, and wait until it is gone."""
        if self._tailer is not None:
            self._tailer.send_signal(signum)
            self.wait_for_tailer()

    def wait_for_tailer(self) -> None:
        """Wait until the tailer is gone."""
        assert self._tailer is not None
        self._tailer.wait(60)
        self._tailer = None

    def close(self) -> None:
        self.kill_tailer(signal.SIGTERM)
        self._database.client.close()

    # --- what runs on it

    def crawl(self, *, started: bool = True, not_after: datetime | None = None, recorded: bool = True) -> Crawl:
        """Make a running job and its attempt's folder."""
        job = make_job(status=JobStatus.RUNNING, attempt=1, attempts={"1": _attempt(self.name)})
        if recorded:
            self.jobs.insert(job)
        attempt_id = AttemptId(job.id, 1)
        folder = self.outbox / str(attempt_id)
        folder.mkdir()
        spec = NodeSpec(
            job_id=job.id, attempt=1, project="default", spider="seo", start_urls=["http://site.example/"],
            not_after=not_after or utc_now() - timedelta(minutes=2),
        )  # fmt: skip
        crawl = Crawl(folder, attempt_id)
        if started:
            crawl.start()
        write_atomically(folder / SPEC, spec.model_dump_json().encode())
        return crawl

    # --- what arrived

    def ended(self, crawl: Crawl, *, timeout: float = 60.0) -> Job:
        """The job, once MongoDB has the attempt's exit."""

        def look() -> Job | None:
            job = self.jobs.get(crawl.id.job_id)
            return job if job.attempts["1"].exit else None

        return eventually(look, timeout=timeout)

    def stored_log(self, crawl: Crawl) -> bytes:
        data = b""
        while chunks := self.logs.read(*crawl.id, len(data)):
            for chunk in chunks:
                # the last chunk may have grown since it was read
                assert chunk.start <= len(data) < chunk.end
                data += chunk.data[len(data) - chunk.start :]
        return data

    def stored_items(self, crawl: Crawl) -> list[Item]:
        return self.items.page(*crawl.id, None, 1_000_000)

    def stored_requests(self, crawl: Crawl) -> bytes:
        """The stored lines of the record of requests. Checks that each chunk begins where the one before ends."""
        data = b""
        for chunk in self.requests.chunks(*crawl.id):
            assert chunk.start == len(data)
            data += chunk.data
        return data

    def stream(self, crawl: Crawl) -> list[tuple[int, int, dict[str, Any]]]:
        """Start, end and data of each live entry."""
        with redis.Redis.from_url(self.redis_url) as client:
            entries: Any = client.xrange(log_stream(*crawl.id))
        return [
            (int(fields[b"s"]), int(name.partition(b"-")[2]), orjson.loads(fields[b"d"])) for name, fields in entries
        ]


def _append(path: Path, data: bytes) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(data)


def _attempt(node: str) -> dict[str, Any]:
    return {"attempt": 1, "node": node, "dispatched_at": utc_now()}
