"""What a slot of a schedule runs, at the moment it is fired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from gateway.domain.job import CrawlSpec
from gateway.domain.schedule import Overlap, Schedule
from gateway.domain.slot import TargetRun, Trigger


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
