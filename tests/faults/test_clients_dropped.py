"""A thousand `EventSource` clients vanish at once: what they held is given back, and others go on without a gap."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import psutil
import pymongo
import pytest
import redis
from breakable import Platform
from fault_table import record
from forms import full_or_short
from integration.event_stream.stage import Play, lines
from stack import Stack, wait_until

from gateway.clock import utc_now
from gateway.stores.redis import job_channel

CLIENTS = full_or_short(1000, 100)
#: Each is followed by as many of them.
JOBS = 20
#: Those who stay, on one of the jobs.
STEADY = 10
#: So often all come and vanish.
ROUNDS = full_or_short(6, 2)
#: Bytes by which the gateway may be larger after the last round than after the first.
GROWTH = 8 << 20
#: Descriptors that come and go by themselves: connections to the stores, and of those who ask how it is.
SPARE = 30
PATIENCE = 90.0
_ID = re.compile(rb"^event: log\r?\nid: (\S+)", re.MULTILINE)


class Follower(asyncio.Protocol):
    """A browser that follows one job's log."""

    def __init__(self, play: Play, port: int, *, keeps: bool = False) -> None:
        # one that keeps nothing comes back, as it were: it is sent as much in the last round as in the first
        latest = "" if keeps else f"Last-Event-ID: {play.event_ids()[-1]}\r\n"
        self._request = f"GET /jobs/{play.id}/logs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{latest}\r\n".encode()
        self._keeps = keeps
        #: Of a steady one, all that it was sent.
        self.heard = b""
        self.follows = asyncio.Event()
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.follows.is_set():
            assert data.startswith(b"HTTP/1.1 200"), data
            self.follows.set()
        if self._keeps:
            self.heard += data

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost = True

    def vanish(self) -> None:
        """Without a word of farewell."""
        self._transport.abort()

    def ids(self) -> list[bytes]:
        """Of the lines. HTTP's own chunks begin where events do, so none is torn by their sizes."""
        return _ID.findall(self.heard.replace(b"\r\n", b"\n"))


class Writer(threading.Thread):
    """Every job goes on logging."""

    def __init__(self, plays: list[Play]) -> None:
        super().__init__(daemon=True)
        self._plays = plays
        self._enough = threading.Event()

    def run(self) -> None:
        number = 4
        while not self._enough.wait(0.3):
            for play in self._plays:
                play.write(lines(number, number + 2))
            number += 3

    def stop(self) -> None:
        self._enough.set()
        self.join()


class Holdings:
    """What the gateway holds for those who follow."""

    def __init__(self, stack: Stack, client: redis.Redis, jobs: list[str]) -> None:
        self._stack, self._redis = stack, client
        self._channels = [job_channel(job_id) for job_id in jobs]
        self._gateway = psutil.Process(stack.ready["pids"]["gateway"])

    def descriptors(self) -> int:
        return self._gateway.num_fds()

    def memory(self) -> int:
        return self._gateway.memory_info().rss

    def subscriptions(self) -> int:
        counts: list[Any] = self._redis.pubsub_numsub(*self._channels)
        return sum(count for _, count in counts)

    def clients(self) -> int:
        text = self._stack.http.get(f"{self._stack.url}/metrics").raise_for_status().text
        found = re.search(r"^discoverybot_stream_clients (\S+)", text, re.MULTILINE)
        assert found is not None
        return int(float(found[1]))


@pytest.fixture
def plays(platform: Platform) -> Iterator[list[Play]]:
    with (
        pymongo.MongoClient[dict[str, Any]](str(platform.mongo), tz_aware=True) as mongo,
        redis.Redis.from_url(str(platform.redis)) as client,
    ):
        # not due, or the platform would run those that have not yet begun here
        later = utc_now() + timedelta(hours=1)
        plays = [Play(mongo.get_default_database(), client, not_before=later) for _ in range(JOBS)]
        for play in plays:
            play.start()
            play.write(lines(1, 3))
        yield plays
        for play in plays:
            play.database["jobs"].delete_one({"_id": play.id})


@pytest.fixture
async def leaving() -> AsyncIterator[list[Follower]]:
    """Those who are gone in the end, come what may."""
    followers: list[Follower] = []
    yield followers
    for follower in followers:
        follower.vanish()


@pytest.mark.stack
@pytest.mark.timeout(420)
async def test_clients_that_vanish_leave_nothing_behind(
    platform: Platform, plays: list[Play], leaving: list[Follower]
) -> None:
    holdings = Holdings(platform.stack, plays[0].redis, [play.id for play in plays])
    writer = Writer(plays)
    before = holdings.descriptors()
    steady = await follow(platform.stack, [plays[0]], STEADY, leaving, keeps=True)
    writer.start()
    sizes, waited = [], []
    for _ in range(ROUNDS):
        crowd = await follow(platform.stack, plays, CLIENTS, leaving)
        # a connection or two of before may have been closed meanwhile
        assert holdings.descriptors() >= CLIENTS
        assert holdings.subscriptions() == JOBS
        vanished = time.monotonic()
        for client in crowd:
            client.vanish()
        await until(lambda: holdings.clients() == STEADY, "the clients' end")
        await until(lambda: holdings.subscriptions() == 1, "the end of all subscriptions but one")
        await until(lambda: holdings.descriptors() <= before + STEADY + SPARE, "the closing of their connections")
        waited.append(time.monotonic() - vanished)
        sizes.append(holdings.memory())
    await asyncio.to_thread(writer.stop)
    await asyncio.to_thread(plays[0].finish)
    written = [event_id.encode() for event_id in plays[0].event_ids()]
    await until(lambda: all(client.ids()[-1:] == written[-1:] for client in steady), "the last line")
    lost = sum(len(set(written) - set(client.ids())) for client in steady)
    doubled = sum(len(client.ids()) - len(set(client.ids())) for client in steady)
    assert max(sizes) - sizes[0] < GROWTH, sizes
    injected = f"{ROUNDS} times {CLIENTS} of {CLIENTS + STEADY}; {len(written)} lines to each of the others"
    record("EventSource clients dropped at once", injected, lost=lost, doubled=doubled, recovered=max(waited))
    assert all(client.ids() == written for client in steady)


async def follow(
    stack: Stack, plays: list[Play], count: int, leaving: list[Follower], *, keeps: bool = False
) -> list[Follower]:
    """So many, of whom each has been answered."""
    loop, port = asyncio.get_running_loop(), int(stack.url.rpartition(":")[2])
    followers = []
    for number in range(count):
        follower = Follower(plays[number % len(plays)], port, keeps=keeps)
        await loop.create_connection(lambda follower=follower: follower, "127.0.0.1", port)  # type: ignore[misc]
        followers.append(follower)
        leaving.append(follower)
    async with asyncio.timeout(PATIENCE):
        for follower in followers:
            await follower.follows.wait()
    return followers


async def until(condition: Any, what: str) -> None:
    await asyncio.to_thread(wait_until, condition, timeout=PATIENCE, what=what)
