"""The spider's process: `python -m crawler.node.runner crawl <spider>`.

With `DISCOVERYBOT_ATTEMPT_DIR` it runs what that folder's `spec.json` says; URLs and parameters are read before
the spider is built, so they reach any spider as its arguments, whatever their size. Without it, it is Scrapyd's
own runner (`list`, plain Scrapyd jobs), with our add-on put into the project.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.utils.project import get_project_settings

from crawler.node.project_names import OWN_PROJECT, canonical
from crawler.setting_names import ATTEMPT_DIR, HTTPCACHE_REFRESH, HTTPCACHE_USER, MAX_PAGES
from gateway.domain.node_files import SPEC, NodeSpec
from gateway.settings import NodeSettings

if TYPE_CHECKING:
    import asyncio

    from scrapy import Spider
    from scrapy.crawler import Crawler
    from scrapy.settings import Settings

logger = logging.getLogger(__name__)

ADDON = "crawler.addon.DiscoveryBot"
#: Share of the grace after a polite stop that responses under way are given; the rest is for the report.
PATIENCE = 0.5
#: Arguments that Scrapy itself takes; as parameters they would break a spider in ways hard to understand.
RESERVED = frozenset({"name", "settings", "crawler", "start_urls"})


def main() -> None:
    folder = os.environ.get("DISCOVERYBOT_ATTEMPT_DIR")
    if not folder:
        _run_command()
        return
    _keep_mark()
    spec = NodeSpec.model_validate(orjson.loads((Path(folder) / SPEC).read_bytes()))
    project = canonical(spec.project)
    os.environ["SCRAPY_PROJECT"] = project
    if spec.version:
        os.environ["SCRAPYD_EGG_VERSION"] = spec.version
    with _project(project):
        code = _crawl(spec, folder)
    _leave(code)


def _keep_mark() -> None:
    """The `flock` on the started mark is to end with this process: nothing it starts may inherit it."""
    mark = os.environ.pop("DISCOVERYBOT_MARK_FD", None)
    if mark:
        os.set_inheritable(int(mark), False)  # noqa: FBT003 - the function's own signature


def _project(project: str) -> AbstractContextManager[None]:
    """The project's egg, put on `sys.path`; nothing to do for our own, which is installed and has none."""
    eggs = NodeSettings.load().node_dir / "eggs" / project
    if project == OWN_PROJECT and not eggs.exists():
        return nullcontext()
    from crawler.node.egg import project_environment  # noqa: PLC0415 - a quarter of a second that our own never pays

    return project_environment(project)


def _run_command() -> None:
    from scrapy.cmdline import execute  # noqa: PLC0415 - only plain Scrapyd jobs need it

    with _project(canonical(os.environ.get("SCRAPY_PROJECT", OWN_PROJECT))):
        execute(settings=_settings())


def _settings() -> Settings:
    settings = get_project_settings()
    addons = dict(settings["ADDONS"] or {})
    addons.setdefault(ADDON, 500)
    settings.set("ADDONS", addons, priority="cmdline")
    return settings


def _crawl(spec: NodeSpec, folder: str) -> int:
    """Run the spider to its end. 1 if it could not be built or the crawl broke down."""
    settings = _settings()
    settings.setdict(
        {
            ATTEMPT_DIR: folder,
            MAX_PAGES: spec.max_pages or 0,
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


def _leave(code: int) -> None:
    """End at once: tearing down the interpreter takes longer than many a crawl."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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


if __name__ == "__main__":
    main()
