"""Schedules, beats and edits in one process, on a real server. A test can let anything happen between two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from gateway.contract.crawl import CrawlSpec
from gateway.jobs.job import CrawlOrder, Job, new_job_id
from gateway.jobs.store import JobStore
from gateway.schedules.edits import ScheduleEdits
from gateway.schedules.firing import LEFT_OVER_SECONDS, Promotion, Scheduling
from gateway.schedules.next_run import first
from gateway.schedules.occurrences import OccurrenceStore
from gateway.schedules.orders import CrawlOrders
from gateway.schedules.schedule import LedgerEntry, Overlap, Schedule, Timing
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.stores.indexes import ensure_indexes

#: The interval of the schedules. It is long, so that no second occurrence is due unless a test sets the clock.
GAP = timedelta(hours=1)
#: How late the occurrence is when it is fired.
LATE = timedelta(seconds=1)
START = datetime(2027, 3, 1, 8, tzinfo=UTC)


class Died(BaseException):
    """The simulated end of a process. Nothing catches it, as nothing catches a SIGKILL."""


class Steps(CommandListener):
    """Calls functions before or after commands of a client, which are chosen by their number."""

    def __init__(self) -> None:
        self._number = 0
        self._happenings: dict[int, Callable[[], object]] = {}

    def arm(self, number: int, happening: Callable[[], object]) -> None:
        """Call `happening` before step `number`, counted from here: 0 is before the next command, 1 is between its
        answer and the following step, and so on. Further numbers can be armed one after the other.
        """
        self._number = 0
        self._happenings[number] = happening

    def disarm(self) -> None:
        self._happenings.clear()

    @property
    def happened(self) -> bool:
        """Whether all of them have happened."""
        return not self._happenings

    def started(self, _: CommandStartedEvent) -> None:
        self._step()

    def succeeded(self, _: CommandSucceededEvent) -> None:
        self._step()

    def failed(self, _: CommandFailedEvent) -> None:
        self._step()

    def _step(self) -> None:
        happening = self._happenings.pop(self._number, None)
        self._number += 1
        if happening:
            happening()


class Party:
    """A beat or a gateway, with its own connection to MongoDB."""

    def __init__(self, uri: str, clock: Callable[[], datetime], scheduling: type[Scheduling] = Scheduling) -> None:
        self.steps = Steps()
        self._clock = clock
        self.client = MongoClient[dict[str, Any]](uri, tz_aware=True, tzinfo=UTC, event_listeners=[self.steps])
        self.database: Database[dict[str, Any]] = self.client.get_default_database()
        self.schedules, self.occurrences = ScheduleStore(self.database, clock), OccurrenceStore(self.database, clock)
        self.ledger = LedgerStore(self.database)
        orders = CrawlOrders()
        self.promotion = Promotion(
            schedules=self.schedules,
            occurrences=self.occurrences,
            ledger=self.ledger,
            orders=orders,
            waker=self,
            clock=clock,
        )
        self.scheduling = scheduling(
            schedules=self.schedules, occurrences=self.occurrences, promotion=self.promotion, orders=orders,
            waker=self, clock=clock, monotonic=lambda: clock().timestamp(),
        )  # fmt: skip
        self.edits = ScheduleEdits(
            schedules=self.schedules, occurrences=self.occurrences, ledger=self.ledger, jobs=JobStore(self.database,
            clock), promotion=self.promotion, orders=orders, clock=clock,
        )  # fmt: skip

    def wake(self, task: str, *args: Any) -> None:
        """Do nothing: no worker listens."""

    def wake_job(self, job: Job) -> None:
        """Do nothing: no worker listens, and the job's document has all that matters."""

    def jobs(self, schedule_id: str) -> list[dict[str, Any]]:
        return list(self.database["jobs"].find({"schedule_id": schedule_id}))

    def free(self, schedule_id: str) -> dict[str, int]:
        """The content of each job that runs or may be run, by the job's id."""
        return {job["_id"]: job["spec"]["max_pages"] for job in self.jobs(schedule_id) if job.get("held") is None}

    def entries(self, schedule_id: str) -> list[LedgerEntry]:
        return self.ledger.page(schedule_id, 200)[0]

    def wipe(self) -> None:
        for name in ("jobs", "schedules", "schedule_ledger"):
            self.database[name].delete_many({})


class Scene:
    """Three parties with one database, and a clock that only the test moves."""

    def __init__(self, uri: str, scheduling: type[Scheduling] = Scheduling) -> None:
        self.now = START
        self.beat, self.other = (Party(uri, self.clock, scheduling) for _ in range(2))
        self.gateway = Party(uri, self.clock)
        ensure_indexes(self.gateway.database)

    def clock(self) -> datetime:
        return self.now

    def schedule(self, overlap: Overlap = Overlap.ALLOW) -> Schedule:
        """Make the only schedule, with an occurrence that has just become due."""
        for party in (self.beat, self.other, self.gateway):
            party.steps.disarm()
        self.gateway.wipe()
        timing = Timing(interval="every 1h", starts_at=START, jitter=0)
        coming = first("", timing, self.now)
        assert coming is not None
        schedule = Schedule(
            id=new_job_id(), user_id="ada", crawl=order(1), timing=timing, next_at=coming.at, next_run=coming.due,
            overlap=overlap, fingerprint="f", created_at=self.now, updated_at=self.now,
        )  # fmt: skip
        self.gateway.schedules.insert(schedule)
        self.now = coming.due + LATE
        return schedule

    def recover(self) -> None:
        """Do what the surviving beats do in the following seconds."""
        for _ in range(5):
            self.now += timedelta(seconds=LEFT_OVER_SECONDS)
            self.other.scheduling.tick()

    def close(self) -> None:
        for party in (self.beat, self.other, self.gateway):
            party.client.close()


def order(content: int) -> CrawlOrder:
    """An order in which `content` distinguishes revisions."""
    spec = CrawlSpec(spider="seo", start_urls=("http://site.example/",), max_pages=content)
    return CrawlOrder(spec=spec)


@contextmanager
def scene(uri: str, scheduling: type[Scheduling] = Scheduling) -> Iterator[Scene]:
    scene = Scene(uri, scheduling)
    try:
        yield scene
    finally:
        scene.close()
