"""The negative control: a beat that advances a schedule past an occurrence before it has made the job."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.schedules.firing import Scheduling, Settled
from gateway.schedules.occurrences import advanced
from gateway.schedules.schedule import Schedule
from gateway.schedules.store import Advance
from gateway.worker.beat import MongoScheduler


class AdvanceFirst(Scheduling):
    """Advances first, as most schedulers do. If the beat dies in between, the occurrence is lost."""

    def _fire(self, schedules: Sequence[Schedule], end: float) -> tuple[Settled, Sequence[Schedule]]:
        jobs, late = self.decide(schedules, end)
        known = {schedule.id: schedule for schedule in schedules}
        self._schedules.advance(
            [
                Advance(known[job.schedule_id], advanced(known[job.schedule_id], job.id, job.slot, job.held))
                for job in jobs
                if job.schedule_id and job.slot
            ]
        )
        self._occurrences.insert(jobs)
        return self._promotion.settle(jobs), late


class LosingScheduler(MongoScheduler):
    def setup_schedule(self) -> None:
        super().setup_schedule()
        self._parts[Scheduling].__class__ = AdvanceFirst
