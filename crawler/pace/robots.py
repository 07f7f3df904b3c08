"""robots.txt: fetched once for all requests that wait for it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

from scrapy.downloadermiddlewares.robotstxt import RobotsTxtMiddleware
from scrapy.utils.httpobj import urlparse_cached

from crawler.scrapy_versions import HAS_ASYNC_ROBOTS
from crawler.setting_names import FETCH_OPTIONS

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.crawler import Crawler
    from scrapy.robotstxt import RobotParser
    from scrapy.settings import BaseSettings

    from crawler.orders import Fetch

_SCRAPYS = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"
_SCRAPYS_ORDER = 100


def use_robots(settings: BaseSettings) -> None:
    """Put our middleware in the place of Scrapy's. If the project has removed that, ours is only added if the request
    for the crawl wants robots.txt obeyed.
    """
    name = "DOWNLOADER_MIDDLEWARES"
    orders = [order for key, order in settings.getdict(name).items() if key in {_SCRAPYS, RobotsTxtMiddleware}]
    order = orders[-1] if orders else _SCRAPYS_ORDER
    options: Fetch | None = settings.get(FETCH_OPTIONS)
    if order is None and options and options.obey_robots:
        order = _SCRAPYS_ORDER
    settings.set_in_component_priority_dict(name, RobotsTxtMiddleware, None)
    settings.set_in_component_priority_dict(name, Robots if HAS_ASYNC_ROBOTS else RobotsTxtMiddleware, order)


class Robots(RobotsTxtMiddleware):
    """Scrapy's middleware with a fix. In Scrapy's own, the first request that waits for robots.txt takes the result
    away from all others that wait, which are let through unchecked: one `Deferred` cannot be awaited twice (since
    https://github.com/scrapy/scrapy/pull/6802). Older versions, which answer with a `Deferred`, do not have this bug.
    """

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def robot_parser(self, request: Request) -> RobotParser | None:
        async with self._turns[urlparse_cached(request).netloc]:
            return await super().robot_parser(request)
