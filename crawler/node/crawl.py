"""One attempt's crawl: the settings, arguments and process with which its spider runs."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import BaseModel
from scrapy.crawler import AsyncCrawlerProcess, Crawler

from crawler.closing import hurry
from crawler.node.project_names import OWN_PROJECT, canonical
from crawler.node.project_settings import ProjectSettings, project_settings
from crawler.node.spider_arguments import Arguments, complete, for_constructor, replaced
from crawler.project_guard import OVERRULED, choices
from crawler.setting_names import (
    ATTEMPT_DIR,
    FETCH_OPTIONS,
    FETCH_START_URLS,
    HTTPCACHE_REFRESH,
    HTTPCACHE_USER,
    MAX_ITEMS,
    MAX_PAGES,
    RATE_LIMIT_SITE,
    SITE_RATE_LIMIT,
)
from gateway.contract.param_formats import SCRAPYS_PARAMS
from gateway.crash_points import state_change
from gateway.settings import NodeSettings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from scrapy import Spider
    from scrapy.settings import Settings

    from gateway.contract.outbox import NodeSpec

logger = logging.getLogger(__name__)

#: In an attempt's folder: what a deployed project writes under relative names.
FILES = "files"
_SCRAPY_CFG = "# Here, so that a project's own .scrapy folder is made here too.\n"


def crawl(spec: NodeSpec, folder: str) -> int:
    """Run the spider to its end. 1 if it could not be built or the crawl broke down."""
    if canonical(spec.project) != OWN_PROJECT:
        enter(Path(folder) / FILES)
    settings = _settings(spec, folder)
    theirs = choices(settings)
    process = _Process(settings)
    logger.info("Attempt %s of job %s, correlation id %s", spec.attempt, spec.job_id, spec.correlation_id)
    spider = process.spider_loader.load(spec.spider)
    _tell_overruled({**theirs, **(spider.custom_settings or {})}, settings)
    crawl = process.crawl(_crawler(spec, spider, settings), **_arguments(spec, spider).given)
    crawl.add_done_callback(_log_breakdown)
    process.start()
    return int(process.bootstrap_failed)


@state_change("spider.enter")
def enter(files: Path) -> None:
    """Work in a folder of the attempt's own, so that a feed or file with a relative name is part of it."""
    files.mkdir(exist_ok=True)
    (files / "scrapy.cfg").write_text(_SCRAPY_CFG)
    os.chdir(files)


def _settings(spec: NodeSpec, folder: str) -> ProjectSettings:
    settings = project_settings()
    settings.setdict(
        {
            ATTEMPT_DIR: folder,
            MAX_PAGES: spec.max_pages or 0,
            MAX_ITEMS: spec.max_items or 0,
            HTTPCACHE_USER: _cache_owner(spec),
            HTTPCACHE_REFRESH: spec.ignore_cache,
            FETCH_OPTIONS: spec.fetch,
            FETCH_START_URLS: spec.start_urls,
            RATE_LIMIT_SITE: spec.site,
            SITE_RATE_LIMIT: spec.site_rate_limit,
        },
        priority="cmdline",
    )
    return settings


def _cache_owner(spec: NodeSpec) -> str:
    """Who comes with other headers may be shown another page."""
    variant = spec.fetch.variant if spec.fetch else ""
    return f"{spec.user_id}:{variant}" if variant else spec.user_id


def _crawler(spec: NodeSpec, spider: type[Spider], settings: ProjectSettings) -> Crawler:
    if _has_model(spider):
        return Crawler(spider, settings)
    if spec.depth is not None:
        settings.set("DEPTH_LIMIT", _depth_limit(spec.depth), priority="cmdline")
    return _Crawler(spider, settings, _arguments(spec, spider))


def _tell_overruled(theirs: Mapping[str, Any], settings: ProjectSettings) -> None:
    names = sorted(name for name, value in theirs.items() if name in OVERRULED and value != settings[name])
    if names:
        logger.info("This node has its own %s", ", ".join(names))


class _Crawler(Crawler):
    """For a spider that knows nothing of us: what its constructor does not take is set once it is built."""

    def __init__(self, spider: type[Spider], settings: Settings, arguments: Arguments) -> None:
        super().__init__(spider, settings)
        self._arguments = arguments

    def _create_spider(self, *args: Any, **kwargs: Any) -> Spider:
        spider = super()._create_spider(*args, **kwargs)
        complete(spider, self._arguments)
        return spider


def _depth_limit(depth: int) -> int:
    """Scrapy takes 0 for no limit, and anything below it for the start URLs alone."""
    return depth or -1


def _has_model(spider: type[Spider]) -> bool:
    """Whether it checks its parameters itself, as ours do."""
    params = getattr(spider, "Params", None)
    return isinstance(params, type) and issubclass(params, BaseModel)


def _arguments(spec: NodeSpec, spider: type[Spider]) -> Arguments:
    """Our own spiders check `params` against their model; all others take strings, as from `-a`."""
    has_model = _has_model(spider)
    reserved = SCRAPYS_PARAMS & spec.params.keys() if has_model else replaced(spider, spec.params)
    if reserved:
        raise ValueError(f"not to be used as parameters: {', '.join(sorted(reserved))}")
    depth = {} if spec.depth is None else {"depth": spec.depth}
    if has_model:
        return Arguments({**spec.params, **depth, "start_urls": spec.start_urls}, {})
    params = {name: _text(value) for name, value in spec.params.items()}
    return for_constructor(spider, {**params, **depth, "start_urls": spec.start_urls})


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
        reactor.callFromThread(hurry, self.crawlers, NodeSettings.load().crawl_stop_grace)
