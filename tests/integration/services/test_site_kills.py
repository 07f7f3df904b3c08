"""A gateway that is killed wherever it writes of sites and targets: who asks again gets what was asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from stores import ROOT, embedded_mongo

from gateway.storage.client import connect
from gateway.storage.indexes import ensure_indexes

POINTS = (
    *("counters.next", "sites.insert", "sites.replace", "sites.delete"),
    *("targets.insert", "targets.replace", "targets.scheduled", "targets.delete"),
)
#: Asks for everything in one fork after another until one is not killed; prints how many were.
ASKS = """
import os, sys
sys.path[:0] = sys.argv[2:]
from boards import SEARCH, Boards
from gateway.domain.errors import SiteExistsError
from gateway.storage.client import connect

def ask():
    boards = Boards(connect(sys.argv[1]))
    try:
        boards.sites.create({"name": "board", "search_url": SEARCH, "payload": {"keywords": "go", "location": ""}})
    except SiteExistsError:
        pass
    made = boards.targets.page(9, None, site="board", enabled=None)[0]
    target = made[0].target if made else boards.targets.create({"site": "board", "keywords": "go"}).target
    boards.target_store.scheduled([target.number], boards.clock())
    searched = boards.targets.edit(target.id, {"frequency": "5"})
    site = boards.sites.edit("board", {"interval_minutes": 5})
    assert site.schedule.next_run and searched.schedule.next_run
    boards.sites.delete("board", force=True)

killed = 0
while True:
    if (pid := os.fork()) == 0:
        ask()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if not os.WIFSIGNALED(status):
        break
    killed += 1
print(killed, os.waitstatus_to_exitcode(status))
"""


@pytest.mark.timeout(60)
def test_whoever_is_killed_in_between_what_was_asked_for_is_there_and_goes_again(tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.mkdir()
    for point in POINTS:
        for side in ("before", "after"):
            (plan / f"{point}.{side}").touch()
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        ensure_indexes(database)
        paths = (str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent))
        done = subprocess.run(
            [sys.executable, "-c", ASKS, uri, *paths],
            cwd=ROOT,
            env={**os.environ, "DISCOVERYBOT_CRASH_PLAN": str(plan)},
            capture_output=True,
            text=True,
            timeout=50,
            check=True,
        )
        assert done.stdout.split() == [str(2 * len(POINTS)), "0"], done.stderr
        assert list(plan.iterdir()) == []
        for collection in ("sites", "targets", "schedules"):
            assert database[collection].count_documents({}) == 0, collection
        database.client.close()
