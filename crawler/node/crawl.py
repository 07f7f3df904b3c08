"""One attempt's crawl: the settings, arguments and process with which its spider runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import orjson
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.utils.project import get_project_settings

from crawler.setting_names import ATTEMPT_DIR, HTTPCACHE_REFRESH, HTTPCACHE_USER, MAX_ITEMS, MAX_PAGES
from gateway.settings import NodeSettings

if TYPE_CHECKING:
    import asyncio

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import Settings

    from gateway.domain.node_files import NodeSpec

logger = logging.getLogger(__name__)

ADDON = "crawler.addon.DiscoveryBot"
#: Share of the grace after a polite stop that responses under way are given; the rest is for the report.
PATIENCE = 0.5
#: Arguments that Scrapy itself takes; as parameters they would break a spider in ways hard to understand.
RESERVED = frozenset({"name", "settings", "crawler", "start_urls"})


def project_settings() -> Settings:
    settings = get_project_settings()
    addons = dict(settings["ADDONS"] or {})
    addons.setdefault(ADDON, 500)
    settings.set("ADDONS", addons, priority="cmdline")
    return settings


def crawl(spec: NodeSpec, folder: str) -> int:
    """Run the spider to its end. 1 if it could not be built or the crawl broke down."""
    settings = project_settings()
    settings.setdict(
        {
            ATTEMPT_DIR: folder,
            MAX_PAGES: spec.max_pages or 0,
            MAX_ITEMS: spec.max_items or 0,
            HTTPCACHE_USER: spec.user_id,
            HTTPCACHE_REFRESH: spec.ignore_cache,
        },
        priority="cmdline",
    )
    process = _Process(settings)
    spider = process.spider_loader.load(spec.spider)
    if not hasattr(spider, "Params"):
        settings.set("DEPTH_LIMIT", _depth_limit(spec.depth), priority="cmdline")
    process.crawl(spider, **_arguments(spec, spider)).add_done_callback(_log_breakdown)
    process.start()
    return int(process.bootstrap_failed)


def _depth_limit(depth: int | None) -> int:
    """Scrapy takes 0 for no limit, and anything below it for the start URLs alone."""
    return 0 if depth is None else depth or -1


def _arguments(spec: NodeSpec, spider: type[Spider]) -> dict[str, Any]:
    """Our own spiders check `params` against their model; all others take strings, as from `-a`."""
    reserved = sorted(RESERVED & spec.params.keys())
    if reserved:
        raise ValueError(f"not to be used as parameters: {', '.join(reserved)}")
    params = spec.params
    if not hasattr(spider, "Params"):
        params = {name: _text(value) for name, value in params.items()}
    depth = {} if spec.depth is None else {"depth": spec.depth}
    return {**params, **depth, "start_urls": spec.start_urls}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _log_breakdown(crawl: asyncio.Task[None]) -> None:
    error = None if crawl.cancelled() else crawl.exception()
    if error:
        logger.error("The crawl broke down: %s", error, exc_info=error)


class _Process(AsyncCrawlerProcess):
    """Ends within the launcher's grace when it is asked to stop, so that there is a report."""

    def _signal_shutdown(self, signum: int, _: Any) -> None:
        from twisted.internet import reactor  # noqa: PLC0415 - installs a reactor if none was chosen before

        super()._signal_shutdown(signum, _)
        patience = NodeSettings.load().crawl_stop_grace * PATIENCE
        reactor.callFromThread(reactor.callLater, patience, self._let_go)

    def _let_go(self) -> None:
        for crawler in self.crawlers:
            for handler in _handlers(crawler):
                handler.let_go()


def _handlers(crawler: Crawler) -> list[Any]:
    handlers = crawler.engine.downloader.handlers._handlers.values()  # noqa: SLF001 - there is no public way to a handler
    return [handler for handler in handlers if hasattr(handler, "let_go")]
