"""Schedules on a real database, with a clock that a test turns, and as many beats as a test wants."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.contract.crawl import CrawlSpec
from gateway.jobs.admission import Admission, Quotas, WaitingStore
from gateway.jobs.job import CrawlOrder, Job, Trigger, new_job_id, occurrence_id
from gateway.jobs.store import JobStore
from gateway.schedules.edits import ScheduleEdits
from gateway.schedules.firing import Promotion, Scheduling
from gateway.schedules.next_run import first
from gateway.schedules.occurrences import OccurrenceStore
from gateway.schedules.orders import CrawlOrders, RunOrder
from gateway.schedules.schedule import LedgerKind, Schedule, Timing
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.stores.documents import reader

#: Everything begins here.
START = datetime(2027, 6, 1, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Orders:
    """What schedules run, unless the test has them skipped, gone or unreadable."""

    def __init__(self) -> None:
        self.skip: str | None = None
        self.gone = False
        self.bad: str | None = None

    def orders(self, schedules: Sequence[Schedule]) -> dict[str, RunOrder]:
        if self.bad in {schedule.id for schedule in schedules}:
            raise ValueError("a site that cannot be read")
        if self.gone:
            return {}
        found = CrawlOrders().orders(schedules)
        return {schedule_id: order._replace(skip=self.skip) for schedule_id, order in found.items()}


class Clockwork:
    def __init__(self, database: Any) -> None:
        self.database = database
        self.now = START
        #: Seconds that pass whenever the time is read by `seconds`.
        self.slowness = 0.0
        self.woken: list[str] = []
        self.orders = Orders()
        self.schedules = ScheduleStore(database, self.clock)
        self.occurrences = OccurrenceStore(database, self.clock)
        self.ledger = LedgerStore(database)
        self.jobs = JobStore(database, self.clock)
        self.promotion = Promotion(
            schedules=self.schedules, occurrences=self.occurrences, ledger=self.ledger, orders=self.orders,
            waker=self, clock=self.clock,
        )  # fmt: skip
        self.edits = ScheduleEdits(
            schedules=self.schedules, occurrences=self.occurrences, ledger=self.ledger, jobs=self.jobs,
            promotion=self.promotion, orders=self.orders, clock=self.clock,
        )  # fmt: skip
        self.beat = self.new_beat()

    def new_beat(self, quotas: Quotas = Quotas()) -> Scheduling:  # noqa: B008 - immutable
        return Scheduling(
            schedules=self.schedules, occurrences=self.occurrences, promotion=self.promotion, orders=self.orders,
            waker=self, admission=Admission(WaitingStore(self.database), quotas, self.clock), clock=self.clock,
            monotonic=self.seconds,
        )  # fmt: skip

    def clock(self) -> datetime:
        return self.now

    def seconds(self) -> float:
        self.now += timedelta(seconds=self.slowness)
        return self.now.timestamp()

    def wake(self, task: str, *_: Any) -> None:
        raise AssertionError(f"nobody asked for {task}")

    def wake_job(self, job: Job) -> None:
        self.woken.append(job.id)

    def schedule(self, interval: str = "every 1h", **fields: Any) -> Schedule:
        """A new schedule. With `every …` its first occurrence is at `START`."""
        schedule_id = fields.pop("id", None) or new_job_id()
        asked = {name: fields.pop(name) for name in ("starts_at", "ends_at", "timezone") if name in fields}
        timing = Timing.model_validate({"interval": interval, "jitter": 0, "starts_at": START, **asked})
        moment = first(schedule_id, timing, START - timedelta(seconds=1))
        assert moment is not None
        given = {
            "user_id": "ada",
            "crawl": crawl(),
            "timing": timing,
            "next_at": moment.at,
            "next_run": moment.due,
            "fingerprint": schedule_id,
            "live_key": schedule_id,
            "created_at": START,
            "updated_at": START,
        }
        schedule = Schedule.model_validate({"id": schedule_id, **given, **fields})
        self.schedules.insert(schedule)
        return schedule

    def at(self, moment: timedelta) -> None:
        self.now = START + moment

    def runs(self, schedule: Schedule) -> list[Job]:
        """Jobs that are no longer held, in the order of their occurrences."""
        found = self.database["jobs"].find({"schedule_id": schedule.id, "held": None}).sort("slot.at", 1)
        return list(map(reader(Job), found))

    def held(self, schedule: Schedule) -> list[Job]:
        return self.occurrences.held([schedule.id])

    def insert_occurrence(self, schedule: Schedule) -> Job:
        """The occurrence as a beat leaves it that dies after its first step."""
        jobs = self.beat.decide([schedule])[0]
        assert self.occurrences.insert(jobs) == set()
        return jobs[0]

    def finish(self, job: Job) -> None:
        self.database["jobs"].update_one({"_id": job.id}, {"$set": {"status": "finished", "finished_at": self.now}})

    def book(self, schedule: Schedule) -> list[tuple[LedgerKind, datetime, int]]:
        """The ledger's entries of occurrences, oldest first: the kind, the time, and how many more were missed."""
        entries, _ = self.ledger.page(schedule.id, 1000)
        scheduled = [entry for entry in reversed(entries) if entry.trigger is Trigger.SCHEDULED]
        return [(entry.kind, entry.at, entry.missed) for entry in scheduled]

    def by_hand(self, schedule: Schedule) -> list[str]:
        """The runs by hand in the ledger, oldest first."""
        entries, _ = self.ledger.page(schedule.id, 1000)
        return [entry.job_id for entry in reversed(entries) if entry.trigger is Trigger.MANUAL]


def crawl(number: int = 1, **fields: Any) -> CrawlOrder:
    spec = CrawlSpec(spider="seo", start_urls=(f"http://site.example/{number}",))
    return CrawlOrder.model_validate({"spec": spec, **fields})


def occurrence(schedule: Schedule, number: int = 0) -> str:
    """The id of the job of an hourly schedule's occurrence."""
    return occurrence_id(schedule.id, START + number * HOUR)
