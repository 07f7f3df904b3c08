"""Puts together what sites and targets need."""

from __future__ import annotations

from typing import NamedTuple

from gateway.services.admission import Admission
from gateway.services.site_check import SiteCheck
from gateway.services.site_schedules import SiteSchedules
from gateway.services.sites import SiteService
from gateway.services.spider_catalog import SpiderCatalog
from gateway.services.targets import TargetService
from gateway.settings import Settings
from gateway.storage.counters import CounterStore
from gateway.storage.sites import SiteStore
from gateway.storage.targets import TargetStore
from gateway.web.schedule_wiring import Schedules
from gateway.web.truth_store import TruthStore


class Searches(NamedTuple):
    sites: SiteService
    targets: TargetService


def wire_sites(
    truth: TruthStore, settings: Settings, catalog: SpiderCatalog, schedules: Schedules, admission: Admission
) -> Searches:
    database, clock = truth.database, truth.clock
    sites, targets, counters = SiteStore(database), TargetStore(database), CounterStore(database)
    check = SiteCheck(catalog, settings.allowed_networks)
    aligned = SiteSchedules(schedules.store, schedules.edits, clock, admission)
    return Searches(
        SiteService(sites=sites, targets=targets, counters=counters, schedules=aligned, check=check, clock=clock),
        TargetService(sites=sites, targets=targets, counters=counters, schedules=aligned, check=check, clock=clock),
    )
