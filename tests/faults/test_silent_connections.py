"""Connections that go silent without an end, and answers of MongoDB that are lost, at each kind of write."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import psutil
import pytest
from crawl_verifier import CrawlVerifier
from fault_table import record
from forms import full_or_short, in_full
from nodes import own_node
from relay import LOSE, MongoRelay, Relay
from sites.server import Site
from stack import Stack, running_stack, wait_until
from stores import embedded_mongo, valkey_server

pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(900),
    in_full("each operation in storage/test_deadlines.py, lost answers in test_failover.py"),
]

PROCESSES = ("gateway", "worker", "beat", "tailer")
#: Connections of one process to one store that go silent, one after the other; in short that which was used last.
EACH = full_or_short(8, 1)
#: Seconds within which a crawl that was asked for must have begun, whatever has gone silent.
BEGUN_WITHIN = full_or_short(5.0, 20.0)
#: Asked for while answers are lost, so many seconds from each other.
CRAWLS, PACE = full_or_short(40, 12), 0.5
#: Seconds within which `/health` says who was not answered: its next sign of life does.
NAMED_WITHIN = full_or_short(20.0, 60.0)
#: In `/health`: who was not answered, and how many seconds ago.
_NAMED = re.compile(r" to ([^,]+) \([^,]*, the last (\d+) s ago\)")
#: Of an attempt in a field's name: its number, or its job's id with it.
_NAME = re.compile(r"([0-9a-f]{32}-)?\d+")
_WRITES = frozenset({"insert", "update", "delete", "findAndModify"})


class Ways(NamedTuple):
    """A platform each of whose stores is behind a relay."""

    stack: Stack
    mongo: MongoRelay
    redis: Relay
    broker: Relay

    def connections_of(self, process: str) -> Iterator[tuple[Relay, list[int]]]:
        """By relay, the clients' ends of what the process has open."""
        root = psutil.Process(self.stack.ready["pids"][process])
        own = {
            connection.laddr.port
            for found in (root, *root.children(recursive=True))
            for connection in found.net_connections("tcp")
        }
        for relay in (self.mongo, self.redis, self.broker):
            yield relay, [port for port in relay.ports() if port in own]


@contextmanager
def platform_behind_relays(home: Path) -> Iterator[Ways]:
    with ExitStack() as ends:
        mongo, redis, broker = (
            ends.enter_context(server(home / name))
            for server, name in ((embedded_mongo, "mongo"), (valkey_server, "redis"), (valkey_server, "broker"))
        )
        relays = [ends.enter_context(kind.before(url).running()) for kind, url in (
            (MongoRelay, mongo), (Relay, redis), (Relay, broker),
        )]  # fmt: skip
        addresses = [relay.url(url) for relay, url in zip(relays, (mongo, redis, broker), strict=True)]
        own = dict(zip(("MONGO_URI", "REDIS_URL", "BROKER_URL"), addresses, strict=True))
        stack = ends.enter_context(running_stack(home / "home", **own, CRAWL_STOP_GRACE="3"))
        assert isinstance(relays[0], MongoRelay)
        yield Ways(stack, relays[0], *relays[1:])


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ways]:
    with platform_behind_relays(tmp_path_factory.mktemp("ways")) as ways:
        yield ways


class Pulse(threading.Thread):
    """Watches whether the node is taken for dead at any time."""

    def __init__(self, stack: Stack) -> None:
        super().__init__(daemon=True)
        self._stack = stack
        self._over = threading.Event()
        self.dead = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.wait(0.5):
            answer = self._stack.http.get(f"{self._stack.url}/nodes")
            if answer.status_code == 200:
                self.dead += any(node["state"] == "dead" for node in answer.json()["nodes"])


def test_a_connection_that_goes_silent_delays_a_crawl_by_seconds_and_kills_no_node(ways: Ways, site: Site) -> None:
    silenced, waited = 0, []
    with Pulse(ways.stack) as pulse, CrawlVerifier(ways.stack, site) as verifier:
        for process in PROCESSES:
            began = time.monotonic()
            for relay, port in silences(ways, process):
                relay.forget({port})
                silenced += 1
                waited.append(verifier.begun())
            wait_until_named(ways.stack, {named_as(ways.stack, process)}, began)
        verifier.wait()
        assert silenced >= len(PROCESSES)
        assert pulse.dead == 0
        record(
            "Connections that go silent, of each process", f"{silenced}, one after the other",
            recovered=max(waited), **verifier.verdict(),
        )  # fmt: skip
        assert max(waited) < BEGUN_WITHIN, waited


def silences(ways: Ways, process: str) -> Iterator[tuple[Relay, int]]:
    """Connections that are to go silent, one after the other, as long as they are there."""
    for kind in range(len(ways) - 1):
        _, found = list(ways.connections_of(process))[kind]
        for port in found[-EACH:]:
            relay, ports = list(ways.connections_of(process))[kind]
            if port in ports:
                yield relay, port


def named_as(stack: Stack, process: str) -> str:
    """What `/health` calls it."""
    names = {"gateway": "the gateway", "tailer": str(own_node(stack)["name"])}
    return names.get(process, f"a {process}")


def wait_until_named(stack: Stack, names: set[str], since: float) -> None:
    """Until `/health` says that none of them was answered, at a time after `since` (monotonic)."""

    def named() -> bool:
        told = _NAMED.findall(stack.check("connections")["message"])
        return names <= {who for who, ago in told if int(ago) <= time.monotonic() - since}

    wait_until(named, timeout=NAMED_WITHIN, what=f"{names} in /health")


def kind_of(command: dict[str, Any]) -> str:
    """What a write does, to which collection and fields."""
    name = next(iter(command))
    changes = (
        [command.get("update", {})] if name == "findAndModify" else [one["u"] for one in command.get("updates", [])]
    )
    queries = [one["q"] for one in command.get("deletes", [])]
    fields = {
        f"{operator} {'.'.join('N' if _NAME.fullmatch(part) else part for part in field.split('.'))}"
        for change in changes
        if isinstance(change, dict)
        for operator, values in change.items()
        if isinstance(values, dict)
        for field in values
    }
    return f"{name} {command[name]} {sorted(fields | {field for query in queries for field in query})}"


def test_an_answer_that_is_lost_at_any_kind_of_write_loses_and_doubles_nothing(ways: Ways, site: Site) -> None:
    lost: dict[str, str] = {}

    def fault(command: dict[str, Any]) -> str | None:
        if next(iter(command)) not in _WRITES or (kind := kind_of(command)) in lost:
            return None
        lost[kind] = str(command)
        return LOSE

    with CrawlVerifier(ways.stack, site) as verifier:
        verifier.check_each_once()
        began, ways.mongo.fault = time.monotonic(), fault
        asked = []
        try:
            for _ in range(CRAWLS):
                asked.append(time.monotonic())
                verifier.begin(1)
                time.sleep(PACE)
            names = {named_as(ways.stack, process) for process in PROCESSES if process != "beat"}
            wait_until_named(ways.stack, names, began)
            verifier.wait()
        finally:
            ways.mongo.fault = lambda _: None
        assert len(lost) > 12, sorted(lost)
        assert own_node(ways.stack)["used_slots"] == 0
        # a crawl that a worker had in hand just then waits until another one may take it over
        others = [
            crawl
            for crawl in verifier.crawls
            if not any(verifier.jobs[crawl.number] in told for told in lost.values())
        ]
        waited = [verifier.wait_for_visit([crawl], after=asked[crawl.number]) for crawl in others]
        record(
            "MongoDB's answer lost, once at each kind of write", f"{len(lost)} kinds, {CRAWLS} crawls",
            recovered=max(waited), **verifier.verdict(),
        )  # fmt: skip
        assert max(waited) < BEGUN_WITHIN, waited
