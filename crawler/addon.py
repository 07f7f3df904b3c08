"""The one Scrapy add-on that turns any project into a DiscoveryBot project.

Scrapy makes it by itself, so it is a composition root: it reads the node's rules and hands them on as Scrapy's
settings.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from scrapy.core.scheduler import Scheduler
from scrapy.utils.misc import load_object

from crawler import extras, setting_names
from crawler.closing import Closing
from crawler.frontier.resumable_scheduler import ResumableScheduler, StartOutput, follows_requests
from crawler.net.bot_auth import BotSignature
from crawler.net.egress import (
    EgressCheck,
    EgressDownloadHandler,
    EgressResolver,
    HandlerRefusedError,
    MetaProxy,
    is_allowed_handler,
    may_be_replaced,
)
from crawler.net.fetch_options import FetchIdentity, FetchProxy, apply_fetch_options
from crawler.net.response_limits import AttributeLimit, ResponseLimits, at_most
from crawler.orders import NodeRules, node_rules
from crawler.pace.pacing import Pacing, StartPace
from crawler.pace.robots import use_robots
from crawler.render.setup import browser_handler, use_browser
from crawler.report.crawl_limits import Allowance, ItemLimit, LogLimit, PageCount, PageLimit
from crawler.report.progress import ProgressReport, StartErrors
from crawler.report.request_record import ParentNote, RequestRecord
from crawler.report.requests import Activity, CountingDownloader
from crawler.scrapy_versions import RESOLVER_SETTING, use_bundled_suffixes
from gateway.contract.outbox import LOG_DATEFORMAT, LOG_FORMAT
from gateway.contract.seen_pages import SKIP_SEEN

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

logger = logging.getLogger(__name__)

#: Priorities of settings. The add-on's defaults rank below a project's own settings; settings that nobody may change
#: rank as high as those of Scrapy's command line.
_FORCED = "cmdline"
_DEFAULT = "addon"
#: As many as the common browsers follow.
MAX_REDIRECTS = 20
_NETWORK_SCHEMES = ("http", "https")
_CLOSED_SCHEMES = ("file", "ftp", "s3")
#: `AttributeLimit` comes right after pages are decompressed. The proxies take the place of Scrapy's own. The last
#: three come right before the cache.
_DOWNLOADER_MIDDLEWARES = {
    Allowance: 109,
    PageLimit: 110,
    PageCount: 120,
    AttributeLimit: 589,
    FetchProxy: 749,
    MetaProxy: 750,
    FetchIdentity: 896,
    BotSignature: 897,
    EgressCheck: 898,
    ResponseLimits: 899,
}
#: Order of the spider middleware that must see the same objects as the engine.
_NEAREST = -(1 << 31)
_CACHE_STORAGE = "crawler.http_cache.RedisCacheStorage"
_LOCKED_OUT = (
    "scrapy.extensions.remote_control.RemoteControl",
    "scrapy.extensions.telnet.TelnetConsole",
)


class DiscoveryBot:
    """Scrapy add-on that makes an attempt write its report, progress and items, and applies the node's limits, HTTP
    cache and egress rule. It turns off or replaces what would bypass them.
    """

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Set what Scrapy reads before there is a crawler: resolver, reactor, logging."""
        node = node_rules()
        # Scrapy has no setting for the time zone of its log
        logging.Formatter.converter = time.gmtime
        _set(settings, _FORCED, _unchangeable(node))
        _set(settings, _DEFAULT, {"LOG_LEVEL": node.log_level.upper(), "ROBOTSTXT_OBEY": True})
        if os.environ.get("DISCOVERYBOT_ATTEMPT_DIR"):
            # the launcher has pointed stderr at the attempt's log
            _set(settings, _FORCED, {"LOG_FILE": None, "LOG_ENABLED": True})

    def update_settings(self, settings: BaseSettings) -> None:
        """Set everything else. Also repeat the unchangeable settings, which the spider's constructor may have
        changed.
        """
        node = node_rules()
        use_bundled_suffixes()
        _set(settings, _FORCED, _unchangeable(node))
        _lock_out(settings)
        _close_schemes(settings)
        _limit(settings, node)
        apply_fetch_options(settings)
        use_robots(settings)
        for extension in (Activity, Closing, LogLimit, ProgressReport, RequestRecord, Pacing):
            settings.set_in_component_priority_dict("EXTENSIONS", extension, 900)
        for middleware, order in _DOWNLOADER_MIDDLEWARES.items():
            settings.set_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", middleware, order)
        settings.set_in_component_priority_dict("SPIDER_MIDDLEWARES", ItemLimit, 0)
        settings.set_in_component_priority_dict("SPIDER_MIDDLEWARES", StartPace, 0)
        settings.set_in_component_priority_dict("SPIDER_MIDDLEWARES", StartErrors, 1)
        use_browser(settings)
        _use_cache(settings, node)
        _skip_seen(settings, node)
        _keep_frontier(settings, node)
        extras.tell_what_is_missing()


def _set(settings: BaseSettings, priority: str, values: dict[str, Any]) -> None:
    settings.setdict(values, priority=priority)


def _unchangeable(node: NodeRules) -> dict[str, Any]:
    """Settings that a project or spider must not be able to change, not even by accident."""
    return {
        "LOG_FORMAT": LOG_FORMAT,
        "LOG_DATEFORMAT": LOG_DATEFORMAT,
        # an HTTP server that executes Python, and a Python prompt
        "REMOTE_CONTROL_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        # without the reactor, Scrapy's connections would not use our resolver
        "TWISTED_REACTOR_ENABLED": True,
        RESOLVER_SETTING: EgressResolver,
        setting_names.EGRESS_ALLOWED_NETWORKS: node.crawl_allow_networks,
        setting_names.ALLOWED_HANDLERS: node.crawl_allow_handlers,
        # Scrapy's middleware would use the environment's proxies; ours uses only those that requests name
        "HTTPPROXY_ENABLED": False,
        "DOWNLOADER": CountingDownloader,
        "DOWNLOAD_WARNSIZE": 0,
        setting_names.MAX_PAGE_BYTES: node.crawl_max_page_bytes,
        setting_names.MAX_PAGE_SECONDS: node.crawl_max_page_seconds,
        setting_names.MAX_LOG_BYTES: node.crawl_max_log_bytes,
        setting_names.REQUESTS_MAX_COUNT: node.requests_max_count,
        setting_names.REQUESTS_MAX_BYTES: node.requests_max_bytes,
        setting_names.STOP_GRACE: node.crawl_stop_grace,
        setting_names.STALL_SECONDS: node.crawl_stall_seconds,
        setting_names.CHROMIUM_PATH: node.chromium_path,
        setting_names.RATE_LIMIT_REDIS_URL: node.rate_limit_redis_url or node.http_cache_redis_url,
    }


def _limit(settings: BaseSettings, node: NodeRules) -> None:
    """Limit the values that a project can choose itself to what the node allows."""
    if not settings.getpriority("DOWNLOAD_MAXSIZE"):
        # the project has not chosen a limit, and Scrapy's own default is 1 GiB
        settings.set("DOWNLOAD_MAXSIZE", node.crawl_page_bytes, priority=_DEFAULT)
    for name, limit in (
        ("DOWNLOAD_MAXSIZE", node.crawl_max_page_bytes),
        ("DOWNLOAD_TIMEOUT", node.crawl_max_page_seconds),
    ):
        settings.set(name, at_most(limit, settings[name]), priority=_FORCED)
    redirects = min(MAX_REDIRECTS, settings.getint("REDIRECT_MAX_TIMES"))
    settings.set("REDIRECT_MAX_TIMES", redirects, priority=_FORCED)


def _lock_out(settings: BaseSettings) -> None:
    if settings.getdict("EXTENSIONS"):
        # remove each class under whichever name the project has used
        for path in _LOCKED_OUT:
            with suppress(ImportError):  # an older Scrapy may lack some of them
                settings.set_in_component_priority_dict("EXTENSIONS", load_object(path), None)
    else:
        # Scrapy does not import defaults that are off; importing these would take a quarter of a second
        defaults = {**settings.getdict("EXTENSIONS_BASE"), **dict.fromkeys(_LOCKED_OUT)}
        settings.set("EXTENSIONS_BASE", defaults, priority=_FORCED)


def _close_schemes(settings: BaseSettings) -> None:
    """Close all schemes but http and https, and use our own handler for these two: others might resolve names
    themselves, past the address check. Handlers that the operator allows stay.

    Raises `HandlerRefusedError` for any other handler of the project's own. Such a handler may, for example, go
    through a proxy service; with our handler instead, the crawl would contact the sites directly.
    """
    handlers: dict[str, Any] = settings.getdict("DOWNLOAD_HANDLERS")
    for scheme in _CLOSED_SCHEMES:
        handlers[scheme] = handlers.get(scheme) if is_allowed_handler(settings, handlers.get(scheme)) else None
    for scheme in _NETWORK_SCHEMES:
        replaced = handlers.get(scheme)
        if is_allowed_handler(settings, replaced):
            logger.info("%s is used for %s: this node's operator allows it", replaced, scheme)
            continue
        rendering = browser_handler(settings, replaced)
        if not rendering and not may_be_replaced(replaced):
            raise HandlerRefusedError(replaced, scheme)
        if not rendering and replaced not in (None, EgressDownloadHandler):
            logger.warning("%s is not used for %s: its connections cannot be checked", replaced, scheme)
        handlers[scheme] = rendering or EgressDownloadHandler
    settings.set("DOWNLOAD_HANDLERS", handlers, priority=_FORCED)


def _use_cache(settings: BaseSettings, node: NodeRules) -> None:
    """Use the node's cache instead of the project's, if the project asks for one. Other projects get no cache,
    because a cached page can be out of date, or have a form's token that was used already.
    """
    if not settings.getbool("HTTPCACHE_ENABLED"):
        return
    if node.http_cache_redis_url and node.http_cache_ttl and extras.has("redis", "zstandard"):
        # by name: the Redis client takes a tenth of a second to import
        cache = {
            "HTTPCACHE_STORAGE": _CACHE_STORAGE,
            "HTTPCACHE_POLICY": "crawler.http_cache.CachePolicy",
            "HTTPCACHE_EXPIRATION_SECS": node.http_cache_ttl,
            setting_names.HTTPCACHE_REDIS_URL: node.http_cache_redis_url,
        }
        _set(settings, _FORCED, cache)
    elif settings.getbool(setting_names.HTTPCACHE_REFRESH) or settings["HTTPCACHE_STORAGE"] == _CACHE_STORAGE:
        # a project's own cache may never renew its pages, and ours needs a Redis
        settings.set("HTTPCACHE_ENABLED", value=False, priority=_FORCED)


def _skip_seen(settings: BaseSettings, node: NodeRules) -> None:
    """Skip pages that have given items lately, if the spider asks for that and a Redis remembers them."""
    if not settings.get(SKIP_SEEN):
        return
    if node.http_cache_redis_url and extras.has("redis"):
        settings.set(setting_names.HTTPCACHE_REDIS_URL, node.http_cache_redis_url, priority=_FORCED)
        # by name, because importing Redis takes time; before the limits, so that skipped requests do not count
        skip_seen = load_object("crawler.skip_seen.SkipSeen")
        settings.set_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", skip_seen, 105)
    else:
        logger.warning("%s has no effect: this node has no Redis that remembers pages", SKIP_SEEN)


def _keep_frontier(settings: BaseSettings, node: NodeRules) -> None:
    """Use our scheduler, which keeps a frontier, unless the project has one of its own."""
    if node.crawl_frontier and load_object(settings["SCHEDULER"]) is Scheduler:
        _set(settings, _FORCED, {"SCHEDULER": ResumableScheduler, setting_names.MAX_UNDONE: node.crawl_max_undone})
        if follows_requests(settings):
            settings.set_in_component_priority_dict("SPIDER_MIDDLEWARES", StartOutput, _NEAREST)
            return
    # only without a frontier: a frontier knows which page led to a request, and a middleware costs time
    settings.set_in_component_priority_dict("SPIDER_MIDDLEWARES", ParentNote, 0)
