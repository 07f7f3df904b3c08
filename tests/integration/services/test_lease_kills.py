"""Workers and beats, killed wherever a hold is taken, waited for or freed: never too many at once, none forgotten."""

from __future__ import annotations

from pathlib import Path

from jobs import make_job
from killed import killed_everywhere
from node_double import NodeDouble
from stores import embedded_mongo

from gateway.clock import utc_now
from gateway.jobs.job import Attempt, JobStatus
from gateway.jobs.store import JobStore
from gateway.nodes.holds import HoldStore, Wish
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import connect

POINTS = (
    *("holds.take", "holds.free", "holds.forget", "jobs.block", "jobs.unblock", "jobs.assign", "jobs.requeue"),
    *("jobs.mark_running", "jobs.retry", "jobs.finish", "jobs.settle", "jobs.use_up"),
)
#: The `exclusive` of the jobs of each user.
JOBS = {"ada": ("site:a", "site:a", "schedule:b", "schedule:b", None), "bob": (None, None, None)}


def test_whoever_is_killed_with_or_before_it_all_run_in_the_end_and_never_too_many(
    tmp_path: Path, redis_url: str, double: NodeDouble
) -> None:
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        ensure_indexes(database)
        jobs, holds = JobStore(database), HoldStore(database)
        made = [make_job(user_id=user, exclusive=key) for user, keys in JOBS.items() for key in keys]
        leaked = made[-1]
        # one that runs, so that another one is blocked by it
        runs = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
        first = make_job(
            user_id="carl", exclusive="site:c", status=JobStatus.RUNNING, attempt=1, attempts={"1": runs}
        )
        made += [first, make_job(user_id="dora", exclusive="site:c")]
        for job in made:
            jobs.insert(job)
        holds.take([Wish(resource, f"{first.id}-1") for resource in first.resources("n1")], "token")
        # of a job that was deleted behind everybody's back, and of one that was to be assigned, and never was
        assert holds.take([Wish("site:a", f"{'0' * 32}-1", 1), Wish("user:bob", f"{leaked.id}-1")], "token")
        story = "from dispatch_story import tell"
        killed_everywhere(tmp_path, POINTS, story, uri, redis_url, double.url, beside=__file__)
        assert {jobs.get(job.id).status for job in made} == {JobStatus.FINISHED}
        assert all(len(jobs.get(job.id).attempts) == 2 for job in made)
        assert [held for held in holds.all() if held.holders] == []
        database.client.close()
