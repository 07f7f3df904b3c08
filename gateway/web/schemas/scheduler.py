"""`/scheduler`: the clock of the platform."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.schedule import LedgerEntry, LedgerKind, ScheduleState
from gateway.services.scheduler_status import SchedulerReport
from gateway.services.scheduling import TickReport
from gateway.web.schemas.types import Timestamp


class TickView(BaseModel):
    """What one tick did."""

    fired: list[str] = Field(description="Jobs of slots that were due.")
    skipped: list[str] = Field(description="Slots whose run before was not over, by the id of a job that is not.")
    missed: list[str] = Field(description="Slots that nobody fired in time, likewise.")
    promoted: list[str] = Field(description="Single crawls whose `schedule_at` has come.")
    due_left: int = Field(description="Schedules that are due still.")
    next_due: Timestamp | None = Field(description="When there will be something to do, as far as is known.")

    @classmethod
    def of(cls, report: TickReport) -> TickView:
        return cls(**report._asdict())


class SchedulerQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    last: int = Field(default=20, ge=0, le=200, description="How many entries of the ledger are shown.")


class BeatView(BaseModel):
    name: str = Field(description="`beat:<host>:<process>`.")
    alive: bool
    last_seen_at: Timestamp


class FireView(BaseModel):
    """What became of one slot."""

    schedule_id: str
    job_id: str = Field(description="Of a slot that was fired; of another the id that its job would have had.")
    kind: LedgerKind
    due: Timestamp
    recorded_at: Timestamp
    late_by_seconds: float
    missed: int = Field(description="Slots for which this one stands, or that were missed with it.")
    reason: str | None

    @classmethod
    def of(cls, entry: LedgerEntry) -> FireView:
        return cls(**entry.model_dump(include=set(cls.model_fields)))


class SchedulerStatusView(BaseModel):
    at: Timestamp
    beats_alive: int
    beats: list[BeatView] = Field(description="All that were heard of lately.")
    due: int = Field(description="Schedules that are due and not fired yet; counted up to 10,000.")
    lag_seconds: float = Field(description="How late the most delayed of them is; 0 where none is due.")
    next_run: Timestamp | None = Field(description="When the next slot of any schedule is due, or was.")
    schedules: dict[ScheduleState, int] = Field(description="How many there are in each state.")
    one_off_jobs: int = Field(description="Single crawls whose `schedule_at` lies ahead.")
    last_fires: list[FireView] = Field(description="The ledger of all schedules, newest first.")

    @classmethod
    def of(cls, report: SchedulerReport) -> SchedulerStatusView:
        late = (report.at - report.next_run).total_seconds() if report.next_run else 0
        return cls(
            at=report.at,
            beats_alive=len(report.alive),
            beats=[
                BeatView(name=beat.name, alive=beat.name in report.alive, last_seen_at=beat.at)
                for beat in report.beats
            ],
            due=report.due,
            lag_seconds=max(0.0, late),
            next_run=report.next_run,
            schedules=report.schedules,
            one_off_jobs=report.one_off_jobs,
            last_fires=[FireView.of(entry) for entry in report.latest],
        )
