"""An egg's whole life, with whoever deals with it killed wherever he writes: the next one finishes what he left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from eggs import teller
from jobs import make_job
from node_double import NodeDouble, node_double
from pymongo.database import Database
from stores import ROOT, embedded_mongo

from gateway.domain.clock import utc_now
from gateway.domain.job import CrawlSpec
from gateway.storage.client import Document, connect
from gateway.storage.indexes import ensure_indexes
from gateway.storage.jobs import JobStore
from gateway.storage.nodes import NodeStore

POINTS = (
    *("eggs.write", "eggs.put", "eggs.describe", "eggs.delete", "eggs.discard", "eggs.lose", "eggs.sweep"),
    *("egg_copies.agree", "egg_copies.mark_outdated", "egg_copies.gone", "egg_copies.begin", "egg_copies.brought"),
    *("egg_copies.failed", "egg_copies.forget", "egg_needs.tell"),
)
#: Lives the life in one fork after another, until one is not killed; prints how many were.
LIVES = """
import os
import sys
from egg_life import live
killed = 0
while True:
    if (pid := os.fork()) == 0:
        try:
            live(*sys.argv[1:])
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if not os.WIFSIGNALED(status):
        break
    killed += 1
print(killed, os.waitstatus_to_exitcode(status))
"""


@pytest.fixture
def refusing() -> Iterator[NodeDouble]:
    with node_double() as double:
        double.mode = "refuse"
        yield double


def prepare(database: Database[Document], double: NodeDouble, refusing: NodeDouble) -> None:
    ensure_indexes(database)
    nodes, since = NodeStore(database), utc_now() - timedelta(hours=1)
    for name, node in (("n1", double), ("n2", refusing)):
        nodes.heartbeat(name, url=node.url, max_slots=1, alive=[], present=[], beating_since=since)
    spec = CrawlSpec(project="shop", version="1.0", spider="teller", start_urls=("http://site.example/",))
    JobStore(database).insert(make_job(spec=spec))


@pytest.mark.timeout(120)
def test_whoever_is_killed_in_between_the_egg_comes_and_goes_as_it_should(
    tmp_path: Path, redis_url: str, double: NodeDouble, refusing: NodeDouble
) -> None:
    plan, eggs = tmp_path / "plan", tmp_path / "node/eggs/shop"
    plan.mkdir()
    eggs.mkdir(parents=True)
    for point in POINTS:
        for side in ("before", "after"):
            (plan / f"{point}.{side}").touch()
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(teller(name, "shop"))
    with embedded_mongo(tmp_path / "mongo") as uri:
        database: Any = connect(uri)
        prepare(database, double, refusing)
        here = Path(__file__).parent
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(here), str(ROOT / "tests"))),
            "DISCOVERYBOT_CRASH_PLAN": str(plan),
        }
        command = [sys.executable, "-c", LIVES, uri, redis_url, str(tmp_path)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=True
        )
        assert list(plan.iterdir()) == [], done.stderr
        assert done.stdout.splitlines()[-1].split() == [str(2 * len(POINTS)), "0"], done.stderr
        assert database["egg_chunks"].count_documents({}) == 0
        assert database["egg_copies"].count_documents({}) == 0
        assert [document["content"] for document in database["eggs"].find()] == [None]
        database.client.close()
