"""What a slot of a schedule runs, at the moment it is fired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import structlog
from pymongo.errors import PyMongoError

from gateway.domain.job import CrawlSpec
from gateway.domain.schedule import Overlap, Schedule
from gateway.domain.slot import TargetRun, Trigger

log = structlog.get_logger()


class SlotOrder(NamedTuple):
    spec: CrawlSpec
    priority: int = 0
    tags: tuple[str, ...] = ()
    webhooks: tuple[str, ...] = ()
    max_retries: int = 3
    #: Of all jobs with the same text here only one runs at a time.
    exclusive: str | None = None
    trigger: Trigger | None = None
    target: TargetRun | None = None
    #: Why this slot must not run.
    skip: str | None = None


#: What the job of a slot holds that does not run.
NOTHING = SlotOrder(CrawlSpec(spider="none", start_urls=()))


class SlotOrders(Protocol):
    def orders(self, schedules: Sequence[Schedule]) -> Mapping[str, SlotOrder]:
        """By the schedules' ids. One that is missing has nothing to run."""


class CrawlOrders:
    """Of schedules that say themselves what they run."""

    def orders(self, schedules: Sequence[Schedule]) -> dict[str, SlotOrder]:
        return {schedule.id: _order(schedule) for schedule in schedules if schedule.crawl}


class AllOrders:
    """Of schedules of every kind: those of sites and targets are `sites`' to know."""

    def __init__(self, crawls: SlotOrders, sites: SlotOrders) -> None:
        self._crawls = crawls
        self._sites = sites

    def orders(self, schedules: Sequence[Schedule]) -> dict[str, SlotOrder]:
        of_sites = [schedule for schedule in schedules if schedule.site]
        others = [schedule for schedule in schedules if not schedule.site]
        return {
            **(self._crawls.orders(others) if others else {}),
            **(self._sites.orders(of_sites) if of_sites else {}),
        }


def orders_of(orders: SlotOrders, schedules: Sequence[Schedule]) -> Mapping[str, SlotOrder]:
    """The same; but one schedule of which no order can be made skips its slot, and keeps no other's from running."""
    try:
        return orders.orders(schedules)
    except PyMongoError:
        raise
    except Exception:  # noqa: BLE001 - whatever it was, it is looked for and logged below
        return {schedule.id: order for schedule in schedules if (order := _order_of(orders, schedule))}


def _order_of(orders: SlotOrders, schedule: Schedule) -> SlotOrder | None:
    try:
        return orders.orders([schedule]).get(schedule.id)
    except PyMongoError:
        raise
    except Exception as error:
        log.exception("schedule_has_no_order", schedule_id=schedule.id)
        return NOTHING._replace(skip=f"what it runs could not be found out ({type(error).__name__})")


def _order(schedule: Schedule) -> SlotOrder:
    crawl = schedule.crawl
    if crawl is None:
        raise ValueError("this schedule is a site's")
    return SlotOrder(
        crawl.spec,
        crawl.priority,
        crawl.tags,
        crawl.webhooks,
        crawl.max_retries,
        exclusive=f"schedule:{schedule.id}" if schedule.overlap is Overlap.QUEUE else None,
    )
