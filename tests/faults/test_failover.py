"""MongoDB's failover, on the wire: at each kind of write, and while crawls run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fault_table import FULL, record
from relay import LOSE
from replica_set import FAULTS, INTERRUPT
from stack import ROOT
from stores import embedded_mongo, valkey_server
from write_kinds import every_kind

pytestmark = pytest.mark.timeout(900)

#: Creations: who asks for one is never told to ask again, if it was carried out.
CREATIONS = ("POST /crawl", "POST /keys", "POST /schedules", "POST /sites", "POST /targets")
STORIES = "tests/integration/services"


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
    paths = (str(ROOT / STORIES), str(ROOT / "tests/support"), str(ROOT / "tests"), str(ROOT))
    done = subprocess.run(
        [
            *(sys.executable, "-c", "import failover_stories as stories; stories.main()"),
            *(stores.mongo, stores.redis, str(folder), str(int(numbered)), fault),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert not told["broken"], "\n".join(told["broken"].values())
    return told


@pytest.mark.parametrize("numbered", [True, False], ids=["repeated by the driver", "repeated by nobody"])
@pytest.mark.parametrize("fault", FAULTS if FULL else (LOSE, INTERRUPT))
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
