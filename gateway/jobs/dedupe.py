"""Finds the job that already answers a repeated request. Redis has one string for each distinct request, claimed with
a single command.

The string is only a hint: MongoDB's unique `live_key` decides. If the key was flushed, or its owner died before it
inserted the job's document, the next request needs just one query to MongoDB.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson
import redis
import redis.asyncio
from pydantic import BaseModel
from w3lib.url import canonicalize_url, safe_url_string

from gateway.contract.crawl import SPEC_FIELDS, CrawlSpec, is_given
from gateway.crash_points import state_change
from gateway.errors import InvalidRequestError

_IDENTITY = {name: field.identity for name, field in SPEC_FIELDS.items() if field.identity != "never"}


def fingerprint(user_id: str, spec: CrawlSpec, *, when: dict[str, str] | None = None) -> str:
    """SHA-256, hexadecimal, of everything that changes the work: user, project, spider, the set of start URLs
    (canonical, order and repeats ignored), all other fields of `CrawlSpec`, and, for schedules, the times (`when`).

    Raises `InvalidRequestError` for values that JSON or MongoDB cannot hold.
    """
    given = {name: getattr(spec, name) for name in _IDENTITY}
    given["start_urls"] = sorted({canonical_url(url) for url in spec.start_urls})
    identity = {
        "user": user_id,
        "when": when,
        **{
            name: _plain(value)
            for name, value in given.items()
            if _IDENTITY[name] == "always" or is_given(spec, name)
        },
    }
    try:
        text = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        raise InvalidRequestError("params", "must hold only valid Unicode and integers of 64 bits") from error
    return hashlib.sha256(text).hexdigest()


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_defaults=True) if isinstance(value, BaseModel) else value


@lru_cache(maxsize=1024)  # most requests repeat an earlier one
def canonical_url(url: str) -> str:
    """The URL in canonical form. The fragment and the order of the query stay, as they may make it another page."""
    query = urlsplit(safe_url_string(url)).query
    return urlsplit(canonicalize_url(url, keep_fragments=True))._replace(query=query).geturl()


_PROVISIONAL, _CONFIRMED = "P", "C"
#: 14 digits of milliseconds reach beyond the year 5000.
_ENTRY = re.compile(rb"(?P<state>[PC])\|(?P<job>[0-9a-f]{32})\|(?P<ms>[0-9]{1,14})")

# KEYS: key; ARGV: expected entry, new entry, TTL in seconds. An absent key stays absent: either its job has failed
# meanwhile and released it, or the key was flushed and the next request asks MongoDB.
_CONFIRM = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3]) return 1 end
return 0
"""
# KEYS: key; ARGV: the entry. Removes only exactly this entry, and not an entry that was confirmed since.
_WITHDRAW = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
# KEYS: key; ARGV: job id. Removes the job's entry, provisional or confirmed. An entry of another job stays.
_RELEASE = """
local present = redis.call('GET', KEYS[1])
if present and string.sub(present, 3, 2 + #ARGV[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class Entry(NamedTuple):
    """What a dedupe key contains: the job that answers the request."""

    job_id: str
    #: Milliseconds since the epoch at which the key was first claimed.
    at_ms: int
    #: Whether the job's document is known to exist.
    confirmed: bool

    def encode(self) -> str:
        return f"{_CONFIRMED if self.confirmed else _PROVISIONAL}|{self.job_id}|{self.at_ms}"

    @classmethod
    def decode(cls, value: bytes) -> Entry | None:
        """The entry; `None` if `value` has another form: then something else has written it."""
        read = _ENTRY.fullmatch(value)
        return cls(read["job"].decode(), int(read["ms"]), read["state"] == _CONFIRMED.encode()) if read else None


class Dedupe:
    """The asynchronous part, which `POST /crawl` waits for. `ttl` is in seconds. If Redis cannot be reached or
    refuses a command, each method acts as if there were no keys, and never raises.
    """

    def __init__(self, client: redis.asyncio.Redis, ttl: int) -> None:
        self._redis = client
        self._ttl = ttl
        self._confirm = client.register_script(_CONFIRM)
        self._withdraw = client.register_script(_WITHDRAW)

    @state_change("dedupe.claim")
    async def claim(self, key: str, mine: Entry) -> Entry | None:
        """Take the key unless another request has it. Returns the other request's entry, or `None` if `mine` is
        stored. An entry that cannot be read is removed, and `None` is returned.
        """
        present = await _tried(self._redis.set(key, mine.encode(), nx=True, get=True, ex=self._ttl))
        entry = Entry.decode(present) if isinstance(present, bytes) else None
        if entry is None and present is not None:
            await _tried(self._withdraw(keys=[key], args=[present]))
        return entry

    async def peek(self, key: str) -> Entry | None:
        """The entry of the request that has the key; `None` if no request has it."""
        present = await _tried(self._redis.get(key))
        return Entry.decode(present) if isinstance(present, bytes) else None

    @state_change("dedupe.confirm")
    async def confirm(self, key: str, claimed: Entry, job_id: str) -> None:
        """Record that the job's document exists: from now on the key answers without MongoDB. `job_id` differs from
        the claimed one if another process inserted its job first. If the key was released, flushed or taken by
        another request meanwhile, it is not changed.
        """
        confirmed = Entry(job_id, claimed.at_ms, confirmed=True)
        await _tried(self._confirm(keys=[key], args=[claimed.encode(), confirmed.encode(), self._ttl]))

    @state_change("dedupe.overwrite")
    async def overwrite(self, key: str, entry: Entry) -> None:
        """Let this job answer repeated requests from now on, because the client asked for a fresh run."""
        await _tried(self._redis.set(key, entry.encode(), ex=self._ttl))

    @state_change("dedupe.withdraw")
    async def withdraw(self, key: str, claimed: Entry) -> None:
        """Remove the claim of a request that was refused after all."""
        await _tried(self._withdraw(keys=[key], args=[claimed.encode()]))


async def _tried(asked: Awaitable[Any]) -> Any:
    with suppress(redis.RedisError):
        return await asked
    return None


class DedupeRelease:
    """The synchronous part, for processes that end or delete a job."""

    def __init__(self, client: redis.Redis) -> None:
        self._redis = client
        self._release = client.register_script(_RELEASE)

    @state_change("dedupe.release")
    def release(self, key: str, job_id: str) -> None:
        """Remove the key if it still names this job. Raises `redis.RedisError`."""
        self._release(keys=[key], args=[job_id])

    @state_change("dedupe.release_all")
    def release_all(self, jobs: Mapping[str, str]) -> None:
        """As `release`, for many jobs in one round trip. `jobs`: each job's id and key."""
        if not jobs:
            return
        with self._redis.pipeline(transaction=False) as pipeline:
            for job_id, key in jobs.items():
                self._release(keys=[key], args=[job_id], client=pipeline)
            pipeline.execute()
