"""The spider's process: `python -m crawler.node.runner crawl <spider>`.

With `DISCOVERYBOT_ATTEMPT_DIR` it runs what that folder's `spec.json` says. URLs and parameters are read from there
before the spider is built, so any spider gets them as its arguments, however large they are. Without that variable it
is Scrapyd's own runner (`list`, plain Scrapyd jobs), with our add-on put into the project.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings
from scrapy.spiderloader import SpiderLoader
from scrapy.utils.misc import load_object
from scrapy.utils.spider import iter_spider_classes
from twisted.internet.ssl import AcceptableCiphers

from crawler import extras, setting_names
from crawler.closing import hurry, told_to_stop, was_told_to_stop
from crawler.frontier.journal import attempt_to_continue
from crawler.frontier.sealing import seal_with
from crawler.net.bot_auth import take_identity
from crawler.net.egress import EgressBlockedError, require_guard
from crawler.node.arguments import SpiderArguments, complete, for_constructor, replaced
from crawler.node.projects import EGG, OWN_PROJECT, PROJECTS_PYTHON, SPIDER_MODULE, activate, canonical
from crawler.orders import AttemptOrder, node_rules, read_order
from crawler.project_guard import OVERRULED, ProjectSettings, choices, keep_settings, project_settings
from crawler.report.failures import exception_reason, first_error
from crawler.report.progress import report_breakdown
from crawler.scrapy_versions import (
    AsyncCrawlerProcess,
    prepare_process,
    refuse_older,
    walk_modules_iter,
)
from gateway.contract.outbox import FILES
from gateway.contract.param_formats import SCRAPYS_PARAMS
from gateway.contract.written_files import SCRAPY_CFG
from gateway.crash_points import state_change
from gateway.process import hide_process, leave, leave_in_order

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Collection, Mapping

    from scrapy import Request
    from scrapy.settings import Settings


#: Share of the grace that is left for the threads and exit functions of a project whose crawl was asked to stop.
LEFT_OF_GRACE = 0.1


def preload() -> None:
    """Import what crawls need. A process from which crawls are forked does this once. In a project's own Python it
    imports nothing of the project, because the crawls can be of any of its versions.
    """
    if not os.environ.get(PROJECTS_PYTHON):
        import_everything(keep_settings())
        return
    settings = ProjectSettings()
    settings.set("ADDONS", {})
    import_everything(settings)


def main() -> None:
    refuse_older()
    rules = node_rules()
    folder = os.environ.get("DISCOVERYBOT_ATTEMPT_DIR")
    if not folder:
        _run_command()
        return
    _keep_mark()
    _take_variables(alone=rules.alone)
    spec = read_order(Path(folder))
    _tell_environment(spec)
    _activate()
    code = crawl(spec, folder, rules.log_level)
    # if it was asked to stop, most of the grace has passed by now
    leave_in_order(code, rules.crawl_stop_grace * (LEFT_OF_GRACE if was_told_to_stop() else 1))


def _tell_environment(spec: AttemptOrder) -> None:
    """Set the variables from which code can learn where it runs: those of Scrapyd, and those of Scrapy Cloud."""
    project, attempt = canonical(spec.project), spec.scrapyds_id
    os.environ |= {
        "SCRAPY_PROJECT": project,
        "SCRAPY_SPIDER": spec.spider,
        "SCRAPY_JOB": attempt,
        # Scrapy Cloud's keys consist of numbers, and its clients parse them as such
        "SHUB_JOBKEY": "/".join(str(crc32(name.encode())) for name in (project, spec.spider, attempt)),
    }


def _keep_mark() -> None:
    """Keep this process's children from inheriting the started mark: its lock must end with this process."""
    mark = os.environ.pop("DISCOVERYBOT_MARK_FD", None)
    if mark:
        os.set_inheritable(int(mark), False)  # noqa: FBT003 - the function's own signature


def _activate() -> None:
    """Put the project's egg on `sys.path`. Our own project has no egg; it is installed."""
    if egg := os.environ.get(EGG):
        activate(Path(egg))


def _take_variables(*, alone: bool) -> None:
    """Read the project's variables from the launcher's pipe. They are never in the environment that a process is
    started with, because all processes of its user can read that. For the same reason others may not read this
    process's memory, unless the project is `alone`: then no other project has its user.
    """
    descriptor = os.environ.pop("DISCOVERYBOT_ENV_FD", None)
    if descriptor is None:
        return
    if not alone:
        hide_process()
    with os.fdopen(int(descriptor), "rb") as pipe:
        variables = extras.loads(pipe.read())
    take_identity(variables)
    os.environ.update(variables)
    seal_with(variables)
    # this opens the lowest free number, which is stdin's
    os.open(os.devnull, os.O_RDONLY)


def _run_command() -> None:
    from scrapy.cmdline import execute  # noqa: PLC0415 - only plain Scrapyd jobs need it

    _activate()
    settings = _with_lazy_loader(project_settings())
    prepare_process(settings)
    execute(settings=settings)


# --- one attempt's crawl: the settings, arguments and process with which its spider runs

# named explicitly, because `__name__` is `__main__` in a process that was started and not forked
logger = logging.getLogger("crawler.node.runner")

_SCRAPY_CFG = "# Here, so that a project's own .scrapy folder is made here too.\n"


def crawl(spec: AttemptOrder, folder: str, log_level: str) -> int:
    """Run the spider to its end. Returns 1 if it could not be built or the crawl broke down."""
    if canonical(spec.project) != OWN_PROJECT:
        enter(Path(folder) / FILES)
    settings = _settings(spec, folder, log_level)
    theirs = choices(settings)
    process = _Process(settings)
    logger.info("Attempt %s of job %s, correlation id %s", spec.attempt, spec.job_id, spec.correlation_id)
    if spec.left_on and attempt_to_continue(Path(folder)) is None:
        logger.info("Begins anew: the remaining requests are only on node %s", spec.left_on)
    spider = process.spider_loader.load(spec.spider)
    _tell_overruled({**theirs, **(spider.custom_settings or {})}, settings)
    crawler = _crawler(spec, spider, settings)
    crawl = process.crawl(crawler, **_arguments(spec, spider).given)
    crawl.add_done_callback(partial(_tell_breakdown, crawler))
    try:
        process.start()
    except BaseException as error:  # noqa: BLE001 - `sys.exit()` in a callback ends the loop, but not our threads
        _tell_broken(crawler, error)
        leave(1)
    return int(process.bootstrap_failed)


@state_change("spider.enter")
def enter(files: Path) -> None:
    """Change to a folder of the attempt's own, so that files with relative names belong to the attempt."""
    files.mkdir(exist_ok=True)
    (files / SCRAPY_CFG).write_text(_SCRAPY_CFG)
    os.chdir(files)


def _settings(spec: AttemptOrder, folder: str, log_level: str) -> ProjectSettings:
    settings = project_settings()
    settings.setdict(spec.settings, priority="cmdline")
    settings = _with_lazy_loader(settings)
    settings.setdict(
        {
            setting_names.ATTEMPT_DIR: folder,
            setting_names.NODE_LOG_LEVEL: log_level.upper(),
            setting_names.MAX_PAGES: spec.max_pages or 0,
            setting_names.ALLOWANCE: spec.allowance,
            setting_names.MAX_ITEMS: spec.max_items or 0,
            setting_names.EXPECT: spec.expect,
            setting_names.HTTPCACHE_USER: _cache_owner(spec),
            setting_names.HTTPCACHE_REFRESH: spec.ignore_cache,
            setting_names.SKIP_SEEN_SPIDER: _spider_with_params(spec),
            setting_names.FETCH_OPTIONS: spec.fetch,
            setting_names.FETCH_START_URLS: list(spec.start_urls),
            setting_names.RATE_LIMIT_SITE: spec.site,
            setting_names.SITE_RATE_LIMIT: spec.site_rate_limit,
        },
        priority="cmdline",
    )
    return settings


def _cache_owner(spec: AttemptOrder) -> str:
    """The owner of cached responses. Crawls with other fetch options are kept apart, because they may get other
    pages.
    """
    variant = spec.fetch.variant if spec.fetch else ""
    return f"{spec.user_id}:{variant}" if variant else spec.user_id


def _spider_with_params(spec: AttemptOrder) -> str:
    return sha256(json.dumps([spec.project, spec.spider, spec.params], sort_keys=True).encode()).hexdigest()[:16]


def _crawler(spec: AttemptOrder, spider: type[Spider], settings: ProjectSettings) -> Crawler:
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
    """Runs a spider that was not written for us: arguments that its constructor does not take are set afterwards."""

    def __init__(self, spider: type[Spider], settings: Settings, arguments: SpiderArguments) -> None:
        super().__init__(spider, settings)
        self._arguments = arguments

    def _create_spider(self, *args: Any, **kwargs: Any) -> Spider:
        spider = super()._create_spider(*args, **kwargs)
        complete(spider, self._arguments)
        return spider


def _depth_limit(depth: int) -> int:
    """The depth for Scrapy, where 0 means no limit and a negative number the start URLs alone."""
    return depth or -1


def _has_model(spider: type[Spider]) -> bool:
    """Whether the spider checks its parameters itself, as our spiders do."""
    params = getattr(spider, "Params", None)
    # not `issubclass`: pydantic may not be installed
    return isinstance(params, type) and hasattr(params, "model_validate")


def _arguments(spec: AttemptOrder, spider: type[Spider]) -> SpiderArguments:
    """Our own spiders, and those that declare their arguments, check `params` against a model; all others take
    strings, as from `-a`.
    """
    has_model = _has_model(spider)
    reserved = SCRAPYS_PARAMS & spec.params.keys() if has_model else replaced(spider, spec.params)
    if reserved:
        raise ValueError(f"not to be used as parameters: {', '.join(sorted(reserved))}")
    depth = {} if spec.depth is None else {"depth": spec.depth}
    # without start URLs the spider keeps its own
    platforms = {**depth, **({"start_urls": list(spec.start_urls)} if spec.start_urls else {})}
    if has_model:
        return SpiderArguments({**spec.params, **platforms}, {})
    # Scrapyd gives its spiders this argument, too
    platforms["_job"] = spec.scrapyds_id
    if (declared := _declared(spider)) is not None:
        # its model may refuse unknown arguments
        given = {name: value for name, value in platforms.items() if name in declared}
        left = {name: value for name, value in platforms.items() if name not in declared}
        return SpiderArguments({**spec.params, **given}, left)
    params = {name: _text(value) for name, value in spec.params.items()}
    return for_constructor(spider, {**params, **platforms})


def _declared(spider: type[Spider]) -> Collection[str] | None:
    """The arguments that the spider declares with scrapy-spider-metadata; `None` if it declares none."""
    schema_of = getattr(spider, "get_param_schema", None)
    return schema_of().get("properties", {}) if callable(schema_of) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else extras.dumps(value).decode()


def _tell_breakdown(crawler: Crawler, crawl: asyncio.Task[None]) -> None:
    error = None if crawl.cancelled() else crawl.exception()
    if error is not None:
        _tell_broken(crawler, error)


def _tell_broken(crawler: Crawler, error: BaseException) -> None:
    error = first_error(error)
    logger.error("The crawl broke down: %s", exception_reason(error), exc_info=error)
    if crawler.spidercls.__module__.partition(".")[0] != __package__.partition(".")[0]:
        # our own spiders get no such report: without one, the platform takes the node to be broken
        report_breakdown(crawler, error)


class _Process(AsyncCrawlerProcess):
    """Starts a crawl only if the address guard is active. When asked to stop, it ends within the launcher's grace, so
    that the spider can still write its report.
    """

    def start(self, *args: Any, **kwargs: Any) -> None:
        from twisted.internet import reactor  # noqa: PLC0415 - installs a reactor if none was chosen before

        reactor.callWhenRunning(_require_guard)
        super().start(*args, **kwargs)

    def _signal_shutdown(self, signum: int, _: Any) -> None:
        from twisted.internet import reactor  # noqa: PLC0415 - installs a reactor if none was chosen before

        told_to_stop(signum)
        super()._signal_shutdown(signum, _)
        reactor.callFromThread(hurry, self.crawlers, self.settings.getfloat(setting_names.STOP_GRACE))


def _require_guard() -> None:
    try:
        require_guard()
    except EgressBlockedError as error:
        logger.critical("The crawl does not start: %s", error)
        leave(1)


# --- importing only the module that contains the spider


class LazySpiderLoader(SpiderLoader):
    """Imports only the module in which the spider was when the egg was deployed. Scrapy's loader imports all modules
    of the project before the first request. Here that happens only if the spider is not there, or others are wanted
    too.
    """

    def __init__(self, settings: BaseSettings) -> None:
        self._settings = settings
        self._module: str = settings[setting_names.LISTED_MODULE]
        self._all: SpiderLoader | None = None

    def load(self, spider_name: str) -> type[Spider]:
        there = {spider.name: spider for spider in iter_spider_classes(importlib.import_module(self._module))}
        return there.get(spider_name) or self._eager().load(spider_name)

    def find_by_request(self, request: Request) -> list[str]:
        return self._eager().find_by_request(request)

    def list(self) -> list[str]:
        return self._eager().list()

    def _eager(self) -> SpiderLoader:
        if self._all is None:
            self._all = SpiderLoader(self._settings)
        return self._all


def _with_lazy_loader(settings: ProjectSettings) -> ProjectSettings:
    """Add our lazy loader, unless the project or one of its add-ons has chosen another, or wants all modules
    imported.
    """
    if (module := os.environ.get(SPIDER_MODULE)) and not settings.getbool(setting_names.IMPORT_ALL_SPIDERS):
        settings.set(setting_names.LISTED_MODULE, module, priority="default")
        settings.set("SPIDER_LOADER_CLASS", LazySpiderLoader, priority="default")
    return settings


# --- what the zygote imports: all that a crawl of our own project would import

#: Imported only in the course of a crawl, or only when a setting of the node asks for it.
_LATER = (
    "asyncio",
    "crawler.http_cache",
    "encodings.charmap",
    "encodings.idna",
    "encodings.utf_8_sig",
    "gateway.stores.site_rate_limit",
    "resource",
    "tldextract",
    "trafilatura",
    "twisted.internet.asyncioreactor",
    "twisted.web.client",
)
_OBJECT = re.compile(r"(scrapy|(discoverybot_)?crawler)(\.\w+)+\.[A-Z]\w*")
#: Components that no project on a node uses. (Some are imported nevertheless, to compare other classes with them.)
_NOT_USED = re.compile(r"\.(ftp|s3|h2|remote_control|telnet)\b|FTP|S3|GCS")


def import_everything(settings: BaseSettings) -> None:
    extras.look()
    for name in _LATER:
        with suppress(ImportError):  # a project's own Python may lack it
            importlib.import_module(name)
    for module in settings.getlist("SPIDER_MODULES"):
        for found in walk_modules_iter(module):
            # modules that a spider would import only during a crawl
            for name in getattr(found, "PRELOAD", ()):
                importlib.import_module(name)
    for path in set(_paths(settings.copy_to_dict())):
        with suppress(ImportError):  # as above
            load_object(path)
    if ciphers := settings["DOWNLOADER_CLIENT_TLS_CIPHERS"]:
        # Twisted caches the result, which each crawl asks for
        AcceptableCiphers.fromOpenSSLCipherString(ciphers)  # type: ignore[no-untyped-call]  # Twisted's


def _paths(value: Any) -> Iterator[str]:
    """The names of classes anywhere in the settings: spider middlewares, pipelines, the scheduler's queues."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(key)
            yield from _paths(inner)
    elif isinstance(value, str) and _OBJECT.fullmatch(value) and not _NOT_USED.search(value):
        yield value


if __name__ == "__main__":
    main()
