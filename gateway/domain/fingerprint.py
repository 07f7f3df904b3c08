"""The identity of a request: two requests with the same fingerprint ask for the same work."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from urllib.parse import urlsplit

import orjson
from w3lib.url import canonicalize_url, safe_url_string

from gateway.domain.job import CrawlSpec


def fingerprint(user_id: str, spec: CrawlSpec, *, when: dict[str, str] | None = None) -> str:
    """SHA-256, hexadecimal, over everything that changes the work: who, project, spider, the set of start URLs
    (canonical, order and repeats ignored), version, depth, params, limits and, for schedules, when.

    `ignore_cache` is how the answer may be found, not what is asked: it is left out.
    """
    return _digest(user_id, spec, when, _canonical)


def former_fingerprint(user_id: str, spec: CrawlSpec, *, when: dict[str, str] | None = None) -> str:
    """As versions before this one had it: without fragments, and with the query in order. What lives under it is the
    same request only if the `start_pages` are the same.
    """
    return _digest(user_id, spec, when, canonicalize_url)


def start_pages(spec: CrawlSpec) -> list[str]:
    return sorted({_canonical(url) for url in spec.start_urls})


def _canonical(url: str) -> str:
    """A fragment may name a page of its own, and a site may read its query in order."""
    query = urlsplit(safe_url_string(url)).query
    return urlsplit(canonicalize_url(url, keep_fragments=True))._replace(query=query).geturl()


def _digest(user_id: str, spec: CrawlSpec, when: dict[str, str] | None, canonical: Callable[[str], str]) -> str:
    identity = {
        "user": user_id,
        "project": spec.project,
        "version": spec.version,
        "spider": spec.spider,
        "start_urls": sorted({canonical(url) for url in spec.start_urls}),
        "depth": spec.depth,
        "params": spec.params,
        "max_pages": spec.max_pages,
        "max_items": spec.max_items,
        "timeout": spec.timeout,
        "fetch": spec.fetch.model_dump(mode="json", exclude_defaults=True) if spec.fetch else None,
        "site": spec.site,
        "when": when,
    }
    return hashlib.sha256(orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)).hexdigest()
