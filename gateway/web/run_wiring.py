"""Puts together what runs of sites need, and what is told of the queue and the schedules."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.services.dead_letters import DeadLetters
from gateway.services.queue_status import QueueStatus
from gateway.services.retry import Resubmission
from gateway.storage.dead_letters import DeadLetterStore
from gateway.storage.heartbeats import HeartbeatStore
from gateway.storage.job_queries import JobQueries
from gateway.storage.jobs import JobStore
from gateway.storage.run_statistics import RunStatistics
from gateway.web.truth_store import TruthStore


@dataclass(frozen=True)
class Runs:
    dead_letters: DeadLetters
    queue_status: QueueStatus


def wire_runs(truth: TruthStore, *, jobs: JobStore, resubmission: Resubmission) -> Runs:
    database, clock = truth.database, truth.clock
    letters = DeadLetterStore(database, clock)
    return Runs(
        dead_letters=DeadLetters(jobs=jobs, letters=letters, resubmission=resubmission),
        queue_status=QueueStatus(
            queries=JobQueries(database),
            statistics=RunStatistics(database),
            letters=letters,
            heartbeats=HeartbeatStore(database, clock),
            clock=clock,
        ),
    )
