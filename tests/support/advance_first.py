"""The negative control: a beat that puts an occurrence behind its schedule before there is a job for it."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.schedules.firing import Scheduling, Settled
from gateway.schedules.occurrences import advanced
from gateway.schedules.schedule import Schedule
from gateway.schedules.store import Advance
from gateway.worker.beat import MongoScheduler


class AdvanceFirst(Scheduling):
    """As most schedulers do it. A beat that dies in between has lost the occurrence."""

    def _fire(self, schedules: Sequence[Schedule], end: float) -> Settled:
        jobs = self.decide(schedules, end)
        known = {schedule.id: schedule for schedule in schedules}
        self._schedules.advance(
            [
                Advance(known[job.schedule_id], advanced(known[job.schedule_id], job.id, job.slot, job.held))
                for job in jobs
                if job.schedule_id and job.slot
            ]
        )
        self._occurrences.insert(jobs)
        return self._promotion.settle(jobs)


class LosingScheduler(MongoScheduler):
    def setup_schedule(self) -> None:
        super().setup_schedule()
        self._parts[Scheduling].__class__ = AdvanceFirst
