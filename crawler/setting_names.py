"""Our own Scrapy settings, by which the runner and the add-on pass values to the add-on's components."""

from __future__ import annotations

#: The attempt's folder; without it the crawl writes no report.
ATTEMPT_DIR = "ATTEMPT_DIR"
#: Maximum number of requests that may be in progress with their output not yet consumed; 0 is no limit.
MAX_UNDONE = "MAX_UNDONE"
#: Maximum number of pages that the crawl may request; 0 is no limit.
MAX_PAGES = "MAX_PAGES"
#: What this attempt may use of the budget of the crawl's key (`pages`, `hosts`, `bytes`); absent without a budget.
ALLOWANCE = "ALLOWANCE"
#: Maximum number of items of the crawl; 0 is no limit.
MAX_ITEMS = "MAX_ITEMS"
#: Maximum number of requests in the record of requests, and about how many bytes; with 0 requests there is no record.
REQUESTS_MAX_COUNT = "REQUESTS_MAX_COUNT"
REQUESTS_MAX_BYTES = "REQUESTS_MAX_BYTES"
#: The request's expectations of a good crawl (`Expect`); absent if it has none.
EXPECT = "EXPECT"
#: Maximum number of bytes and seconds of one page. No request can have more.
MAX_PAGE_BYTES = "MAX_PAGE_BYTES"
MAX_PAGE_SECONDS = "MAX_PAGE_SECONDS"
#: Maximum number of bytes of log (0 is no limit), and the level from which the node wants messages in it.
MAX_LOG_BYTES = "MAX_LOG_BYTES"
NODE_LOG_LEVEL = "NODE_LOG_LEVEL"
#: Seconds between the request to stop and SIGKILL.
STOP_GRACE = "STOP_GRACE"
#: Seconds without a sign of life after which the crawl is stopped; 0 is no limit.
STALL_SECONDS = "STALL_SECONDS"
#: Names of download handlers that the node's operator allows although their connections cannot be checked.
ALLOWED_HANDLERS = "ALLOWED_HANDLERS"
#: Networks (CIDR) that may be reached although they are not public.
EGRESS_ALLOWED_NETWORKS = "EGRESS_ALLOWED_NETWORKS"
#: The HTTP cache: its Redis, the user whose pages it has, and whether pages are fetched again and replaced.
HTTPCACHE_REDIS_URL = "HTTPCACHE_REDIS_URL"
HTTPCACHE_USER = "HTTPCACHE_USER"
HTTPCACHE_REFRESH = "HTTPCACHE_REFRESH"
#: Name of the memory of pages that have given items. It is for one spider with certain parameters, because others
#: would make other items of the same page.
SKIP_SEEN_SPIDER = "SKIP_SEEN_SPIDER"
#: How pages are fetched, as the request for the crawl says (`FetchOptions`); absent if it says nothing.
FETCH_OPTIONS = "FETCH_OPTIONS"
#: The start URLs, whose hosts alone get the headers and cookies among those options.
FETCH_START_URLS = "FETCH_START_URLS"
#: The site whose other crawls share the rate limit, and that limit (`30/m`).
RATE_LIMIT_SITE = "RATE_LIMIT_SITE"
SITE_RATE_LIMIT = "SITE_RATE_LIMIT"
#: The Redis through which they share it; without one this crawl keeps to the limit by itself.
RATE_LIMIT_REDIS_URL = "RATE_LIMIT_REDIS_URL"
#: Whether the crawl renders pages at all. The add-on then adds what that needs.
RENDER_PAGES = "RENDER_PAGES"
#: The Chromium that renders; if it is absent, one is searched for.
CHROMIUM_PATH = "CHROMIUM_PATH"
#: The module in which the spider was when its egg was deployed; and whether the project wants all its modules
#: imported, because they depend on one another's side effects.
LISTED_MODULE = "LISTED_MODULE"
IMPORT_ALL_SPIDERS = "IMPORT_ALL_SPIDERS"
