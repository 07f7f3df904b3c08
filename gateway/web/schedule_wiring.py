"""Puts together what makes, changes and fires schedules."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.services.job_or_schedule import JobOrSchedule
from gateway.services.latest_version import LatestVersions
from gateway.services.rendering import Rendering
from gateway.services.schedule_changes import ScheduleChanges
from gateway.services.schedule_edits import ScheduleEdits
from gateway.services.schedule_submission import ScheduleSubmission
from gateway.services.scheduling import Scheduling
from gateway.services.settling import Settling
from gateway.services.site_orders import SiteOrders
from gateway.services.slot_orders import AllOrders, CrawlOrders
from gateway.services.spider_catalog import SpiderCatalog
from gateway.services.waker import Waker
from gateway.services.work_check import WorkCheck
from gateway.settings import Settings
from gateway.storage.job_queries import JobQueries
from gateway.storage.jobs import JobStore
from gateway.storage.ledger import LedgerStore
from gateway.storage.schedules import ScheduleStore
from gateway.storage.sites import SiteStore
from gateway.storage.slots import SlotStore
from gateway.storage.targets import TargetStore
from gateway.web.submission_wiring import Submissions
from gateway.web.truth_store import TruthStore


@dataclass(frozen=True)
class Schedules:
    store: ScheduleStore
    ledger: LedgerStore
    submission: ScheduleSubmission
    changes: ScheduleChanges
    edits: ScheduleEdits
    scheduling: Scheduling
    named: JobOrSchedule


def wire_schedules(
    truth: TruthStore,
    settings: Settings,
    waker: Waker,
    submissions: Submissions,
    *,
    jobs: JobStore,
    catalog: SpiderCatalog,
    rendering: Rendering,
) -> Schedules:
    database, clock, admission = truth.database, truth.clock, submissions.admission
    store, slots, ledger = ScheduleStore(database, clock), SlotStore(database, clock), LedgerStore(database)
    targets = TargetStore(database)
    orders = AllOrders(
        LatestVersions(CrawlOrders(), catalog),
        SiteOrders(sites=SiteStore(database), targets=targets, catalog=catalog, job_timeout=settings.job_timeout),
    )
    settling = Settling(
        schedules=store, slots=slots, ledger=ledger, orders=orders, waker=waker, targets=targets, clock=clock
    )
    edits = ScheduleEdits(
        schedules=store, slots=slots, ledger=ledger, jobs=jobs, settling=settling, orders=orders,
        admission=admission, clock=clock,
    )  # fmt: skip
    check = WorkCheck(catalog, rendering, settings.allowed_networks)
    changes = ScheduleChanges(schedules=store, edits=edits, check=check, clock=clock)
    return Schedules(
        store=store,
        ledger=ledger,
        submission=ScheduleSubmission(
            jobs=jobs, schedules=store, changes=changes, check=check, admission=admission, clock=clock
        ),
        changes=changes,
        edits=edits,
        scheduling=Scheduling(
            schedules=store, slots=slots, settling=settling, orders=orders, waker=waker, admission=admission,
            clock=clock,
        ),
        named=JobOrSchedule(jobs, store, JobQueries(database)),
    )  # fmt: skip
