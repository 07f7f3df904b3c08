"""The content of a schedule's occurrences, and their jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

import structlog
from attrs import define
from pymongo.errors import PyMongoError

from gateway.contract.crawl import CrawlSpec
from gateway.errors import InvalidRequestError
from gateway.jobs.dedupe import fingerprint
from gateway.jobs.job import (
    CrawlOrder,
    Decision,
    Job,
    JobStatus,
    Occurrence,
    TargetRun,
    Trigger,
    budget_of,
    occurrence_id,
)
from gateway.projects.catalog import SpiderCatalog
from gateway.schedules.schedule import Overlap, Schedule
from gateway.stores.broker import current_correlation

log = structlog.get_logger()


class RunOrder(NamedTuple):
    """The content of one run of a schedule, a site or a target, for an occurrence or by hand."""

    crawl: CrawlOrder
    #: Only one of the jobs with the same text here runs at a time.
    exclusive: str | None = None
    trigger: Trigger | None = None
    target: TargetRun | None = None
    #: Why this occurrence must not run.
    skip: str | None = None

    def to_job(self, user_id: str, now: datetime, **origin: Any) -> Job:
        identity = fingerprint(user_id, self.crawl.spec)
        return Job.new(user_id, self.crawl, identity, now, **{**self._of_run(), **origin})

    def job_fields(self, user_id: str) -> dict[str, Any]:
        """The fields of a job that come from its order."""
        identity = fingerprint(user_id, self.crawl.spec)
        return {**self.crawl.job_fields(), **self._of_run(), "fingerprint": identity}

    def _of_run(self) -> dict[str, Any]:
        return {"exclusive": self.exclusive, "trigger": self.trigger, "target": self.target}


#: The content of an occurrence's job that does not run.
NOTHING = RunOrder(CrawlOrder(spec=CrawlSpec(spider="none", start_urls=())))


class RunOrders(Protocol):
    def orders(self, schedules: Sequence[Schedule]) -> Mapping[str, RunOrder]:
        """The orders by the schedules' ids. A schedule that is missing has nothing to run."""


class CrawlOrders:
    """The orders of schedules that store their own crawl."""

    def orders(self, schedules: Sequence[Schedule]) -> dict[str, RunOrder]:
        return {one.id: _order(one, one.crawl) for one in schedules if one.crawl}


@define(eq=False, repr=False, slots=False)
class AllOrders:
    """The orders of all schedules; `gateway.sites` supplies those of sites and targets. Each run of a deployed
    project uses the version that is the latest at its time, unless its schedule names one. A job names its version,
    so that all its attempts run the same one, even after another deployment.
    """

    _sites: RunOrders
    _catalog: SpiderCatalog

    def orders(self, schedules: Sequence[Schedule]) -> dict[str, RunOrder]:
        crawls = {name: self._pinned(order) for name, order in CrawlOrders().orders(schedules).items()}
        of_sites = [schedule for schedule in schedules if schedule.site]
        return {**crawls, **(self._sites.orders(of_sites) if of_sites else {})}

    def _pinned(self, order: RunOrder) -> RunOrder:
        try:
            return order._replace(crawl=order.crawl.with_spec(self._catalog.pin(order.crawl.spec)))
        except InvalidRequestError as error:
            # the project, or this version of it, no longer exists
            return order._replace(skip=order.skip or error.message)


def orders_of(orders: RunOrders, schedules: Sequence[Schedule]) -> Mapping[str, RunOrder]:
    """As `orders.orders`, but a schedule whose order cannot be made skips only its own occurrence; those of the other
    schedules run.
    """
    try:
        return orders.orders(schedules)
    except PyMongoError:
        raise
    except Exception:  # noqa: BLE001 - the schedule at fault is found and logged below
        return {schedule.id: order for schedule in schedules if (order := _order_of(orders, schedule))}


def _order_of(orders: RunOrders, schedule: Schedule) -> RunOrder | None:
    try:
        return orders.orders([schedule]).get(schedule.id)
    except PyMongoError:
        raise
    except Exception as error:
        log.exception("schedule_has_no_order", schedule_id=schedule.id)
        return NOTHING._replace(skip=f"what it runs could not be determined ({type(error).__name__})")


def _order(schedule: Schedule, crawl: CrawlOrder) -> RunOrder:
    exclusive = f"schedule:{schedule.id}" if schedule.overlap is Overlap.QUEUE else None
    return RunOrder(crawl, exclusive)


# --- the job of an occurrence: it is made when the occurrence is due, and made again if its schedule changes before
# it runs

NOTHING_TO_RUN = "there is nothing to run: its site or target is gone"


def occurrence_job(
    schedule: Schedule, order: RunOrder | None, occurrence: Occurrence, fate: Decision, now: datetime
) -> Job:
    """A held job: no worker runs it before its schedule is advanced past the occurrence."""
    job_id = occurrence_id(schedule.id, occurrence.at)
    return (order or NOTHING).to_job(
        schedule.user_id,
        now,
        id=job_id,
        schedule_id=schedule.id,
        status=JobStatus.SCHEDULED,
        held=fate,
        noted=False,
        slot=occurrence,
        correlation_id=job_id,
        budget=budget_of(schedule.budget_key),
    )


def job_by_hand(schedule: Schedule, order: RunOrder, now: datetime, budget_key: str | None = None) -> Job:
    """The job of a run that a client asks for now. It is held as if it had an occurrence, so that an earlier change
    of the schedule also applies to it. It belongs to no occurrence, but the ledger contains it. If runs must
    not overlap, there is one such job at a time, even if several clients ask at once. It takes from the budget of
    `budget_key`, which is the caller's.
    """
    at = now if schedule.next_at != now else now - timedelta(milliseconds=1)
    return order.to_job(
        schedule.user_id,
        now,
        schedule_id=schedule.id,
        status=JobStatus.SCHEDULED,
        held=Decision.RUN,
        slot=Occurrence(rev=schedule.rev, at=at, due=at, fired_at=now),
        correlation_id=current_correlation(),
        live_key=f"run:{schedule.id}" if schedule.overlap is Overlap.SKIP else None,
        trigger=order.trigger and Trigger.MANUAL,
        budget=budget_of(budget_key),
    )


def is_by_hand(job: Job) -> bool:
    return job.noted is None


def refreshed(job: Job, occurrence: Occurrence, schedule: Schedule, order: RunOrder | None) -> Job:
    """The job with the content of the schedule's present revision. It is skipped if that has nothing to run."""
    skip = NOTHING_TO_RUN if order is None else order.skip
    new = occurrence.model_copy(update={"rev": schedule.rev})
    if skip and job.held is Decision.RUN:
        new = new.model_copy(update={"reason": skip})
        return job.model_copy(update={"slot": new, "held": Decision.SKIP})
    fresh = order.job_fields(schedule.user_id) if order else {}
    kept = job.budget and job.budget.key_id == schedule.budget_key
    budget = job.budget if kept else budget_of(schedule.budget_key)
    return job.model_copy(update={"slot": new, **fresh, "trigger": job.trigger, "budget": budget})
