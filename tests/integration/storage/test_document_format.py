"""Stores that a newer version has written, and the processes that are started on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import warm
from killed import killed_everywhere
from pymongo.database import Database
from pymongo.errors import PyMongoError
from stores import embedded_mongo, free_port

from gateway.errors import NewerStoresError
from gateway.process import NEWER_STORES
from gateway.settings import Settings
from gateway.stores.document_format import Format, enter, stored_format
from gateway.stores.mongo import connect
from gateway.worker.app import WorkerParts

Mongo = Database[dict[str, Any]]
#: A release that understands what the next one writes, that one, and the one after it.
TODAYS, NEXT, LATER = Format(1, 1), Format(2, 1), Format(2, 2)
CELERY = ("celery.__main__", "--quiet", "-A", "celery_app")
PROCESSES: dict[str, tuple[str, ...]] = {
    "gateway": ("gateway.web.__main__",),
    "tailer": ("gateway.tailer.__main__",),
    "worker": (*CELERY, "worker"),
    "beat": (*CELERY, "beat"),
}
STORY = """
from pymongo import MongoClient
from gateway.stores.document_format import Format, enter, stored_format

def tell(uri):
    database = MongoClient(uri).get_default_database()
    enter(database, Format(2, 2))
    assert stored_format(database) == 2
"""


@pytest.fixture(scope="module")
def newer_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of stores that a newer version has written."""
    with embedded_mongo(tmp_path_factory.mktemp("newer")) as uri:
        database = connect(str(uri))
        enter(database, LATER)
        database.client.close()
        yield str(uri)


def test_stores_that_name_no_format_are_understood_and_left_as_they_are(database: Mongo) -> None:
    enter(database)
    assert stored_format(database) == 1
    assert database["counters"].count_documents({}) == 0


def test_a_version_starts_beside_the_next_one_and_is_refused_by_what_it_does_not_understand(served: Mongo) -> None:
    for version in (TODAYS, NEXT, TODAYS):
        enter(served, version)
    enter(served, LATER)
    enter(served, NEXT)
    with pytest.raises(
        NewerStoresError, match=rf"{served.name} at 127\.0\.0\.1:\d+.*format 2.*understands 1"
    ) as told:
        enter(served, TODAYS)
    assert "docs/how-to/upgrade.md" in told.value.message
    assert stored_format(served) == 2


def test_starts_that_overlap_leave_the_highest_number(served: Mongo) -> None:
    def start(number: int) -> None:
        try:
            enter(served, Format(number, number))
        except (NewerStoresError, PyMongoError):
            return  # one that came too late; or its number was noted at the same moment as another

    with ThreadPoolExecutor(8) as starts:
        list(starts.map(start, [3, 9, 5, 7, 2, 8, 4, 6]))
    enter(served, Format(9, 9))
    assert stored_format(served) == 9


def test_one_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with embedded_mongo(tmp_path / "mongo") as uri:
        killed_everywhere(tmp_path, ("document_format.raise",), STORY, str(uri), beside=__file__)


@pytest.mark.parametrize("process", PROCESSES)
def test_no_process_starts_on_stores_of_a_newer_version(process: str, newer_uri: str, tmp_path: Path) -> None:
    """Each ends with one line, after what Celery says by itself, and before it has written anything."""
    ports = {"GATEWAY_PORT": str(free_port()), "BROKER_URL": f"redis://127.0.0.1:{free_port()}/0"}
    own = {"MONGO_URI": newer_uri, "DISCOVERYBOT_HOME": str(tmp_path), **ports}
    module, *arguments = PROCESSES[process]
    done = warm.run(module, *arguments, env={**os.environ, **own})
    assert done.returncode == NEWER_STORES, done.stderr
    *before, line = (done.stdout + done.stderr).splitlines()
    assert line.startswith(f"{process}: MONGO_URI: a newer version has written to discoverybot at 127.0.0.1:")
    assert not before or process in {"worker", "beat"}
    assert "Traceback" not in done.stderr
    database = connect(newer_uri)
    assert database.list_collection_names() == ["counters"]
    database.client.close()


def test_a_worker_that_could_not_ask_at_its_start_does_nothing_either(newer_uri: str) -> None:
    with pytest.raises(NewerStoresError):
        _ = WorkerParts(Settings(mongo_uri=newer_uri)).database
