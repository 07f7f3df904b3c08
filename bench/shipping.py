"""How a tailer ships a log: lines per second of its CPU time, and how soon a line is published."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from bench.cpu import end_tree, tree_seconds
from bench.effort import Effort
from bench.our_platform import ROOT, embedded_mongo, valkey_server, wait_until
from bench.table import Row
from gateway.clock import to_iso, utc_now
from gateway.contract.outbox import LOG, STARTED, STATE, AttemptId
from gateway.logs.store import LogStore
from gateway.stores.mongo import connect
from gateway.stores.redis import job_channel, log_stream

#: Lines of the log, and lines that are written at a time.
LINES, STEP = 200_000, 2000
#: Most bytes that the tailer may be behind before more is written: far less than it would skip in Redis.
BEHIND = 1 << 20
#: Number of single lines that are timed, and seconds between two of them.
ROUNDS, REST = 25, 0.3
#: Target values: lines per second of one core, and seconds from a line's write to its publication.
WANTED, WANTED_SECONDS = 25_000, 0.005


class Log:
    """The log of an attempt on this node, written as its spider would write it."""

    def __init__(self, outbox: Path) -> None:
        self.attempt = AttemptId(uuid.uuid4().hex, 1)
        self._folder = outbox / str(self.attempt)
        (self._folder / STATE).mkdir(parents=True)
        self._mark = (self._folder / STARTED).open("w")
        fcntl.flock(self._mark, fcntl.LOCK_EX)
        json.dump({"pid": os.getpid(), "started_at": to_iso(utc_now())}, self._mark)
        self._mark.flush()
        self._file = (self._folder / LOG).open("ab", 0)
        self._numbers = itertools.count()
        self.size = 0

    def write(self, lines: int) -> None:
        head = f"{to_iso(utc_now())} [scrapy.core.engine] DEBUG: Crawled (200) <GET http://shop.example/page/"
        text = "".join(f"{head}{next(self._numbers)}> (referer: http://shop.example/)\n" for _ in range(lines))
        self.size += self._file.write(text.encode())


def run(effort: Effort) -> list[Row]:
    with ExitStack() as ends:
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        urls = {
            "MONGO_URI": str(ends.enter_context(embedded_mongo(folder / "mongo"))),
            "REDIS_URL": str(ends.enter_context(valkey_server(folder / "redis"))),
        }
        client = ends.enter_context(redis.Redis.from_url(urls["REDIS_URL"]))
        process = ends.enter_context(_tailer(folder / "home", urls))
        outbox = folder / "home" / "node" / "outbox"
        first, long, resting = (Log(outbox) for _ in range(3))
        logs, lines = LogStore(connect(urls["MONGO_URI"])), effort.of(STEP, LINES)
        _ship(client, logs, first, STEP)  # a warm-up, and the wait for the tailer's start
        before = tree_seconds(process.pid)
        _ship(client, logs, long, lines)
        rate = lines / (tree_seconds(process.pid) - before)
        way = statistics.median(_way(client, resting, effort.of(2, ROUNDS)))
    asked = "what was asked for"
    return [
        Row("log lines shipped per CPU second of a tailer", "lines", rate, WANTED, asked, rate / WANTED, ">= 1"),
        Row("a line of a log that rests: from its write to its publication", "s", way, WANTED_SECONDS, asked,
            way / WANTED_SECONDS, "<= 1"),
    ]  # fmt: skip


@contextmanager
def _tailer(home: Path, urls: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, **urls, "DISCOVERYBOT_HOME": str(home), "LOG_LEVEL": "warning"}
    process = subprocess.Popen((sys.executable, "-m", "gateway.tailer"), cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        end_tree(process)


def _ship(client: redis.Redis, logs: LogStore, log: Log, lines: int) -> None:
    """Write the lines as fast as they are shipped. Returns once both stores have all of them."""
    for _ in range(lines // STEP):
        log.write(STEP)
        _wait(lambda: log.size - _published(client, log) < BEHIND)
    _wait(lambda: _published(client, log) == log.size)
    _wait(lambda: logs.end(*log.attempt) == log.size)
    added = client.xinfo_stream(log_stream(*log.attempt))["entries-added"]
    assert added == lines, f"{added} lines of {lines} are in Redis"


def _published(client: redis.Redis, log: Log) -> int:
    newest = client.xrevrange(log_stream(*log.attempt), count=1)
    return int(newest[0][0].partition(b"-")[2]) if newest else 0


def _way(client: redis.Redis, log: Log, rounds: int) -> Iterator[float]:
    """Seconds from the write of each line to the message of its publication."""
    with client.pubsub(ignore_subscribe_messages=True) as messages:
        messages.subscribe(job_channel(log.attempt.job_id))
        # the first line waits until the tailer has seen the attempt
        for is_measured in (False, *[True] * rounds):
            log.write(1)
            began = time.monotonic()
            while not (message := messages.get_message(timeout=60)) or b'"kind":"log"' not in message["data"]:
                pass
            if is_measured:
                yield time.monotonic() - began
            time.sleep(REST)


def _wait(question: Callable[[], bool]) -> None:
    wait_until(question, timeout=120, what="that the log is shipped")
