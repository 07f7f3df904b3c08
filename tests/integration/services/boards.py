"""Everything between a site's record and the job of its occurrence, with a clock that a test can turn."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from pymongo.database import Database

from gateway.clock import utc_now
from gateway.errors import SiteExistsError
from gateway.jobs.job import Job
from gateway.jobs.store import JobStore
from gateway.projects.catalog import SpiderCatalog
from gateway.projects.eggs import SpiderStore
from gateway.projects.versions import VersionStore
from gateway.schedules.edits import ScheduleEdits
from gateway.schedules.firing import Promotion, Scheduling
from gateway.schedules.occurrences import OccurrenceStore
from gateway.schedules.schedule import Schedule
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.sites.crawl import SiteCheck, SiteOrders
from gateway.sites.edits import SiteSchedules, SiteService, SiteUpkeep, TargetService
from gateway.sites.store import CounterStore, SiteStore, TargetStore
from gateway.stores.mongo import connect

SEARCH = "https://jobs.example.com/?q={keywords}&l={location}"


class Boards:
    def __init__(self, database: Database[dict[str, Any]]) -> None:
        self.ahead = timedelta()
        self.schedules, self.jobs = ScheduleStore(database, self.clock), JobStore(database, self.clock)
        occurrences, ledger = OccurrenceStore(database, self.clock), LedgerStore(database)
        self.site_store, self.target_store = SiteStore(database), TargetStore(database)
        catalog = SpiderCatalog(SpiderStore(database), VersionStore(database))
        self.orders = SiteOrders(sites=self.site_store, targets=self.target_store, catalog=catalog, job_timeout=600)
        promotion = Promotion(
            schedules=self.schedules, occurrences=occurrences, ledger=ledger, orders=self.orders, waker=self,
            targets=self.target_store, clock=self.clock,
        )  # fmt: skip
        self.edits = ScheduleEdits(
            schedules=self.schedules, occurrences=occurrences, ledger=ledger, jobs=self.jobs, promotion=promotion,
            orders=self.orders, clock=self.clock,
        )  # fmt: skip
        self.scheduling = Scheduling(
            schedules=self.schedules, occurrences=occurrences, promotion=promotion, orders=self.orders, waker=self,
            clock=self.clock, monotonic=self.monotonic,
        )  # fmt: skip
        aligned = SiteSchedules(self.schedules, self.edits, self.clock)
        counters, check = CounterStore(database), SiteCheck(catalog)
        self.sites = SiteService(
            sites=self.site_store, targets=self.target_store, counters=counters, schedules=aligned, check=check,
            clock=self.clock,
        )  # fmt: skip
        self.targets = TargetService(
            sites=self.site_store, targets=self.target_store, counters=counters, schedules=aligned, check=check,
            clock=self.clock,
        )  # fmt: skip

        self.upkeep = SiteUpkeep(sites=self.sites, targets=self.targets, clock=self.clock, monotonic=self.monotonic)

    def monotonic(self) -> float:
        return self.clock().timestamp()

    def clock(self) -> datetime:
        return utc_now() + self.ahead

    def wake(self, *_: Any) -> None:
        pass

    def wake_job(self, job: Job) -> None:
        pass

    def site(self, **fields: Any) -> Schedule:
        schedule = self.sites.create({"name": "board", "search_url": SEARCH, **fields}).schedule
        assert schedule is not None
        return schedule

    def target(self, **fields: Any) -> tuple[str, Schedule]:
        made = self.targets.create({"site": "board", "keywords": "go", **fields})
        assert made.schedule is not None
        return made.record.id, made.schedule

    def after(self, minutes: float) -> list[Job]:
        """The jobs of the occurrences that are due after so long."""
        self.ahead += timedelta(minutes=minutes)
        return [self.jobs.get(job_id) for job_id in self.scheduling.tick().fired]


def tell(url: str) -> None:
    """Make, change and delete a site and its target. Another process may have done part of it before."""
    boards = Boards(connect(url))
    with suppress(SiteExistsError):
        boards.site(payload={"keywords": "go", "location": ""})
    made = boards.targets.page(9, None, site="board", enabled=None)[0]
    target = made[0].record if made else boards.targets.create({"site": "board", "keywords": "go"}).record
    boards.target_store.scheduled([target.number], boards.clock())
    searched = boards.targets.edit(target.id, {"frequency": "5"})
    site = boards.sites.edit("board", {"interval_minutes": 5})
    assert site.schedule
    assert searched.schedule
    assert site.schedule.next_run
    assert searched.schedule.next_run
    boards.sites.delete("board", force=True)
