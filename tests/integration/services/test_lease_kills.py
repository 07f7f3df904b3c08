"""Workers and beats, killed wherever a lease or a user's slot is taken, waited for or freed: never too many at once,
nobody forgotten.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import make_job
from killed import killed_everywhere
from node_double import NodeDouble
from stores import embedded_mongo

from gateway.domain.job import JobStatus
from gateway.storage.client import connect
from gateway.storage.indexes import ensure_indexes
from gateway.storage.jobs import JobStore
from gateway.storage.leases import LeaseStore
from gateway.storage.user_slots import UserSlotStore

POINTS = (
    *("leases.take", "leases.free", "leases.give_back", "jobs.block", "jobs.unblock"),
    *("user_slots.take", "user_slots.hold", "user_slots.free", "user_slots.give_back", "user_slots.forget"),
    *("jobs.claim", "jobs.drop_claim", "jobs.adopt", "nodes.take_slot", "jobs.place", "jobs.mark_running"),
    *("jobs.retry", "jobs.finish", "jobs.settle"),
)
#: The `exclusive` of the jobs of each user.
JOBS = {"ada": ("site:a", "site:a", "schedule:b", "schedule:b", None), "bob": (None, None, None)}


@pytest.mark.timeout(120)
def test_whoever_is_killed_with_or_before_it_all_run_in_the_end_and_never_too_many(
    tmp_path: Path, redis_url: str, double: NodeDouble
) -> None:
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        ensure_indexes(database)
        jobs, leases = JobStore(database), LeaseStore(database)
        made = [make_job(user_id=user, exclusive=key) for user, keys in JOBS.items() for key in keys]
        for job in made:
            jobs.insert(job)
        # as jobs were before there were lanes
        database["jobs"].update_many({"user_id": "bob"}, {"$unset": {"lane": "", "rank": ""}})
        # of a job that was deleted behind everybody's back
        assert leases.take("site:a", "0" * 32, "token")
        story = "from dispatch_story import tell"
        killed_everywhere(tmp_path, POINTS, story, uri, redis_url, double.url, beside=__file__)
        assert {jobs.get(job.id).status for job in made} == {JobStatus.FINISHED}
        assert set(double.posted) == {f"{job.id}-{attempt}" for job in made for attempt in (1, 2)}
        assert leases.page(9) == []
        assert UserSlotStore(database).page(9) == []
        database.client.close()
