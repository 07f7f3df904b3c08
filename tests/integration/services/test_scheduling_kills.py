"""Beats and gateways, killed wherever they write of schedules and slots: what they leave, the next one finishes."""

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
    *("schedules.insert", "schedules.overtake", "schedules.change", "schedules.touch", "schedules.delete"),
    *("schedules.insert_slots", "schedules.advance", "schedules.promote", "schedules.refresh", "schedules.void"),
    *("schedules.uncount", "schedules.remove_slot", "schedules.clear", "schedules.release", "schedules.note"),
    *("schedules.promote_scheduled", "schedule_ledger.record", "schedule_ledger.delete", "static_entries.claim"),
)
#: Everything that is written of schedules, in one fork after another, until one is not killed; prints how many were.
WORKS = """
import os, sys
sys.path[:0] = sys.argv[2:]
from scheduling_story import tell
from gateway.storage.client import connect

killed = 0
while True:
    if (pid := os.fork()) == 0:
        tell(connect(sys.argv[1]))
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if not os.WIFSIGNALED(status):
        break
    killed += 1
print(killed, os.waitstatus_to_exitcode(status))
"""


@pytest.mark.timeout(60)
def test_whoever_is_killed_in_between_each_slot_runs_once_and_the_books_are_right(tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.mkdir()
    for point in POINTS:
        for side in ("before", "after"):
            (plan / f"{point}.{side}").touch()
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        ensure_indexes(database)
        database.client.close()
        paths = (str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent))
        done = subprocess.run(
            [sys.executable, "-c", WORKS, uri, *paths],
            cwd=ROOT,
            env={**os.environ, "DISCOVERYBOT_CRASH_PLAN": str(plan)},
            capture_output=True,
            text=True,
            timeout=50,
            check=True,
        )
        assert sorted(path.name for path in plan.iterdir()) == []
        # before it, what was logged
        assert done.stdout.splitlines()[-1].split() == [str(2 * len(POINTS)), "0"], done.stderr
