"""Puts together what takes orders: new ones, and those of old jobs once more."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.redis.dedupe import Dedupe, DedupeRelease
from gateway.services.admission import Admission, Quotas
from gateway.services.rendering import Rendering
from gateway.services.retry import Resubmission
from gateway.services.spider_catalog import SpiderCatalog
from gateway.services.submission import Submission
from gateway.services.waker import Waker
from gateway.settings import Settings
from gateway.storage.jobs import JobStore
from gateway.storage.schedules import ScheduleStore
from gateway.storage.sites import SiteStore
from gateway.storage.waiting import WaitingStore
from gateway.web.thread_pool import ThreadPool
from gateway.web.truth_store import TruthStore


@dataclass(frozen=True)
class Submissions:
    #: One for all that asks for crawls: what it admits it counts.
    admission: Admission
    new: Submission
    again: Resubmission


def wire_submissions(
    truth: TruthStore,
    settings: Settings,
    waker: Waker,
    *,
    jobs: JobStore,
    dedupe: Dedupe,
    release: DedupeRelease,
    catalog: SpiderCatalog,
    rendering: Rendering,
    threads: ThreadPool,
) -> Submissions:
    database, clock = truth.database, truth.clock
    quotas = Quotas(
        queue=settings.crawl_queue_max,
        waiting=settings.crawl_user_waiting_max,
        schedules=settings.crawl_user_schedules_max,
        begun=settings.crawl_user_scheduled_per_minute,
    )
    admission = Admission(WaitingStore(database), quotas, clock)
    return Submissions(
        admission=admission,
        new=Submission(
            jobs=jobs, schedules=ScheduleStore(database, clock), dedupe=dedupe, catalog=catalog,
            rendering=rendering, waker=waker, admission=admission, executor=threads.executor,
            allowed_networks=settings.allowed_networks, clock=clock,
        ),
        again=Resubmission(
            jobs=jobs, sites=SiteStore(database), dedupe=release, catalog=catalog, rendering=rendering, waker=waker,
            admission=admission, clock=clock,
        ),
    )  # fmt: skip
