"""The identity of a request: two requests with the same fingerprint ask for the same work."""

from __future__ import annotations

import hashlib

import orjson
from w3lib.url import canonicalize_url

from gateway.domain.job import CrawlSpec


def fingerprint(user_id: str, spec: CrawlSpec, *, when: dict[str, str] | None = None) -> str:
    """SHA-256, hexadecimal, over everything that changes the work: who, project, spider, the set of start URLs
    (canonical, order and repeats ignored), version, depth, params, limits and, for schedules, when.

    `ignore_cache` is how the answer may be found, not what is asked: it is left out.
    """
    identity = {
        "user": user_id,
        "project": spec.project,
        "version": spec.version,
        "spider": spec.spider,
        "start_urls": sorted({canonicalize_url(url) for url in spec.start_urls}),
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
