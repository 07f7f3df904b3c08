"""Ends a crawl in time, even if pages are still being fetched and callbacks wait for something."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Self

from scrapy.exceptions import IgnoreRequest

from crawler.scrapy_versions import engine_slot, process_queue
from crawler.setting_names import STOP_GRACE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

#: Shares of the grace after which downloads, and then callbacks and items in pipelines, are given up. The rest of the
#: grace is for closing pipelines and feeds, and for the report.
PATIENCE = 0.5
PATIENCE_WITH_CALLBACKS = 0.75


#: Signals received that ask this process to end.
_signals: list[int] = []


def told_to_stop(signum: int) -> None:
    """Note a signal to end. Signal handlers call this, so it takes no lock."""
    _signals.append(signum)


def was_told_to_stop() -> bool:
    """Whether a signal has asked this process, which runs only one crawl, to end."""
    return bool(_signals)


class StoppedError(IgnoreRequest):
    """The crawl is being stopped and does not wait for this response."""


class Closing:
    """Extension that closes the spider in time. Scrapy's own closing waits for all downloads and callbacks."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._grace = crawler.settings.getfloat(STOP_GRACE)
        self._begun: asyncio.Future[None] | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    @property
    def has_begun(self) -> bool:
        """Whether the crawl is ending by itself, for example at a limit. False if it is interrupted."""
        return self._begun is not None

    def close(self, reason: str) -> None:
        """Close the spider within the grace; only the first reason counts."""
        if self._begun is None and self._crawler.engine:
            self._begun = asyncio.ensure_future(self._crawler.engine.close_spider_async(reason=reason))
            hurry((self._crawler,), self._grace)


def is_closing(crawler: Crawler) -> bool:
    """Whether the spider is being closed, so that no new request needs to be sent."""
    slot = engine_slot(crawler)
    return slot is not None and slot.closing is not None


def hurry(crawlers: Iterable[Crawler], grace: float) -> None:
    """Make a closing that begins now end within `grace` seconds. Call this in the event loop."""
    loop = asyncio.get_running_loop()
    for share, give_up in ((PATIENCE, give_up_downloads), (PATIENCE_WITH_CALLBACKS, give_up_callbacks)):
        loop.call_later(grace * share, _each, crawlers, give_up)


def _each(crawlers: Iterable[Crawler], give_up: Callable[[Crawler], None]) -> None:
    for crawler in tuple(crawlers):  # a copy, because crawlers that end are removed from the set
        give_up(crawler)


def give_up_downloads(crawler: Crawler) -> None:
    """Give up requests that are being downloaded, and those that wait for their turn."""
    downloader = crawler.engine.downloader if crawler.engine else None
    if downloader is None:
        return
    handlers = downloader.handlers._handlers.values()  # noqa: SLF001 - there is no public way to a handler
    extensions = crawler.extensions.middlewares if crawler.extensions else ()
    for component in (*handlers, *extensions, getattr(engine_slot(crawler), "scheduler", None)):
        if hasattr(component, "let_go"):
            component.let_go()
    for slot in list(downloader.slots.values()):
        # each of a site's requests would wait for the delay before it learns that it is not sent
        slot.close()
        slot.delay = 0
        slot.concurrency = max(slot.concurrency, len(slot.queue) + len(slot.transferring))
        process_queue(crawler, slot)


def give_up_callbacks(crawler: Crawler) -> None:
    """Let the engine forget the callbacks and the items in pipelines for which it still waits. Then the crawl ends as
    any other, with the signals and the report of an end.
    """
    slot = engine_slot(crawler)
    if crawler.engine is None or slot is None or slot.closing is None:
        return
    if not slot.closing.called:
        logger.warning("Gave up %d requests whose callbacks do not end", len(slot.inprogress))
        slot.inprogress = _Forgotten()
        slot._maybe_fire_closing()  # noqa: SLF001 - there is no public way to do it
    asyncio.get_running_loop().call_soon(_empty_scraper, crawler.engine.scraper)


def _empty_scraper(scraper: Any) -> None:
    slot = scraper.slot
    if slot is None or slot.closing is None or slot.closing.called:
        return
    slot.queue.clear()
    slot.active, slot.itemproc_size = _Forgotten(), 0
    slot.closing.callback(scraper.crawler.spider)
    scraper._check_if_closing = _nothing  # noqa: SLF001 - a callback that still ends must not close it a second time


def _nothing(*_: Any) -> None:
    """Do nothing."""


class _Forgotten(set[Any]):
    """A set from which elements can be removed even if they are not in it."""

    remove = set.discard
