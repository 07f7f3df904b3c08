"""Private names of Scrapy and Twisted that crawls need.

Any release may change them. A project whose Scrapy lacks one is refused with a clear message when it is deployed.
Otherwise each of its crawls would fail where the name is used.
"""

from __future__ import annotations

import scrapy
from scrapy.utils.misc import load_object

from crawler.scrapy_versions import HAS_CRAWL_DELAY, HAS_FRONTIER, VERSION, UnknownScrapyError
from gateway.private_names import names_of

_SINCE_2_13 = VERSION >= (2, 13)
_ENGINE = "scrapy.core.engine.ExecutionEngine"
_ROBOTS = "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware"

#: Attributes of a class, or of its objects, and what each is for.
_NEEDED: dict[str, tuple[str, ...]] = {
    # the frontier: which requests are done, and whether the spider's start is over
    _ENGINE: ("_handle_downloader_output", "_start", "_slot")
    if HAS_FRONTIER
    else ("_slot" if _SINCE_2_13 else "slot",),
    # the end of a crawl that does not end by itself
    f"scrapy.core.engine.{'_Slot' if _SINCE_2_13 else 'Slot'}": ("_maybe_fire_closing", "closing", "inprogress"),
    "scrapy.core.scraper.Scraper": ("_check_if_closing", "slot"),
    "scrapy.core.scraper.Slot": ("queue", "active", "itemproc_size", "closing"),
    "scrapy.core.downloader.handlers.DownloadHandlers": ("_handlers",),
    # the pace of a site, and when a request was sent
    "scrapy.core.downloader.Downloader": ("_process_queue", "_download", "slots"),
    # what robots.txt says of pace and license
    **({_ROBOTS: ("_parse_robots", "_parsers", "_robotstxt_useragent")} if HAS_CRAWL_DELAY else {}),
    # the spider's arguments, and signals
    "scrapy.crawler.Crawler": ("_create_spider",),
    "scrapy.crawler.CrawlerProcess": ("_signal_shutdown",),
    # the egress rule
    "twisted.web.client.HTTPConnectionPool": ("_factory",),
    "twisted.web.client._HTTP11ClientFactory": ("_quiescentCallback",),
    "crawler.scrapy_versions.HttpClientProtocol": ("_parser",),
    # the frontier: the name of a callback, by which a kept request finds it again
    **({"scrapy.http.request._find_method": ()} if HAS_FRONTIER else {}),
}


def refuse_without_private_names() -> None:
    """Raises `UnknownScrapyError` if one of these names is missing in the project's Scrapy or Twisted."""
    for path, names in _NEEDED.items():
        try:
            known = names_of(load_object(path))
            gone = next((f"{path} has no {name}" for name in names if name not in known), None)
        except (ImportError, NameError):
            gone = f"there is no {path}"
        if gone:
            raise UnknownScrapyError(
                f"Scrapy {scrapy.__version__} or its Twisted is newer than what this node knows ({gone}): pin an "
                "older release, or update the platform"
            )
