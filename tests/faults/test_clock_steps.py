"""Clocks that are turned by an hour under processes that run: the database's, and those of all who ask it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from fault_table import full_or_short, record
from sites.server import Site
from stack import Stack, running_stack, wait_until
from stores import ROOT, embedded_mongo
from witness import Witness

from gateway.domain.clock import utc_now
from gateway.storage.client import connect
from gateway.storage.heartbeats import WORKER, HeartbeatStore

#: Debian's package.
LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
pytestmark = [
    pytest.mark.stack,
    pytest.mark.timeout(600),
    pytest.mark.skipif(LIBRARY is None, reason="libfaketime is not installed"),
]
HOUR = 3600
ROUNDS = full_or_short(4, 1)
#: Seconds within which a crawl that was asked for must have begun, whatever clock was turned.
BEGUN_WITHIN = 5.0


class TurnedClock:
    """A wall clock of processes, by a file that says how many seconds it is ahead."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.turn(0)

    def turn(self, seconds: int) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self.file)


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


def turned(clock: TurnedClock, home: Path) -> dict[str, str]:
    """By which Python begins each process but Scrapyd with a clock that can be turned.

    Not by libfaketime, under which its `sleep` fails. How far a node may be off is another question.
    """
    home.mkdir()
    code = "import sys\nif not any('scrapyd' in word for word in sys.orig_argv):\n    import turned_clock\n"
    (home / "sitecustomize.py").write_text(code)
    paths = (str(home), str(ROOT / "tests"), str(ROOT))
    return {"PYTHONPATH": os.pathsep.join(paths), "WRONG_CLOCK": str(clock.file)}


@pytest.fixture(scope="module")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clocks]:
    home = tmp_path_factory.mktemp("clocks")
    mongo, rest = TurnedClock(home / "mongo.clock"), TurnedClock(home / "rest.clock")
    with (
        mongo_by(mongo, home / "mongo") as uri,
        running_stack(home / "home", forked=False, MONGO_URI=uri, **turned(rest, home / "turned")) as stack,
    ):
        yield Clocks(stack, mongo, rest)


def test_crawls_begin_within_seconds_whatever_clock_is_turned_by_an_hour(clocks: Clocks, site: Site) -> None:
    steps = [
        (clock, seconds) for clock, first in ((clocks.mongo, HOUR), (clocks.rest, -HOUR)) for seconds in (first, 0)
    ] * ROUNDS
    waited = []
    with Witness(clocks.stack, site) as witness:
        for clock, seconds in steps:
            clock.turn(seconds)
            waited.append(one_crawl(witness))
            # and again once they go by it who decide whether the node is alive
            ahead = timedelta(seconds=seconds if clock is clocks.mongo else 0)
            wait_until(lambda ahead=ahead: goes_by(clocks.stack, ahead), what="a worker that goes by that clock")
            waited.append(one_crawl(witness))
        witness.wait()
        record(
            "Clocks turned by an hour, to and fro", f"MongoDB's, then all who ask it; {len(steps)} steps",
            recovered=max(waited), **witness.verdict(),
        )  # fmt: skip
    assert max(waited) < BEGUN_WITHIN, waited


def one_crawl(witness: Witness) -> float:
    """Seconds from when a user asks for it until it begins."""
    asked = time.monotonic()
    return witness.wait_for_visit(witness.begin(1), after=asked)


def goes_by(stack: Stack, ahead: timedelta) -> bool:
    database = connect(stack.environment()["MONGO_URI"])
    try:
        [worker] = HeartbeatStore(database).all(WORKER)
    finally:
        database.client.close()
    return abs(worker.at - utc_now() - ahead) < timedelta(minutes=1)
