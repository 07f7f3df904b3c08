"""A worker that announces, adopts and removes ended jobs, a few at a time, until it is killed."""

from __future__ import annotations

import random
import sys
import time

import gateway.signals.announcing
from gateway.container import Container
from gateway.error_groups.ended_runs import EndedRuns
from gateway.jobs.job import JobStatus
from gateway.jobs.store import JobStore
from gateway.signals.announcing import Announcing
from gateway.stores.mongo import connect

#: How many jobs one look takes.
FEW = 7


def main() -> None:
    parts = Container()
    parts.database, parts.public_url = connect(sys.argv[1]), ""
    gateway.signals.announcing.JOBS = FEW
    while True:
        parts[Announcing].look()
        parts[EndedRuns].adopt(FEW)
        remove_some(parts)
        time.sleep(0.02)


def remove_some(parts: Container) -> None:
    """Remove ended jobs as retention does, while another worker may be announcing them."""
    jobs = parts[JobStore]
    ended = parts.database["jobs"].find({"status": JobStatus.FINISHED}, {"_id": 1}, limit=10 * FEW)
    ids = [one["_id"] for one in ended]
    chosen = jobs.many(random.sample(ids, min(FEW, len(ids))))
    left = parts[EndedRuns].add(chosen).left
    jobs.delete(*(job.id for job in chosen if job.id not in left))
