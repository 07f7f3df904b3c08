"""Which job answers a request: one Redis string a request, claimed with a single command.

The string is a hint. What decides is MongoDB's unique `live_key`; a key that was flushed, or whose owner died
before its document was there, costs the next request a look into MongoDB and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson
import redis
import redis.asyncio
from w3lib.url import canonicalize_url, safe_url_string

from gateway.contract.crawl import CrawlSpec
from gateway.crash_points import state_change


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


_PROVISIONAL, _CONFIRMED = "P", "C"

# KEYS: key; ARGV: what must stand there, what shall, TTL in seconds. An absent key stays absent: a job that has
# failed meanwhile released it, and one that was flushed costs the next request a look into MongoDB.
_CONFIRM = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) return 1 end
return 0
"""
# KEYS: key; ARGV: the entry. Only that very entry is removed: not one that was confirmed meanwhile.
_WITHDRAW = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
# KEYS: key; ARGV: job id. Either spelling of that job's entry is removed, another job's stays.
_RELEASE = """
local present = redis.call('GET', KEYS[1])
if present and string.sub(present, 3, 2 + #ARGV[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class Entry(NamedTuple):
    job_id: str
    #: Milliseconds since the epoch at which the key was first claimed.
    at_ms: int
    #: The job's document is known to exist.
    confirmed: bool

    def encode(self) -> str:
        return f"{_CONFIRMED if self.confirmed else _PROVISIONAL}|{self.job_id}|{self.at_ms}"

    @classmethod
    def decode(cls, value: bytes) -> Entry:
        state, job_id, at_ms = value.decode().split("|")
        return cls(job_id, int(at_ms), state == _CONFIRMED)


class Dedupe:
    """The event loop's side: what `POST /crawl` waits for. `ttl` in seconds."""

    def __init__(self, client: redis.asyncio.Redis, ttl: int) -> None:
        self._redis = client
        self._ttl = ttl
        self._confirm = client.register_script(_CONFIRM)
        self._withdraw = client.register_script(_WITHDRAW)

    @state_change("dedupe.claim")
    async def claim(self, key: str, mine: Entry) -> Entry | None:
        """Take the key unless somebody has it; their entry, or `None` where it is ours now."""
        present = await self._redis.set(key, mine.encode(), nx=True, get=True, ex=self._ttl)
        return Entry.decode(present) if isinstance(present, bytes) else None

    async def present(self, key: str) -> Entry | None:
        """Who has the key."""
        present = await self._redis.get(key)
        return Entry.decode(present) if isinstance(present, bytes) else None

    @state_change("dedupe.confirm")
    async def confirm(self, key: str, claimed: Entry, job_id: str) -> None:
        """The document exists: from now on the key alone answers. `job_id` differs if another job has won. What was
        released, flushed or taken by another request meanwhile is left as it is.
        """
        confirmed = Entry(job_id, claimed.at_ms, confirmed=True)
        await self._confirm(keys=[key], args=[claimed.encode(), confirmed.encode(), self._ttl])

    @state_change("dedupe.overwrite")
    async def overwrite(self, key: str, entry: Entry) -> None:
        """A fresh run was asked for: its job answers from now on."""
        await self._redis.set(key, entry.encode(), ex=self._ttl)

    @state_change("dedupe.withdraw")
    async def withdraw(self, key: str, claimed: Entry) -> None:
        """The request was refused after all: leave nothing behind."""
        await self._withdraw(keys=[key], args=[claimed.encode()])


class DedupeRelease:
    """The other side, for whoever ends or deletes a job."""

    def __init__(self, client: redis.Redis) -> None:
        self._release = client.register_script(_RELEASE)

    @state_change("dedupe.release")
    def release(self, key: str, job_id: str) -> None:
        """Remove the key if it still names this job. Raises `redis.RedisError`."""
        self._release(keys=[key], args=[job_id])
