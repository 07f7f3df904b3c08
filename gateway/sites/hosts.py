"""Finds what crawls a host: spiders by their `allowed_domains` and their recent runs, sites by their URLs."""

from __future__ import annotations

from urllib.parse import urlsplit

from attrs import define

from gateway.contract.records import SpiderInfo
from gateway.jobs.hosts import CrawledHost, SpiderOfProject, is_below
from gateway.jobs.queries import JobQueries
from gateway.projects.catalog import SpiderCatalog
from gateway.sites.store import SiteStore
from gateway.stores.mongo import mongo_errors


@define(eq=False, repr=False, slots=False)
class HostLookup:
    _catalog: SpiderCatalog
    _queries: JobQueries
    _sites: SiteStore

    def find(self, name: str) -> CrawledHost:
        """Raises `UnavailableError`."""
        with mongo_errors():
            spiders, schedules = self._queries.that_asked(name)
            known = {SpiderOfProject(one.project, one.name) for one in self._catalog.select() if _covers(one, name)}
            sites = [site.name for site in self._sites.all() if is_below(_host(site.search_url), name)]
        return CrawledHost(name, tuple(sorted(spiders | known)), tuple(sites), tuple(sorted(schedules)))


def _covers(spider: SpiderInfo, host: str) -> bool:
    """Whether the spider names the host, one above it or one below it as what it crawls."""
    domains = (domain.lower() for domain in spider.allowed_domains)
    return any(is_below(host, domain) or is_below(domain, host) for domain in domains)


def _host(url: str) -> str:
    return (urlsplit(url).hostname or "").rstrip(".")
