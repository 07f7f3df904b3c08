"""Queries for the jobs and schedules that crawl a host or a subdomain of it. The host may be named by a request, a
site, or the spider itself.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gateway.stores.mongo import Document


class SpiderOfProject(NamedTuple):
    project: str
    spider: str


class CrawledHost(NamedTuple):
    #: `example.com`, which also means `www.example.com`.
    name: str
    #: What crawls the host without naming it in start URLs: spiders with start URLs of their own, sites, and
    #: schedules whose recent runs have sent requests to the host.
    spiders: tuple[SpiderOfProject, ...] = ()
    sites: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()


def is_below(host: str, above: str) -> bool:
    """Whether `host` is `above` or below it: `www.example.com` is below `example.com`."""
    return host == above or host.endswith(f".{above}")


def named_in(path: str, host: str) -> Document:
    """The condition that one of the URLs at `path` has the host."""
    # a login and a port may stand beside the host, and brackets around an IPv6 address
    pattern = rf"^https?://([^/?#]*[@.])?\[?{re.escape(host)}\]?(:[0-9]+)?([/?#]|$)"
    return {path: {"$regex": pattern, "$options": "i"}}


def asked(host: str) -> Document:
    """The condition that a job has asked the host."""
    return {"progress.hosts": {"$regex": rf"(^|\.){re.escape(host)}$"}}


def without_urls(spec: str) -> Document:
    """The condition that the crawl begins at the start URLs of its spider."""
    return {f"{spec}.start_urls.0": {"$exists": False}}


def of_spiders(spec: str, host: CrawledHost) -> list[Document]:
    """The condition that the crawl is of a spider that crawls the host by itself, if there is such a spider."""
    spiders = [{f"{spec}.project": one.project, f"{spec}.spider": one.spider} for one in host.spiders]
    return [{"$and": [without_urls(spec), {"$or": spiders}]}] if spiders else []


def job_crawls(host: CrawledHost) -> Document:
    """The condition for jobs. What a job has asked counts for more than what its spider is known for."""
    unasked: Document = {"progress.hosts.0": {"$exists": False}}
    by_spider: list[Document] = [{"$and": [unasked, one]} for one in of_spiders("spec", host)]
    return {"$or": [asked(host.name), named_in("spec.start_urls", host.name), *by_spider]}


def schedule_crawls(host: CrawledHost) -> Document:
    known: list[Document] = [{"site": {"$in": list(host.sites)}}, {"_id": {"$in": list(host.schedules)}}]
    return {"$or": [named_in("crawl.spec.start_urls", host.name), *known, *of_spiders("crawl.spec", host)]}
