"""Scrapy settings of our own: what the runner tells the components that the add-on puts in."""

from __future__ import annotations

#: The attempt's folder; without it there is nobody to report to.
ATTEMPT_DIR = "ATTEMPT_DIR"
#: How many pages the crawl may ask for; 0 is no limit.
MAX_PAGES = "MAX_PAGES"
#: How many items it may hand out; 0 is no limit.
MAX_ITEMS = "MAX_ITEMS"
#: Bytes and seconds that one page may take at most, whatever a request says.
MAX_PAGE_BYTES = "MAX_PAGE_BYTES"
MAX_PAGE_SECONDS = "MAX_PAGE_SECONDS"
#: Bytes of log; 0 is no limit.
MAX_LOG_BYTES = "MAX_LOG_BYTES"
#: Networks (CIDR) that may be reached though they are not public.
EGRESS_ALLOWED_NETWORKS = "EGRESS_ALLOWED_NETWORKS"
#: The HTTP cache: where, for whom, and whether to renew what is there without looking at it.
HTTPCACHE_REDIS_URL = "HTTPCACHE_REDIS_URL"
HTTPCACHE_USER = "HTTPCACHE_USER"
HTTPCACHE_REFRESH = "HTTPCACHE_REFRESH"
