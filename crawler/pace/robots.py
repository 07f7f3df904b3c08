"""robots.txt: fetched once for all requests that wait for it. Besides its prohibitions, its delay and its license are
obeyed.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from http import HTTPStatus
from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.utils.httpobj import urlparse_cached

from crawler.orders import Fetch
from crawler.pace.pacing import Pacing
from crawler.scrapy_versions import HAS_ASYNC_ROBOTS, HAS_CRAWL_DELAY
from crawler.setting_names import FETCH_OPTIONS
from gateway.contract.outbox import UNLICENSED

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.http import Response
    from scrapy.robotstxt import RobotParser
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

_SCRAPYS = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"
_SCRAPYS_ORDER = 100
#: Maximum number of seconds of a `Crawl-delay` that are obeyed. Bing's documentation allows 1 to 30. A longer delay
#: would in effect forbid the crawl, and sites have `Disallow` for that.
MOST_DELAY = 30.0
#: Maximum number of hosts whose delays and licenses are in the crawl's stats:
#: https://rslstandard.org/guide/robots-txt
MOST_HOSTS = 20
CRAWL_DELAY, LICENSE = "discoverybot/crawl_delay/", "discoverybot/license/"
#: Blanks are `[ \t]` and not `\s`, which also matches line ends: a page of empty lines would take hours.
_LICENSE = re.compile(
    rb"^[ \t]*license[ \t]*:[ \t]*(https?://[^\s#]{1,500})[ \t]*(?:#.*)?\r?$", re.IGNORECASE | re.MULTILINE
)


def use_robots(settings: BaseSettings) -> None:
    """Replace Scrapy's middleware with ours. If the project has removed Scrapy's, ours is only added if the request
    for the crawl wants robots.txt to be obeyed.
    """
    name = "DOWNLOADER_MIDDLEWARES"
    orders = [order for key, order in settings.getdict(name).items() if key in {_SCRAPYS, RobotsTxtMiddleware}]
    order = orders[-1] if orders else _SCRAPYS_ORDER
    options = settings.get(FETCH_OPTIONS) or Fetch()
    if options.respect and not HAS_CRAWL_DELAY:
        raise ValueError("fetch.respect needs a project with Scrapy 2.18 or later")
    if order is None and (options.obey_robots or options.respect):
        order = _SCRAPYS_ORDER
    settings.set_in_component_priority_dict(name, RobotsTxtMiddleware, None)
    settings.set_in_component_priority_dict(name, Robots if HAS_ASYNC_ROBOTS else RobotsTxtMiddleware, order)


class RobotsForbiddenError(IgnoreRequest):
    """robots.txt forbids the page."""


class UnlicensedError(IgnoreRequest):
    """The site names a license, and the crawl respects that."""


class Robots(RobotsTxtMiddleware):
    """Scrapy's middleware, which also reports a `Crawl-delay` to `Pacing` and notes licenses, and with a bug fixed.
    In Scrapy's own, the first request that waits for robots.txt takes the result, and all others that wait are sent
    unchecked: one `Deferred` cannot be awaited twice (since https://github.com/scrapy/scrapy/pull/6802). Older
    versions, which answer with a `Deferred`, do not have this bug, and are used unchanged.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        options = crawler.settings.get(FETCH_OPTIONS) or Fetch()
        self._needs_license = "rsl" in (options.respect or ())
        self._licensed: set[str] = set()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def robot_parser(self, request: Request) -> RobotParser | None:
        async with self._turns[urlparse_cached(request).netloc]:
            return await super().robot_parser(request)

    def process_request_2(self, rp: RobotParser | None, request: Request) -> None:
        try:
            super().process_request_2(rp, request)
        except IgnoreRequest as error:
            raise RobotsForbiddenError(str(error)) from None
        if self._needs_license and urlparse_cached(request).netloc in self._licensed:
            if self.crawler.stats:
                self.crawler.stats.inc_value(UNLICENSED)
            raise UnlicensedError("robots.txt names a license")

    if HAS_CRAWL_DELAY:

        async def _parse_robots(self, response: Response, netloc: str, request: Request) -> None:
            await super()._parse_robots(response, netloc, request)
            self._keep_apart(netloc)
            found = _LICENSE.search(response.body) if response.status == HTTPStatus.OK else None
            if found:
                self._licensed.add(netloc)
                url = found[1].decode(errors="replace")
                logger.info("robots.txt of %s names a license: %s", netloc, url)
                self._note(LICENSE, netloc, url)

    def _keep_apart(self, netloc: str) -> None:
        pacing, delay = self.crawler.get_extension(Pacing), self._delay(netloc)
        if pacing and delay > 0:
            kept = min(delay, MOST_DELAY)
            logger.info("robots.txt of %s wants %g s between two requests; they are %g s apart", netloc, delay, kept)
            self._note(CRAWL_DELAY, netloc, kept)
            pacing.keep_apart(netloc, kept)

    def _delay(self, netloc: str) -> float:
        # the project's own parser may lack the method, or raise anything in it
        ask = getattr(self._parsers[netloc], "crawl_delay", None)
        try:
            return float(ask(self._robotstxt_useragent or self._default_useragent) or 0) if ask else 0
        except Exception:
            logger.warning("The Crawl-delay of %s could not be read", netloc, exc_info=True)
            return 0

    def _note(self, name: str, netloc: str, value: object) -> None:
        stats = self.crawler.stats
        if stats and sum(one.startswith(name) for one in stats.get_stats()) < MOST_HOSTS:
            stats.set_value(name + netloc, value)
