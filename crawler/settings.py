"""Scrapy settings of our own project. The add-on has those that every project on a node must have."""

from __future__ import annotations

from importlib.metadata import version

BOT_NAME = "discoverybot"
SPIDER_MODULES = ["crawler.spiders"]
NEWSPIDER_MODULE = "crawler.spiders"
ADDONS = {"crawler.addon.DiscoveryBot": 500}

#: Says who we are; robots.txt groups are matched by the part before the slash.
USER_AGENT = f"DiscoveryBot/{version('discoverybot')} (Scrapy/{version('scrapy')})"
ROBOTSTXT_OBEY = True

# pages that the same user's crawls fetched a moment ago; deployed projects ask for them with the same setting
HTTPCACHE_ENABLED = True
HTTPCACHE_STORAGE = "crawler.http_cache.RedisCacheStorage"

CONCURRENT_REQUESTS = 16
CONCURRENT_REQUESTS_PER_DOMAIN = 8
DOWNLOAD_DELAY = 0
# Scrapy starts this many tasks for each page, even if it has fewer items: its default of 100 costs a millisecond.
CONCURRENT_ITEMS = 4

# Scrapy's 60 s for a name and 180 s for a page are for batch jobs that nobody watches.
DNS_TIMEOUT = 10
DOWNLOAD_TIMEOUT = 30
RETRY_TIMES = 2
REDIRECT_MAX_TIMES = 10

# Scrapy would read and parse the source of our callbacks in every crawl to find a mistake that our linter finds, too.
WARN_ON_GENERATOR_RETURN_VALUE = False

LOGSTATS_INTERVAL = 10
# `Versions:` would be eleven lines of log before the first about the crawl.
LOG_VERSIONS: list[str] = []
