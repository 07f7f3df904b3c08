"""What people do to schedules. Once it is answered, nothing happens by an older revision any more."""

from __future__ import annotations

from typing import Any

from gateway.domain.job import Job
from gateway.domain.schedule import Schedule


class ScheduleEdits:
    """Each raises `ScheduleNotFoundError`."""

    def edit(self, schedule_id: str, changes: dict[str, Any], *, rev: int | None = None) -> Schedule:
        """`changes` by field names of `Schedule`: `name`, `crawl`, `timing`, `overlap`, `catch_up`, `max_runs`,
        `fingerprint`, `live_key`; `None` takes one away. With `rev` only if it is in that revision still.

        Raises `InvalidRequestError`, `LiveTwinError`, `ScheduleChangedError` where `rev` is not its own any more, and
        `ScheduleEndedError` for one that has ended.
        """
        raise NotImplementedError

    def pause(self, schedule_id: str) -> Schedule:
        """Raises `ScheduleEndedError`. One that is paused already stays as it is."""
        raise NotImplementedError

    def resume(self, schedule_id: str) -> Schedule:
        """From the first slot after now. Raises `ScheduleEndedError`, also where no slot is left."""
        raise NotImplementedError

    def end(self, schedule_id: str, message: str) -> Schedule:
        """One that has ended already stays as it is."""
        raise NotImplementedError

    def delete(self, schedule_id: str) -> None:
        """With its ledger; its jobs stay."""
        raise NotImplementedError

    def run_now(self, schedule_id: str) -> Job:
        """A run beside its slots. Raises `ConflictError` where the schedule would skip a slot now."""
        raise NotImplementedError

    def touch(self, *, site: str | None = None, target: str | None = None) -> None:
        """What these schedules run has changed: no slot runs as it was before."""
        raise NotImplementedError
