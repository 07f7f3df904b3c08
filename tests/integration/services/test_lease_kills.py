"""Workers and beats, killed wherever a lease is taken, waited for or freed: never two at once, nobody forgotten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import make_job
from node_double import NodeDouble
from stores import ROOT, embedded_mongo

from gateway.domain.job import JobStatus
from gateway.storage.client import connect
from gateway.storage.indexes import ensure_indexes
from gateway.storage.jobs import JobStore
from gateway.storage.leases import LeaseStore

POINTS = (
    *("leases.take", "leases.free", "leases.give_back", "jobs.block", "jobs.unblock"),
    *("jobs.claim", "nodes.take_slot", "jobs.place", "jobs.mark_running", "jobs.retry", "jobs.finish", "jobs.settle"),
)
KEYS = ("site:a", "schedule:b")
#: What workers and a beat do, in one fork after another, until one is not killed; prints how many were. The first
#: attempt of each job fails. What a dead worker had claimed counts as given back at once.
RUNS = """
import collections, os, sys
from celery_app import app
from gateway.domain.clock import utc_now
from gateway.domain.node_files import AttemptId, ExitReport, Progress, SpiderReport
from gateway.storage.client import connect
from gateway.storage.nodes import NodeStore

long_ago = utc_now().replace(year=2020)

def each_attempt_ends(jobs, wiring):
    found = list(jobs.find({"status": "running"}))
    alive = collections.Counter(job["exclusive"] for job in found)
    assert set(alive.values()) <= {1}, alive
    for job in found:
        now, failed = utc_now(), job["attempt"] == 1
        progress = Progress(completed_pages=1 - failed, errors_count=failed)
        report = SpiderReport(finish_reason="finished", progress=progress, ended_at=now)
        facts = ExitReport(attempt=job["attempt"], exit_code=0, ended_at=now, report=report)
        wiring.completion.record_exit(AttemptId(job["_id"], job["attempt"]), facts, 0)
        wiring.completion.conclude(job["_id"])

def work(url):
    database = connect(os.environ["MONGO_URI"])
    jobs, nodes = database["jobs"], NodeStore(database)
    jobs.update_many({"claim": {"$exists": True}}, {"$set": {"claim.until": long_ago}})
    while jobs.count_documents({"settled": {"$ne": True}}):
        jobs.update_many({"status": "pending"}, {"$set": {"not_before": long_ago}})
        nodes.heartbeat("n1", url=url, max_slots=9, alive=[], present=[], beating_since=long_ago)
        app.wiring.sweeper.sweep()
        app.wiring.dispatch.fill()
        each_attempt_ends(jobs, app.wiring)
    app.wiring.sweeper.sweep()

killed = 0
while True:
    if (pid := os.fork()) == 0:
        try:
            work(sys.argv[1])
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if not os.WIFSIGNALED(status):
        break
    killed += 1
print(killed, os.waitstatus_to_exitcode(status))
"""


@pytest.mark.timeout(60)
def test_whoever_is_killed_with_or_before_a_lease_all_run_in_the_end_and_never_two(
    tmp_path: Path, redis_url: str, double: NodeDouble
) -> None:
    plan = tmp_path / "plan"
    plan.mkdir()
    for point in POINTS:
        for side in ("before", "after"):
            (plan / f"{point}.{side}").touch()
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        ensure_indexes(database)
        jobs, leases = JobStore(database), LeaseStore(database)
        made = [make_job(exclusive=key) for key in KEYS for _ in range(4)]
        for job in made:
            jobs.insert(job)
        # of a job that was deleted behind everybody's back
        assert leases.take(KEYS[0], "0" * 32, "token")
        environment = {
            **os.environ,
            "MONGO_URI": uri,
            "REDIS_URL": redis_url,
            "DISCOVERYBOT_CRASH_PLAN": str(plan),
        }
        command = [sys.executable, "-c", RUNS, double.url]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50, check=True
        )
        assert done.stdout.splitlines()[-1:] == [f"{2 * len(POINTS)} 0"], done.stderr
        assert list(plan.iterdir()) == []
        assert {jobs.get(job.id).status for job in made} == {JobStatus.FINISHED}
        assert leases.page(9) == []
        database.client.close()
