"""MongoDB's failover, on the wire: at each kind of write, and while crawls run."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import pymongo
import pytest
import warm
from crawl_verifier import CrawlVerifier
from fault_table import record
from forms import first_in_short, full_or_short, in_full
from relay import LOSE
from replica_set import FAULTS, ReplicaSet, step_down
from sites.server import Site
from stack import ROOT, running_stack
from stores import embedded_mongo, valkey_server
from write_kinds import every_kind

pytestmark = pytest.mark.timeout(900)

#: Creations: who asks for one is never told to ask again, if it was carried out.
CREATIONS = ("POST /crawl", "POST /keys", "POST /schedules", "POST /sites", "POST /targets")
STORIES = "tests/integration/services"


#: A replica set of real servers, as the workflow has one.
REPLICA_SET = os.environ.get("MONGO_REPLICA_SET_URI")
#: Elections, and the seconds that each takes.
ELECTIONS, SECONDS = full_or_short(4, 1), full_or_short(10, 1)
#: Crawls that run when the primary steps down, and that are asked for in each election.
RUNNING, ASKED = 4, full_or_short(25, 6)
#: Kinds of writes from one election to the next, where stories are told.
EVERY = full_or_short(8, 45)


class Stores(NamedTuple):
    mongo: str
    redis: str


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    folder = tmp_path_factory.mktemp("stores")
    with embedded_mongo(folder / "mongo") as mongo, valkey_server(folder / "redis") as redis:
        yield Stores(mongo, redis)


def told(stores: Stores, folder: Path, fault: str, *, numbered: bool) -> dict[str, Any]:
    """What all stories came to, with the fault once at each kind of write (`failover_stories.py`)."""
    arguments = (stores.mongo, stores.redis, str(folder), str(int(numbered)), fault)
    return carried_out("failover_stories", *arguments)


def carried_out(module: str, *arguments: str) -> dict[str, Any]:
    """What its `main` has printed; fails if a story did not come to its end."""
    paths = (str(ROOT / STORIES), str(ROOT / "tests/support"), str(ROOT / "tests"), str(ROOT))
    done = warm.run(module, *arguments, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, patience=800)
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert not told["broken"], "\n".join(told["broken"].values())
    return told


@pytest.mark.parametrize(
    "numbered",
    first_in_short([pytest.param(True, id="repeated by the driver"), pytest.param(False, id="repeated by nobody")]),
)
@pytest.mark.parametrize("fault", first_in_short([LOSE, *(fault for fault in FAULTS if fault != LOSE)]))
def test_at_each_kind_of_write_nothing_is_lost_doubled_or_wrongly_refused(
    stores: Stores, tmp_path: Path, fault: str, *, numbered: bool
) -> None:
    story = told(stores, tmp_path / "stories", fault, numbered=numbered)
    # a kind that is new takes a line in one of the stories
    assert {str(kind) for kind in every_kind()} == set(story["failed"])
    if numbered:
        # whoever asked was told nothing of it
        assert (story["refused"], story["answered_503"]) == ([], [])
    assert not [asked for asked in story["answered_503"] if asked in CREATIONS]
    way = "writes numbered" if numbered else "retryWrites=false"
    record(f"MongoDB's primary: {fault}, {way}", f"once at each of {len(story['failed'])} kinds of write",
           lost=0, doubled=0, recovered=None)  # fmt: skip


@contextmanager
def simulated(folder: Path) -> Iterator[str]:
    with embedded_mongo(folder) as mongo, ReplicaSet.before(mongo).running() as replica_set:
        yield replica_set.url(mongo)


@contextmanager
def real(_: Path) -> Iterator[str]:
    """A database of its own there."""
    name = f"failover_{uuid.uuid4().hex[:12]}"
    url = urlsplit(str(REPLICA_SET))._replace(path=f"/{name}").geturl()
    yield url
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        client.drop_database(name)


@in_full("MongoDB away in test_stores_away.py")
@pytest.mark.stack
@pytest.mark.parametrize("replica_set", [simulated, *([real] if REPLICA_SET else [])])
def test_an_election_loses_and_doubles_no_crawl_and_who_asks_meanwhile_is_told(
    tmp_path: Path, replica_set: Any
) -> None:
    recovered = 0.0
    with ExitStack() as ends:
        url = ends.enter_context(replica_set(tmp_path / "mongo"))
        site = ends.enter_context(Site())
        site.delay = 0.2
        stack = ends.enter_context(running_stack(tmp_path / "home", MONGO_URI=url))
        verifier = ends.enter_context(CrawlVerifier(stack, site, pages=10))
        users = ends.enter_context(ThreadPoolExecutor(1))
        for _ in range(ELECTIONS):
            running = verifier.begin(RUNNING)
            verifier.wait_for_visit(running, after=0)
            asking = users.submit(verifier.begin, ASKED, at_once=ASKED)
            back = step_down(url, SECONDS)
            recovered = max(recovered, verifier.wait_for_visit(asking.result(), after=back))
        assert verifier.client.refused.keys() <= {httpx2.codes.SERVICE_UNAVAILABLE}
        verifier.wait(timeout=240)
        injected = f"{ELECTIONS} of {SECONDS} s, {ELECTIONS * (RUNNING + ASKED)} crawls"
        kind = "a real replica set" if replica_set is real else "MongoDB's primary"
        record(f"Elections of {kind}", injected, recovered=recovered, **verifier.verdict())


@in_full("the same stories with each write's answer lost")
@pytest.mark.parametrize("replica_set", [simulated, *([real] if REPLICA_SET else [])])
def test_all_stories_come_to_their_ends_though_the_primary_steps_down_again_and_again(
    stores: Stores, tmp_path: Path, replica_set: Any
) -> None:
    with replica_set(tmp_path / "mongo") as url:
        story = carried_out("election_stories", url, stores.redis, str(tmp_path / "told"), str(EVERY), "1")
    assert story["elections"] >= len(every_kind()) // EVERY
    assert story["met"] == len(every_kind())
