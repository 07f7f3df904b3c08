"""Which version of a project is run by crawls that were requested before that version was deployed."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import mongomock
import pytest

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.records import SpiderInfo
from gateway.jobs.admission import Admission, WaitingStore
from gateway.jobs.job import CrawlOrder, Job, Requester
from gateway.jobs.store import JobStore
from gateway.jobs.submission import RequestedCrawl
from gateway.nodes.store import NodeStore
from gateway.projects.catalog import SpiderCatalog, WorkCheck
from gateway.projects.eggs import SpiderStore
from gateway.projects.environment import ProjectEnvironment, ProjectStore, SecretBox
from gateway.projects.versions import VersionStore
from gateway.schedules.edits import ScheduleChanges
from gateway.schedules.orders import AllOrders, CrawlOrders, RunOrder
from gateway.schedules.schedule import Schedule
from gateway.schedules.store import ScheduleStore
from gateway.schedules.submission import ScheduleSubmission, When
from gateway.stores.indexes import ensure_indexes

DAILY = When(interval="@daily")


class Shop(SimpleNamespace):
    database: Any
    catalog: SpiderCatalog
    submission: ScheduleSubmission

    def deploy(self, *versions: str) -> None:
        spiders = [
            SpiderInfo(project="Shop", version=version, latest=version == versions[-1], name="offers")
            for version in versions
        ]
        SpiderStore(self.database).publish("n1", spiders)

    def ask(self, when: When, version: str | None = None) -> Schedule | Job:
        spec = CrawlSpec(project="shop", version=version, spider="offers", start_urls=("https://site.example/",))
        return self.submission.submit(RequestedCrawl(Requester("ada"), CrawlOrder(spec=spec)), when).found

    def occurrence(self, schedule: Schedule | Job) -> RunOrder:
        assert isinstance(schedule, Schedule)
        return AllOrders(CrawlOrders(), self.catalog).orders([schedule])[schedule.id]


@pytest.fixture
def shop() -> Shop:
    database: Any = mongomock.MongoClient(tz_aware=True)["versions"]
    ensure_indexes(database)
    ahead = iter(range(0, 100_000, 10))
    catalog = SpiderCatalog(SpiderStore(database), VersionStore(database), monotonic=lambda: next(ahead))
    environment = ProjectEnvironment(ProjectStore(database), SecretBox(tuple))
    check = WorkCheck(catalog, NodeStore(database), environment, timedelta(seconds=10))
    schedules = ScheduleStore(database)
    changes = cast("ScheduleChanges", None)  # no test needs it
    submission = ScheduleSubmission(
        jobs=JobStore(database),
        schedules=schedules,
        changes=changes,
        check=check,
        admission=Admission(WaitingStore(database)),
    )
    return Shop(database=database, catalog=catalog, submission=submission)


def test_each_run_takes_the_latest_of_its_time(shop: Shop) -> None:
    shop.deploy("9")
    schedule = shop.ask(DAILY)
    shop.deploy("9", "10")
    assert (shop.occurrence(schedule).crawl.spec.project, shop.occurrence(schedule).crawl.spec.version) == (
        "Shop",
        "10",
    )
    assert shop.ask(DAILY).id == schedule.id, "the same request, whatever was deployed"


def test_a_version_that_was_named_is_kept_to(shop: Shop) -> None:
    shop.deploy("9", "10")
    schedule = shop.ask(DAILY, version="9")
    assert shop.occurrence(schedule).crawl.spec.version == "9"
    assert shop.ask(DAILY).id != schedule.id


def test_an_occurrence_is_skipped_when_what_it_runs_is_gone(shop: Shop) -> None:
    shop.deploy("9", "10")
    schedule = shop.ask(DAILY, version="9")
    shop.deploy("10")
    assert "unknown version '9'" in str(shop.occurrence(schedule).skip)


def test_a_single_crawl_for_later_runs_what_was_the_latest_when_it_was_asked_for(shop: Shop) -> None:
    tomorrow = When(schedule_at=utc_now() + timedelta(days=1))
    shop.deploy("9")
    job = shop.ask(tomorrow)
    assert isinstance(job, Job)
    assert job.spec.version == "9"
    shop.deploy("9", "10")
    assert shop.ask(tomorrow).id == job.id
