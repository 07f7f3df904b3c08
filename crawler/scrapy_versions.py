"""Makes every Scrapy that a project may pin, from 2.11 on, look like the newest to the rest of the crawler.

Names that have moved or are new are imported from here. Methods that an older class lacks are added to it; existing
ones stay as they are. mypy checks against the newest version only.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

import scrapy
from scrapy import Spider
from scrapy.addons import AddonManager
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings, default_settings
from scrapy.utils.defer import deferred_from_coro, maybe_deferred_to_future
from scrapy.utils.misc import load_object

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

VERSION: tuple[int, ...] = tuple(int(part) for part in scrapy.__version__.split(".")[:2])
OLDEST = (2, 11)
#: From this version on, the end of a request can be observed as the frontier file needs it.
HAS_FRONTIER = VERSION >= (2, 14)
#: From this version on, methods of components get no spider, and download handlers are coroutines.
_WITHOUT_SPIDER = VERSION >= (2, 14)
HAS_ASYNC_ROBOTS = _WITHOUT_SPIDER
#: From this version on, robots.txt's `Crawl-delay` and content are accessible.
HAS_CRAWL_DELAY = VERSION >= (2, 18)
#: The reactor that our part of a crawl needs. Before Scrapy 2.13 it is not the default.
ASYNCIO_REACTOR = "twisted.internet.asyncioreactor.AsyncioSelectorReactor"
#: The resolver's setting in this version. Under the other name, our resolver would have no effect.
RESOLVER_SETTING = "TWISTED_DNS_RESOLVER" if hasattr(default_settings, "TWISTED_DNS_RESOLVER") else "DNS_RESOLVER"


class UnknownScrapyError(RuntimeError):
    """The project's Scrapy is older than any that this node can run."""


def refuse_older() -> None:
    if VERSION < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UnknownScrapyError(f"Scrapy {scrapy.__version__} is too old for this node: pin {oldest} or later")


# --- names

if TYPE_CHECKING or VERSION >= (2, 15):
    from scrapy.exceptions import (
        CannotResolveHostError,
        DownloadCancelledError,
        DownloadConnectionRefusedError,
        DownloadFailedError,
        DownloadTimeoutError,
        ResponseDataLossError,
    )
else:
    from twisted.internet.defer import CancelledError as DownloadCancelledError
    from twisted.internet.error import ConnectionRefusedError as DownloadConnectionRefusedError
    from twisted.internet.error import DNSLookupError as CannotResolveHostError
    from twisted.internet.error import TimeoutError as DownloadTimeoutError
    from twisted.web.client import ResponseFailed as DownloadFailedError

    class ResponseDataLossError(Exception):
        """One of the failures in a `ResponseFailed`."""


if TYPE_CHECKING or VERSION >= (2, 14):
    from scrapy.crawler import AsyncCrawlerProcess
    from scrapy.spiderloader import get_spider_loader
    from scrapy.utils.asyncio import create_looping_call
else:
    from scrapy.crawler import CrawlerProcess
    from scrapy.utils.reactor import install_reactor
    from twisted.internet.task import LoopingCall as create_looping_call  # noqa: N813 - a function by now

    def get_spider_loader(settings):
        return load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings.frozencopy())

    class AsyncCrawlerProcess(CrawlerProcess):
        def __init__(self, settings):
            prepare_process(settings)
            # Scrapy does this for the first crawler that it makes itself, but ours are made by us
            install_reactor(ASYNCIO_REACTOR)
            super().__init__(settings)

        def crawl(self, *args, **kwargs):
            return _Ending(super().crawl(*args, **kwargs))

    class _Ending:
        """The part of a task's interface that we use."""

        def __init__(self, deferred):
            self._deferred = deferred
            self._error = None

        def add_done_callback(self, callback):
            def done(result):
                self._error = getattr(result, "value", None)
                callback(self)

            self._deferred.addBoth(done)

        def cancelled(self):
            return False

        def exception(self):
            return self._error


try:
    from scrapy.utils.misc import walk_modules_iter
except ImportError:
    from scrapy.utils.misc import walk_modules

    def walk_modules_iter(path):  # type: ignore[misc]  # as above
        return iter(walk_modules(path))


try:
    from scrapy.core.downloader.handlers.http11 import _LenientHTTP11ClientProtocol as HttpClientProtocol
    from scrapy.core.downloader.handlers.http11 import _LenientHTTPClientParser as HttpClientParser
except ImportError:
    from twisted.web._newclient import HTTP11ClientProtocol as HttpClientProtocol  # type: ignore[assignment]
    from twisted.web._newclient import HTTPClientParser as HttpClientParser  # type: ignore[assignment]

try:
    from scrapy.http import JsonResponse
except ImportError:
    from scrapy.http import XmlResponse as JsonResponse  # type: ignore[assignment]  # before 2.12 there are none


def load_pre_crawler_settings(settings: BaseSettings) -> None:
    """Let add-ons change the settings that Scrapy reads before there is a crawler."""
    if hasattr(AddonManager, "load_pre_crawler_settings"):
        AddonManager.load_pre_crawler_settings(settings)
    else:
        prepare_process(settings)


def prepare_process(settings: BaseSettings) -> None:
    """As `load_pre_crawler_settings`, for a new process of Scrapy before 2.13, which does not do it by itself."""
    if hasattr(AddonManager, "load_pre_crawler_settings"):
        return
    addons = settings.getdict("ADDONS")
    for addon in sorted((addon for addon in addons if addons[addon] is not None), key=addons.__getitem__):
        cls = load_object(addon)
        if hasattr(cls, "update_pre_crawler_settings"):
            cls.update_pre_crawler_settings(settings)


def use_bundled_suffixes() -> None:
    """Make cookies use the list of public suffixes that comes with tldextract.

    Otherwise the first cookie of a process is held up by a request for a newer list. The request blocks the reactor,
    goes past proxies and the rules for egress, and is repeated in each crawl if the list cannot be reached.
    """
    from scrapy.downloadermiddlewares import cookies  # noqa: PLC0415 - a crawl loads it anyway, other processes do not

    # this name is private; a Scrapy without it does not fetch the list in this way
    extractor: Any = getattr(cookies, "_split_domain", None)
    if hasattr(extractor, "suffix_list_urls"):
        extractor.suffix_list_urls = ()


def own_start(spider: type[Spider]) -> Any:
    """The spider's own start method, `start` or `start_requests`; `None` if it has none."""
    for name in ("start", "start_requests"):
        own = getattr(spider, name, None)
        if own is not None and own is not getattr(Spider, name, None):
            return own
    return None


def forgets_start_requests(spider: type[Spider]) -> bool:
    """Whether the spider has its own `start_requests()`, and this Scrapy does not call it."""
    own = own_start(spider)
    return own is not None and own is not getattr(spider, "start", None) and not hasattr(Spider, "start_requests")


def engine_slot(crawler: Crawler) -> Any:
    """The engine's slot with its current requests; `None` before and after the crawl. It is private."""
    engine: Any = crawler.engine
    return getattr(engine, "_slot" if VERSION >= (2, 13) else "slot", None)


def process_queue(crawler: Crawler, slot: Any) -> None:
    """Let the downloader process the queue of one of its slots. There is no public way to do it."""
    downloader: Any = crawler.engine.downloader if crawler.engine else None
    downloader._process_queue(*(() if _WITHOUT_SPIDER else (crawler.spider,)), slot)  # noqa: SLF001 - as said above


# --- signatures

ClassT = TypeVar("ClassT", bound=type)
_OF_MIDDLEWARES = (
    *("process_request", "process_response", "process_exception"),
    *("process_spider_output", "process_spider_output_async"),
)


def middleware(cls: ClassT) -> ClassT:
    """Adapt a middleware whose methods take no spider, as in Scrapy 2.14, to an older Scrapy, which passes one."""
    if not _WITHOUT_SPIDER:
        for name in _OF_MIDDLEWARES:
            if method := vars(cls).get(name):
                setattr(cls, name, _with_spider(method))
    return cls


def _with_spider(method: Callable[..., Any]) -> Callable[..., Any]:
    # Scrapy checks which kind of function it is
    if inspect.isasyncgenfunction(method):

        @functools.wraps(method)
        async def method_with_spider(self: Any, *args: Any, spider: Any = None, **kwargs: Any) -> AsyncIterator[Any]:  # noqa: ARG001
            async for one in method(self, *_no_spider(args), **kwargs):
                yield one

    elif inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def method_with_spider(self: Any, *args: Any, spider: Any = None, **kwargs: Any) -> Iterator[Any]:  # noqa: ARG001
            yield from method(self, *_no_spider(args), **kwargs)

    else:

        @functools.wraps(method)
        def method_with_spider(self: Any, *args: Any, spider: Any = None, **kwargs: Any) -> Any:  # noqa: ARG001
            return method(self, *_no_spider(args), **kwargs)

    return method_with_spider


def _no_spider(args: tuple[Any, ...]) -> list[Any]:
    return [one for one in args if not isinstance(one, Spider)]


def for_spider(spider: Spider | None) -> tuple[Any, ...]:
    """Arguments for methods of Scrapy that take the spider in older versions."""
    return () if _WITHOUT_SPIDER else (spider,)


if TYPE_CHECKING or _WITHOUT_SPIDER:
    from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler
else:
    from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler as _OldHandler

    class HTTP11DownloadHandler(_OldHandler):
        """Adapts our handlers, which are coroutines without a spider, to older Scrapys, which pass one and want a
        `Deferred`.
        """

        def __init__(self, crawler):
            super().__init__(crawler.settings, crawler)
            self.__crawler = crawler

        def __init_subclass__(cls):
            if own := vars(cls).get("download_request"):
                cls.download_request = _with_deferred(own)

        @classmethod
        def from_crawler(cls, crawler):
            return cls(crawler)

        async def download_request(self, request):
            return await maybe_deferred_to_future(super().download_request(request, self.__crawler.spider))

    def _with_deferred(own):
        def download_request(self, request, spider=None):
            coroutine = own(self, request)
            return coroutine if spider is None else deferred_from_coro(coroutine)

        return download_request


# --- methods that older classes lack


def _get_extension(crawler: Any, cls: type) -> Any:
    return _component(crawler.extensions, cls)


def _get_downloader_middleware(crawler: Any, cls: type) -> Any:
    return _component(crawler.engine.downloader.middleware, cls) if crawler.engine else None


def _component(manager: Any, cls: type) -> Any:
    found = manager.middlewares if manager else ()
    return next((one for one in found if isinstance(one, cls)), None)


def _set_in_component_priority_dict(settings: Any, name: str, cls: type, priority: int | None) -> None:
    """Give the component this priority, and remove it under all other names that a project may have used."""
    given = settings.getdict(name)
    kept = {key: place for key, place in given.items() if _loaded(key) is not cls}
    settings.set(name, {**kept, cls: priority}, priority=max(settings.getpriority(name) or 0, 20))


def _loaded(component: Any) -> Any:
    try:
        return load_object(component)
    except (ImportError, NameError, ValueError, TypeError):
        return component


async def _close_spider_async(engine: Any, *, reason: str = "cancelled") -> None:
    await maybe_deferred_to_future(engine.close_spider(engine.spider, reason))


def _needs_backout(engine: Any) -> bool:
    return bool(engine._needs_backout())  # noqa: SLF001 - its former name


def _add_methods() -> None:
    from scrapy.core.engine import ExecutionEngine  # noqa: PLC0415 - loads half of Scrapy, as an old one does anyway

    for cls, name, method in (
        (Crawler, "get_extension", _get_extension),
        (Crawler, "get_downloader_middleware", _get_downloader_middleware),
        (BaseSettings, "set_in_component_priority_dict", _set_in_component_priority_dict),
        (ExecutionEngine, "close_spider_async", _close_spider_async),
        (ExecutionEngine, "needs_backout", _needs_backout),
    ):
        if not hasattr(cls, name):
            setattr(cls, name, method)


if not _WITHOUT_SPIDER:
    _add_methods()

__all__ = [
    "ASYNCIO_REACTOR",
    "HAS_FRONTIER",
    "RESOLVER_SETTING",
    "AsyncCrawlerProcess",
    "CannotResolveHostError",
    "DownloadCancelledError",
    "DownloadConnectionRefusedError",
    "DownloadFailedError",
    "DownloadTimeoutError",
    "HTTP11DownloadHandler",
    "HttpClientParser",
    "HttpClientProtocol",
    "JsonResponse",
    "ResponseDataLossError",
    "create_looping_call",
    "get_spider_loader",
    "walk_modules_iter",
]
