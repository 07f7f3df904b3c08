"""Puts together what runs of sites need, and what is told of the queue and the schedules."""

from __future__ import annotations

from dataclasses import dataclass

from pymongo.database import Database

from gateway.services.dead_letters import DeadLetters
from gateway.services.queue_status import QueueStatus
from gateway.services.rendering import Rendering
from gateway.services.run_record import RunRecords
from gateway.services.scheduler_status import SchedulerStatus
from gateway.services.scraping import Scraping
from gateway.services.site_orders import SiteOrders
from gateway.services.spider_catalog import SpiderCatalog
from gateway.services.waker import Waker
from gateway.settings import Settings
from gateway.storage.client import Document
from gateway.storage.dead_letters import DeadLetterStore
from gateway.storage.heartbeats import HeartbeatStore
from gateway.storage.job_queries import JobQueries
from gateway.storage.jobs import JobStore
from gateway.storage.ledger import LedgerStore
from gateway.storage.run_statistics import RunStatistics
from gateway.storage.schedules import ScheduleStore
from gateway.storage.sites import SiteStore
from gateway.storage.targets import TargetStore
from gateway.web.submission_wiring import Submissions
from gateway.web.truth_store import TruthStore


@dataclass(frozen=True)
class Runs:
    scraping: Scraping
    records: RunRecords
    dead_letters: DeadLetters
    queue_status: QueueStatus
    scheduler_status: SchedulerStatus


def wire_runs(
    truth: TruthStore,
    settings: Settings,
    waker: Waker,
    submissions: Submissions,
    *,
    jobs: JobStore,
    catalog: SpiderCatalog,
    rendering: Rendering,
) -> Runs:
    database, clock = truth.database, truth.clock
    sites, letters, statistics = SiteStore(database), DeadLetterStore(database, clock), RunStatistics(database)
    heartbeats = HeartbeatStore(database, clock)
    return Runs(
        scraping=Scraping(
            sites=sites, orders=_orders(sites, database, catalog, settings), jobs=jobs, catalog=catalog,
            rendering=rendering, waker=waker, admission=submissions.admission,
            allowed_networks=settings.allowed_networks, clock=clock,
        ),
        records=RunRecords(jobs, sites),
        dead_letters=DeadLetters(jobs=jobs, letters=letters, resubmission=submissions.again),
        queue_status=QueueStatus(
            queries=JobQueries(database),
            statistics=statistics,
            letters=letters,
            heartbeats=heartbeats,
            clock=clock,
        ),
        scheduler_status=SchedulerStatus(
            schedules=ScheduleStore(database, clock),
            ledger=LedgerStore(database),
            statistics=statistics,
            heartbeats=heartbeats,
            clock=clock,
        ),
    )  # fmt: skip


def _orders(sites: SiteStore, database: Database[Document], catalog: SpiderCatalog, settings: Settings) -> SiteOrders:
    targets = TargetStore(database)
    return SiteOrders(sites=sites, targets=targets, catalog=catalog, job_timeout=settings.job_timeout)
