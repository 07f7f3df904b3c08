"""Of all jobs with the same `exclusive` one runs at a time; the others are blocked until it has ended.

Why no two ever run, whoever dies or is slow: `docs/decisions/0011-leases.md`.
"""

from __future__ import annotations

from gateway.domain.job import Claim, Job, WaitingReason
from gateway.services.announcer import Announcer
from gateway.storage.job_queue import JobQueue
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.leases import Lease, LeaseStore

#: Leases, and jobs that wait for one, that are looked at in one sweep.
BATCH = 500
_SITE = "site:"


class Exclusion:
    def __init__(self, *, leases: LeaseStore, queue: JobQueue, sweeps: JobSweeps, announcer: Announcer) -> None:
        self._leases = leases
        self._queue = queue
        self._sweeps = sweeps
        self._announcer = announcer
        # how far the sweeps have come
        self._looked_at = self._waited_for = ""

    def enter(self, job: Job, claim: Claim) -> bool:
        """Whether the claimed job may be started as far as others are concerned; if not, it is blocked."""
        if job.exclusive is None or self._leases.take(job.exclusive, job.id, claim.token):
            return True
        reason = WaitingReason.SITE_BUSY if job.exclusive.startswith(_SITE) else WaitingReason.PREVIOUS_RUN
        if blocked := self._queue.block(job.id, claim, reason):
            self._announcer.status(blocked)
            # who freed the lease before that was written has not seen anybody waiting
            self._admit(job.exclusive)
        return False

    def step_back(self, job: Job, claim: Claim) -> None:
        """The job entered but has to wait, and its claim was given back. One that never had an attempt stands in
        nobody's way.
        """
        if job.exclusive is not None and job.attempt == 0:
            self._leases.give_back(Lease(job.exclusive, job.id, claim.token))
            self._admit(job.exclusive)

    def leave(self, job: Job) -> Job | None:
        """The job has ended; the one that may be looked at now."""
        if job.exclusive is None:
            return None
        self._leases.free(job.exclusive, job.id)
        return self._admit(job.exclusive)

    def sweep(self) -> list[Job]:
        """Make up for whoever did not live to do so; the jobs that may be looked at now."""
        leases = self._leases.page(BATCH, self._looked_at)
        self._looked_at = leases[-1].key if len(leases) == BATCH else ""
        needed = self._sweeps.in_need_of_lease([lease.job_id for lease in leases]) if leases else set()
        for lease in leases:
            if lease.job_id not in needed:
                self._leases.give_back(lease)
        keys = self._sweeps.blocked_for(BATCH, self._waited_for)
        if not keys and self._waited_for:
            keys = self._sweeps.blocked_for(BATCH)
        self._waited_for = keys[-1] if keys else ""
        held = self._leases.held(keys) if keys else set()
        admitted = (self._unblock(key) for key in keys if key not in held)
        return [job for job in admitted if job is not None]

    def _admit(self, key: str) -> Job | None:
        """One more that was not needed is blocked again when it is looked at."""
        return self._unblock(key) if self._leases.holder(key) is None else None

    def _unblock(self, key: str) -> Job | None:
        job = self._queue.unblock(key)
        if job is not None:
            self._announcer.status(job)
        return job
