"""Puts a worker's or beat's services together, each when it is first asked for."""

from __future__ import annotations

from datetime import timedelta

from celery import Celery
from pymongo.database import Database
from redis import Redis

from gateway.domain.node_list import NodeList
from gateway.redis.client import connect as connect_redis
from gateway.redis.dedupe import DedupeRelease
from gateway.services.admission import Admission, Quotas
from gateway.services.announcer import Announcer
from gateway.services.completion import Completion
from gateway.services.deletion import Deletion
from gateway.services.dispatch import Dispatch
from gateway.services.egg_delivery import EggDelivery
from gateway.services.egg_watch import EggWatch
from gateway.services.fair_queue import FairQueue
from gateway.services.latest_version import LatestVersions
from gateway.services.node_health import NodeProbe
from gateway.services.reconciliation import Reconciliation
from gateway.services.retention import Keep, Retention
from gateway.services.schedule_edits import ScheduleEdits
from gateway.services.scheduling import Scheduling
from gateway.services.scrapyd import ScrapydClient
from gateway.services.settling import Settling
from gateway.services.site_check import SiteCheck
from gateway.services.site_orders import SiteOrders
from gateway.services.site_schedules import SiteSchedules
from gateway.services.site_upkeep import SiteUpkeep
from gateway.services.sites import SiteService
from gateway.services.slot_orders import AllOrders, CrawlOrders
from gateway.services.spider_catalog import SpiderCatalog
from gateway.services.sweeping import Sweeper
from gateway.services.targets import TargetService
from gateway.services.waker import CeleryWaker
from gateway.services.webhook_caller import WebhookCaller
from gateway.services.webhooks import Webhooks
from gateway.settings import Settings
from gateway.storage.audit import AuditStore
from gateway.storage.client import Document, ServerClock, connect
from gateway.storage.counters import CounterStore
from gateway.storage.expiry import ExpiryStore
from gateway.storage.heartbeats import HeartbeatStore
from gateway.storage.holds import HoldStore
from gateway.storage.indexes import ensure_indexes
from gateway.storage.items import ItemStore
from gateway.storage.job_queue import JobQueue
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.jobs import IdempotencyKeys, JobStore
from gateway.storage.ledger import LedgerStore
from gateway.storage.logs import LogStore
from gateway.storage.nodes import NodeStore
from gateway.storage.schedules import ScheduleStore
from gateway.storage.sites import SiteStore
from gateway.storage.slots import SlotStore
from gateway.storage.spiders import SpiderStore
from gateway.storage.static_entries import StaticEntryStore
from gateway.storage.targets import TargetStore
from gateway.storage.unreadable import UnreadableStore
from gateway.storage.waiting import WaitingStore
from gateway.worker.built_once import built_once
from gateway.worker.egg_wiring import egg_stores


class Wiring:
    def __init__(self, settings: Settings, app: Celery) -> None:
        self._settings = settings
        self._app = app

    def close(self) -> None:
        """Ends what would go on by itself. Waits for nobody outside."""
        webhooks: Webhooks | None = vars(self).get("webhooks")
        if webhooks is not None:
            webhooks.close()

    @built_once
    def _database(self) -> Database[Document]:
        database = connect(self._settings.mongo_uri)
        ensure_indexes(database)
        return database

    @built_once
    def clock(self) -> ServerClock:
        return ServerClock(self._database)

    @built_once
    def jobs(self) -> JobStore:
        return JobStore(self._database, self.clock)

    @built_once
    def _queue(self) -> JobQueue:
        return JobQueue(self._database, self.clock)

    @built_once
    def _nodes(self) -> NodeStore:
        return NodeStore(self._database, self.clock, NodeList(self._settings.scrapyd_url))

    @built_once
    def _redis(self) -> Redis:
        return connect_redis(self._settings.redis_location)

    @built_once
    def _announcer(self) -> Announcer:
        return Announcer(self._redis)

    @built_once
    def _waker(self) -> CeleryWaker:
        return CeleryWaker(self._app)

    @built_once
    def _holds(self) -> HoldStore:
        return HoldStore(self._database, self.clock)

    @built_once
    def _fair(self) -> FairQueue:
        return FairQueue(self._queue, self._holds, self._settings.crawl_user_running_max, self.clock)

    @built_once
    def completion(self) -> Completion:
        return Completion(
            jobs=self.jobs,
            nodes=self._nodes,
            queue=self._queue,
            holds=self._holds,
            dedupe=DedupeRelease(self._redis),
            announcer=self._announcer,
            waker=self._waker,
            clock=self.clock,
        )

    @built_once
    def _scrapyd(self) -> ScrapydClient:
        settings = self._settings
        return ScrapydClient(settings.scrapyd_username, settings.scrapyd_password.get_secret_value())

    @built_once
    def egg_delivery(self) -> EggDelivery:
        stores = egg_stores(self._database, self._nodes, self.clock)
        return EggDelivery(**stores._asdict(), scrapyd=self._scrapyd, announcer=self._announcer)

    @built_once
    def egg_watch(self) -> EggWatch:
        stores = egg_stores(self._database, self._nodes, self.clock)
        dead_after = timedelta(seconds=self._settings.node_dead_after)
        return EggWatch(**stores._asdict(), waker=self._waker, dead_after=dead_after)

    @built_once
    def dispatch(self) -> Dispatch:
        settings = self._settings
        return Dispatch(
            jobs=self.jobs,
            queue=self._queue,
            holds=self._holds,
            nodes=self._nodes,
            scrapyd=self._scrapyd,
            completion=self.completion,
            fair=self._fair,
            announcer=self._announcer,
            probe=NodeProbe(self._nodes, self._scrapyd, self.clock),
            dead_after=timedelta(seconds=settings.node_dead_after),
            clock=self.clock,
        )

    @built_once
    def webhooks(self) -> Webhooks:
        return Webhooks(jobs=self.jobs, caller=WebhookCaller(self._settings.allowed_networks), clock=self.clock)

    @built_once
    def _reconciliation(self) -> Reconciliation:
        return Reconciliation(
            sweeps=JobSweeps(self._database),
            queue=self._queue,
            holds=self._holds,
            nodes=self._nodes,
            logs=LogStore(self._database),
            completion=self.completion,
            waker=self._waker,
            clock=self.clock,
        )

    @built_once
    def retention(self) -> Retention:
        settings, database = self._settings, self._database
        items, logs, dedupe = ItemStore(database), LogStore(database), DedupeRelease(self._redis)
        return Retention(
            keep=Keep(
                jobs=timedelta(days=settings.job_retention_days),
                items=timedelta(days=settings.item_retention_days),
                logs=timedelta(days=settings.log_retention_days),
                audit=timedelta(days=settings.audit_retention_days),
            ),
            expiry=ExpiryStore(database),
            deletion=Deletion(jobs=self.jobs, items=items, logs=logs, dedupe=dedupe),
            dedupe=dedupe, items=items, logs=logs, nodes=self._nodes, spiders=SpiderStore(database),
            sweeps=JobSweeps(database), heartbeats=self.heartbeats, ledger=LedgerStore(database),
            audit=AuditStore(database), unreadable=UnreadableStore(database), keys=IdempotencyKeys(database),
            clock=self.clock,
        )  # fmt: skip

    @built_once
    def sweeper(self) -> Sweeper:
        return Sweeper(
            jobs=self.jobs,
            queue=self._queue,
            sweeps=JobSweeps(self._database),
            nodes=self._nodes,
            completion=self.completion,
            holds=self._holds,
            fair=self._fair,
            reconciliation=self._reconciliation,
            announcer=self._announcer,
            waker=self._waker,
            dead_after=timedelta(seconds=self._settings.node_dead_after),
            clock=self.clock,
        )

    @built_once
    def _schedules(self) -> ScheduleStore:
        return ScheduleStore(self._database, self.clock)

    @built_once
    def _slots(self) -> SlotStore:
        return SlotStore(self._database, self.clock)

    @built_once
    def _catalog(self) -> SpiderCatalog:
        return SpiderCatalog(SpiderStore(self._database), self._settings.allowed_networks)

    @built_once
    def _orders(self) -> AllOrders:
        sites, targets = SiteStore(self._database), TargetStore(self._database)
        timeout = self._settings.job_timeout
        return AllOrders(
            LatestVersions(CrawlOrders(), self._catalog),
            SiteOrders(sites=sites, targets=targets, catalog=self._catalog, job_timeout=timeout),
        )

    @built_once
    def _settling(self) -> Settling:
        return Settling(
            schedules=self._schedules,
            slots=self._slots,
            ledger=LedgerStore(self._database),
            orders=self._orders,
            waker=self._waker,
            targets=TargetStore(self._database),
            clock=self.clock,
        )

    @built_once
    def scheduling(self) -> Scheduling:
        return Scheduling(
            schedules=self._schedules,
            slots=self._slots,
            settling=self._settling,
            orders=self._orders,
            waker=self._waker,
            admission=self._admission,
            clock=self.clock,
        )

    @built_once
    def _admission(self) -> Admission:
        settings = self._settings
        quotas = Quotas(waiting=settings.crawl_user_waiting_max, begun=settings.crawl_user_scheduled_per_minute)
        return Admission(WaitingStore(self._database), quotas, self.clock)

    @built_once
    def site_upkeep(self) -> SiteUpkeep:
        database, clock = self._database, self.clock
        sites, targets, counters = SiteStore(database), TargetStore(database), CounterStore(database)
        edits = ScheduleEdits(
            schedules=self._schedules, slots=self._slots, ledger=LedgerStore(database), jobs=self.jobs,
            settling=self._settling, orders=self._orders, clock=clock,
        )  # fmt: skip
        aligned = SiteSchedules(self._schedules, edits, clock)
        check = SiteCheck(self._catalog, self._settings.allowed_networks)
        return SiteUpkeep(
            sites=SiteService(
                sites=sites, targets=targets, counters=counters, schedules=aligned, check=check, clock=clock
            ),
            targets=TargetService(
                sites=sites, targets=targets, counters=counters, schedules=aligned, check=check, clock=clock
            ),
            clock=clock,
        )

    @built_once
    def static_entries(self) -> StaticEntryStore:
        return StaticEntryStore(self._database)

    @built_once
    def heartbeats(self) -> HeartbeatStore:
        return HeartbeatStore(self._database, self.clock)
