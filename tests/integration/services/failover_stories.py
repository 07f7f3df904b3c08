"""Stories that together reach every kind of write; each is told until no write fails any more.

    python -c "import failover_stories as f; f.main()" <mongo> <redis> <folder> <numbered: 0 or 1> <fault>

Once at each kind of write, the store fails as `replica_set.FAULTS` says. Prints what it did, as JSON.
"""

from __future__ import annotations

import json
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import boards
import dataset_story
import dispatch_story
import egg_life
import http_story
import pause_story
import pymongo.common
import pymongo.monitoring
import retention_story
import run_export_story
import scheduling_story
import store_story
from node_double import NodeDouble, node_double
from pymongo.database import Database
from pymongo.errors import PyMongoError
from replica_set import FAULTS, ReplicaSet
from write_kinds import Kind, Watch

from gateway.errors import UnavailableError
from gateway.stores import mongo
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import Document, connect
from gateway.web import container

#: How often a story is begun at most; each kind of write fails once.
MOST = 60
#: Seconds for one operation.
PATIENCE = 30.0


class World(NamedTuple):
    #: Of the database by way of the replica set, whose writes fail.
    uri: str
    #: Requests that were answered with 503, so that the user asked again.
    asked_again: list[str]
    #: The same database, connected directly: its writes do not fail.
    database: Database[Document]
    redis_url: str
    folder: Path
    double: NodeDouble
    refusing: NodeDouble


class Story(NamedTuple):
    tell: Callable[[World], object]
    prepare: Callable[[World], Any] = lambda world: ensure_indexes(world.database)
    #: Called with what `prepare` returned.
    check: Callable[[World, Any], object] = lambda world, prepared: None


def check_sites(world: World, _: Any) -> None:
    for collection in ("sites", "targets", "schedules"):
        assert world.database[collection].count_documents({}) == 0, collection


STORIES: dict[str, Story] = {
    "schedules": Story(lambda world: scheduling_story.tell(world.uri)),
    "datasets": Story(
        lambda world: dataset_story.tell(world.uri),
        lambda world: dataset_story.prepare(world.database),
        lambda world, _: dataset_story.check(world.database),
    ),
    "exports": Story(
        lambda world: run_export_story.tell(world.uri, str(world.folder / "lake")),
        lambda world: run_export_story.prepare(world.database),
        lambda world, _: run_export_story.check(world.database, world.folder / "lake"),
    ),
    "dispatch": Story(
        lambda world: dispatch_story.tell(world.uri, world.redis_url, world.double.url),
        lambda world: dispatch_story.prepare(world.database),
        lambda world, made: dispatch_story.check_each_ran(world.database, made),
    ),
    "pauses": Story(
        lambda world: pause_story.tell(world.uri, world.redis_url, world.double.url),
        lambda world: pause_story.prepare(world.database),
        lambda world, made: pause_story.check(world.database, made),
    ),
    "eggs": Story(
        lambda world: egg_life.live(world.uri, world.redis_url, str(world.folder)),
        lambda world: egg_life.prepare(world.database, world.folder, world.double.url, world.refusing.url),
        lambda world, _: egg_life.check_it_is_gone(world.database),
    ),
    "sites": Story(lambda world: boards.tell(world.uri), check=check_sites),
    "retention": Story(
        lambda world: retention_story.tell(world.uri, world.redis_url, world.folder / "kept"),
        lambda world: retention_story.prepare(world.database, world.folder / "kept"),
        lambda world, _: retention_story.check_it_is_gone(world.database, world.folder / "kept"),
    ),
    "stores": Story(lambda world: store_story.tell(world.uri, world.folder.as_uri())),
    "http": Story(
        lambda world: world.asked_again.extend(http_story.tell(world.uri, world.redis_url, world.folder)),
        lambda world: http_story.prepare(world.database),
        lambda world, _: http_story.check(world.database),
    ),
}


class Teller:
    """Tells stories, and lets each kind of write fail once."""

    def __init__(self, relay: ReplicaSet, watch: Watch, fault: str) -> None:
        self._relay, self._watch, self._fault = relay, watch, fault
        self.failed: list[Kind] = []
        #: Errors that a teller met, each with the kind of write that had failed last.
        self.refused: list[str] = []
        relay.choose = self._choose

    def _choose(self, request_id: int, command: Document) -> str | None:
        kind = self._watch.under_way.pop(request_id, None)
        if kind is None or kind in self.failed:
            return None
        self.failed.append(kind)
        return self._fault

    def tell(self, story: Story, world: World) -> None:
        prepared = story.prepare(world)
        for _ in range(MOST):
            try:
                story.tell(world)
                break
            except (PyMongoError, UnavailableError) as error:
                # a timeout only says that the machine stood still for seconds
                if not isinstance(error, PyMongoError) or not error.timeout:
                    self.refused.append(f"{list(self.failed)[-1] if self.failed else None}: {traceback.format_exc()}")
        else:
            raise AssertionError(f"never told to its end: {self.refused}")
        story.check(world, prepared)


@contextmanager
def world(relay: ReplicaSet, uri: str, redis_url: str, folder: Path, asked_again: list[str]) -> Iterator[World]:
    """A world with a new database."""
    folder.mkdir(parents=True)
    name = uuid.uuid4().hex[:12]
    direct = connect(uri.replace("/discoverybot", f"/{name}"))
    with node_double() as double, node_double() as refusing:
        refusing.mode = "refuse"
        through = relay.url(uri.replace("/discoverybot", f"/{name}"))
        yield World(through, asked_again, direct, redis_url, folder, double, refusing)
    direct.client.close()


def have_patience() -> None:
    """Have the platform wait longer, because a shared machine may stand still for longer than the platform waits."""
    connect.__kwdefaults__["timeout"] = PATIENCE
    container._STORE_SECONDS = PATIENCE
    mongo._SELECTION = PATIENCE


def main() -> None:
    uri, redis_url, folder, numbered, fault, *names = sys.argv[1:]
    assert fault in FAULTS
    # a driver looks at a server that has failed no sooner than half a second after its last look
    pymongo.common.MIN_HEARTBEAT_INTERVAL = 0.01
    have_patience()
    watch = Watch()
    pymongo.monitoring.register(watch)
    with ExitStack() as ends:
        relay = ends.enter_context(ReplicaSet(urlsplit(uri).port or 0, numbers_writes=numbered == "1").running())
        teller = Teller(relay, watch, fault)
        broken, asked_again = {}, list[str]()
        for name in names or STORIES:
            place = ends.enter_context(world(relay, uri, redis_url, Path(folder) / name, asked_again))
            try:
                teller.tell(STORIES[name], place)
            except Exception:  # noqa: BLE001 - whatever it was, it is told to the test
                broken[name] = traceback.format_exc()
        told = {"failed": sorted(map(str, teller.failed)), "refused": teller.refused, "broken": broken}
        told |= {"answered_503": asked_again, "repeated": relay.repeated}
    sys.stdout.write(json.dumps(told))
