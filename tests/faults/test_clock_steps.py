"""Clocks that are turned by an hour under processes that run: the database's, and those of all who ask it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from crawl_verifier import CrawlVerifier
from fault_table import record
from forms import full_or_short, in_full
from node import TurnedClock
from nodes import own_node
from sites.server import Site
from stack import Stack, running_stack, wait_until
from stores import embedded_mongo

from gateway.clock import utc_now
from gateway.nodes.health import WORKER, HeartbeatStore
from gateway.stores.mongo import connect

#: Debian's package.
LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
pytestmark = [
    in_full("the beats' clocks in test_beats.py, MongoDB's in storage/test_server_clock.py"),
    pytest.mark.stack,
    pytest.mark.timeout(600),
    pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed"),
]
HOUR = 3600
ROUNDS = full_or_short(4, 1)
#: Seconds within which a crawl that was asked for must have begun, whatever clock was turned.
BEGUN_WITHIN = full_or_short(5.0, 20.0)


class Clocks(NamedTuple):
    stack: Stack
    mongo: TurnedClock
    #: Of gateway, worker, beat and tailer.
    rest: TurnedClock


@contextmanager
def mongo_by(clock: TurnedClock, home: Path) -> Iterator[str]:
    own = {
        "LD_PRELOAD": str(LIBRARY), "FAKETIME_TIMESTAMP_FILE": str(clock.file), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
    with ExitStack() as ends:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in own.items():
                patch.setenv(name, value)
            uri = ends.enter_context(embedded_mongo(home))
        yield uri


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clocks]:
    home = tmp_path_factory.mktemp("clocks")
    mongo, rest = TurnedClock(home / "its clock"), TurnedClock(home / "clock")
    # not by libfaketime, under which Python's `sleep` fails; how far a node may be off is another question
    others = rest.environment(but="scrapyd")
    with (
        mongo_by(mongo, home / "mongo") as uri,
        running_stack(home / "home", forked=False, MONGO_URI=uri, **others) as stack,
    ):
        yield Clocks(stack, mongo, rest)


def test_crawls_begin_within_seconds_whatever_clock_is_turned_by_an_hour(clocks: Clocks, site: Site) -> None:
    steps = [
        (clock, seconds) for clock, first in ((clocks.mongo, HOUR), (clocks.rest, -HOUR)) for seconds in (first, 0)
    ] * ROUNDS
    waited = []
    with CrawlVerifier(clocks.stack, site) as verifier:
        for clock, seconds in steps:
            clock.turn(seconds)
            waited.append(verifier.begun())
            # and again once they go by it who decide whether the node is alive
            ahead = timedelta(seconds=seconds if clock is clocks.mongo else 0)
            wait_until(lambda ahead=ahead: goes_by(clocks.stack, ahead), what="a worker that goes by that clock")
            waited.append(verifier.begun())
            wait_until(lambda off=bool(seconds): is_told(clocks.stack, off=off), what="a word in /health")
        verifier.wait()
        record(
            "Clocks turned by an hour, to and fro", f"MongoDB's, then all who ask it; {len(steps)} steps",
            recovered=max(waited), **verifier.verdict(),
        )  # fmt: skip
    assert max(waited) < BEGUN_WITHIN, waited


def is_told(stack: Stack, *, off: bool) -> bool:
    """Whether `/health` says of all who ask MongoDB that they are an hour behind, or if not `off` that nobody is."""
    told = stack.check("clocks")
    if not off:
        return told["status"] == "ok"
    who = ("a worker", "a beat", own_node(stack)["name"], "the gateway")
    return all(f"{one} {HOUR} s behind" in told["message"] for one in who)


def goes_by(stack: Stack, ahead: timedelta) -> bool:
    database = connect(stack.environment()["MONGO_URI"])
    try:
        [worker] = HeartbeatStore(database).all(WORKER)
    finally:
        database.client.close()
    return abs(worker.at - utc_now() - ahead) < timedelta(minutes=1)
