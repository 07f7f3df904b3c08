"""How many crawls of one user may run at once. Why it never is one more: `docs/decisions/0012-who-goes-next.md`."""

from __future__ import annotations

from collections.abc import Collection

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import JobNotFoundError, UnreadableError
from gateway.domain.job import Job, JobStatus, WaitingReason
from gateway.domain.node_files import AttemptId
from gateway.storage.job_queue import JobQueue
from gateway.storage.jobs import JobStore
from gateway.storage.lanes import LaneStore
from gateway.storage.user_slots import UserSlots, UserSlotStore

#: Users that are looked at in one sweep.
BATCH = 200


class UserLimit:
    """`most` 0 is no limit: then nothing is read or written."""

    def __init__(  # noqa: PLR0917 - all stores
        self,
        most: int,
        slots: UserSlotStore,
        jobs: JobStore,
        queue: JobQueue,
        lanes: LaneStore,
        clock: Clock = utc_now,
    ) -> None:
        self.most = most
        self._slots = slots
        self._jobs = jobs
        self._queue = queue
        self._lanes = lanes
        self._clock = clock
        # how far the sweeps have come
        self._looked_at = ""

    def take(self, job: Job, attempt: str) -> bool:
        """Whether the claimed job's attempt may run as far as its user's others are concerned."""
        if not self.most or job.claim is None:
            return True
        return self._slots.take(job.user_id, attempt, job.claim.token, self.most)

    def hold(self, job: Job, attempt: str) -> None:
        """For the claimed job, whose attempt may run already."""
        if self.most and job.claim is not None:
            self._slots.hold(job.user_id, attempt, job.claim.token)

    def give_back(self, job: Job, attempt: str) -> None:
        """The job as it was claimed: that claim was given back, and nothing has come of it."""
        if self.most and job.claim is not None:
            self._slots.give_back(UserSlots(job.user_id, [attempt], job.claim.token))

    def free(self, job: Job, attempt: str) -> None:
        """The attempt is over."""
        if self.most:
            self._slots.free(job.user_id, attempt)

    def full(self) -> set[str]:
        """Users that may have no more; also by attempts that run since before there was a limit."""
        if not self.most:
            return set()
        running = {user for user, count in self._lanes.running().items() if count >= self.most}
        return running | self._slots.full(self.most)

    @staticmethod
    def reason(user_id: str, of_nodes: WaitingReason | None, full: Collection[str]) -> WaitingReason | None:
        """Why a job of the user's waits, where `of_nodes` is what it waits for as far as nodes are concerned."""
        is_next = of_nodes in {None, WaitingReason.CAPACITY}
        return WaitingReason.USER_QUOTA if is_next and user_id in full else of_nodes

    def sweep(self) -> None:
        """Free what was taken by workers that did not live to use it."""
        if not self.most:
            return
        found = self._slots.page(BATCH, self._looked_at)
        self._looked_at = found[-1].user_id if len(found) == BATCH else ""
        for slots in found:
            leaked = [name for name in slots.attempts if not self._is_needed(AttemptId.parse(name))]
            if leaked:
                self._slots.give_back(UserSlots(slots.user_id, leaked, slots.token))
            elif not slots.attempts:
                self._slots.forget(slots)

    def _is_needed(self, attempt_id: AttemptId | None) -> bool:
        if attempt_id is None:
            return False
        try:
            job = self._jobs.get(attempt_id.job_id)
        except JobNotFoundError:
            return False
        except UnreadableError:
            return True
        return self._needs(job, attempt_id.attempt)

    def _needs(self, job: Job, attempt: int) -> bool:
        if job.status is JobStatus.RUNNING:
            return job.current is not None and job.current.attempt == attempt
        if job.status is not JobStatus.PENDING:
            return False
        if job.placement is not None and job.placement.attempt == attempt:
            return True
        if job.claim is None or attempt != job.attempt + 1:
            return False
        if job.claim.until <= self._clock():
            # whoever sleeps over it could still place the attempt; once this is written no more
            self._queue.drop_claim(job.id, job.claim)
        return True
