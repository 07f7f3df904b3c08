"""The stories of `failover_stories.py` on a replica set whose primary steps down at one in `every` kinds of write.

    python -c "import election_stories as e; e.main()" <mongo> <redis> <folder> <every> <seconds>

Prints what it did, as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pymongo.monitoring
from failover_stories import MOST, STORIES, Story, World
from node_double import node_double
from pymongo.errors import PyMongoError
from replica_set import step_down
from write_kinds import Kind, Watch, kind_of

from gateway.errors import UnavailableError
from gateway.stores.mongo import connect


class Elections(Watch):
    """Lets the primary step down just before a write is sent."""

    def __init__(self, uri: str, every: int, seconds: int) -> None:
        super().__init__()
        self.met: list[Kind] = []
        self.held = 0
        self._uri, self._every, self._seconds = uri, every, seconds
        self._lock = threading.Lock()

    def started(self, event: pymongo.monitoring.CommandStartedEvent) -> None:
        if (kind := kind_of(event)) is None:
            return
        with self._lock:
            if kind in self.met:
                return
            self.met.append(kind)
            if len(self.met) % self._every == 0:
                step_down(self._uri, self._seconds)
                self.held += 1


def tell(story: Story, world: World) -> None:
    prepared = story.prepare(world)
    for _ in range(MOST):
        try:
            story.tell(world)
            break
        except (PyMongoError, UnavailableError):
            continue
    else:
        raise AssertionError("never told to its end")
    story.check(world, prepared)


def main() -> None:
    uri, redis_url, folder, every, seconds = sys.argv[1:]
    elections = Elections(uri, int(every), int(seconds))
    pymongo.monitoring.register(elections)
    broken: dict[str, str] = {}
    for name, story in STORIES.items():
        place = Path(folder) / name
        place.mkdir(parents=True)
        own = urlsplit(uri)._replace(path=f"/failover_{uuid.uuid4().hex[:12]}").geturl()
        with node_double() as double, node_double() as refusing:
            refusing.mode = "refuse"
            database = connect(own)
            try:
                tell(story, World(own, [], database, redis_url, place, double, refusing))
            except Exception:  # noqa: BLE001 - whatever it was, it is told to the test
                broken[name] = traceback.format_exc()
            database.client.drop_database(database.name)
            database.client.close()
    sys.stdout.write(json.dumps({"met": len(elections.met), "elections": elections.held, "broken": broken}))
