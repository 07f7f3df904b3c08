"""What a crawl is to do, as its own process reads it: the attempt's spec, and the node's rules for every crawl.

Both were checked before: the spec when it was submitted and once more by Scrapyd, the node's settings when Scrapyd
started. They are not checked here, because a spider's process may run in its project's own Python, which lacks
pydantic.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from gateway.contract.outbox import SPEC, AttemptId, read_file

if TYPE_CHECKING:
    from collections.abc import Mapping

OrderT = TypeVar("OrderT")


def _known(cls: type[OrderT], values: Mapping[str, Any]) -> OrderT:
    """A `cls` from those values that are its fields. Other values are for newer versions, or for other readers."""
    names = {one.name for one in dataclasses.fields(cls)}  # type: ignore[arg-type]  # only dataclasses come here
    return cls(**{name: value for name, value in values.items() if name in names})


# --- the spec of an attempt; `gateway/contract/crawl.py` describes its fields


@dataclass(frozen=True)
class Fetch:
    """`FetchOptions` of the contract."""

    headers: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    user_agent: str | None = None
    proxy: str | None = None
    min_pause_seconds: float | None = None
    max_pause_seconds: float | None = None
    concurrency: int | None = None
    obey_robots: bool | None = None
    retry_codes: list[int] | None = None
    rate_limit: str | None = None
    respect: list[str] | None = None

    @property
    def variant(self) -> str:
        """Digest of the options that can change a site's answers or what is cached; empty without any."""
        options = {
            **({"headers": self.headers} if self.headers else {}),
            **({"cookies": self.cookies} if self.cookies else {}),
            **{name: getattr(self, name) for name in ("user_agent", "proxy", "retry_codes")},
        }
        given = {name: value for name, value in options.items() if value is not None}
        text = json.dumps(given, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return sha256(text.encode()).hexdigest()[:16] if given else ""


@dataclass(frozen=True)
class Expected:
    """`Expect` of the contract."""

    min_items: int | None = None
    max_error_rate: float | None = None
    fields: dict[str, float] = field(default_factory=dict)
    stop_early_after: int | None = None


@dataclass(frozen=True)
class AttemptOrder:
    """`NodeSpec` of the contract, as far as a spider's process needs it."""

    job_id: str
    attempt: int
    project: str
    spider: str
    start_urls: list[str] = field(default_factory=list)
    depth: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    max_pages: int | None = None
    max_items: int | None = None
    ignore_cache: bool = False
    fetch: Fetch | None = None
    expect: Expected | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    site: str | None = None
    site_rate_limit: str | None = None
    user_id: str = ""
    correlation_id: str | None = None
    left_on: str | None = None
    allowance: dict[str, int] | None = None

    @property
    def scrapyds_id(self) -> str:
        """The id by which Scrapyd knows the attempt."""
        return str(AttemptId(self.job_id, self.attempt))

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Self:
        order = _known(cls, spec)
        fetch, expect = spec.get("fetch"), spec.get("expect")
        return dataclasses.replace(
            order,
            fetch=None if fetch is None else _known(Fetch, fetch),
            expect=None if expect is None else _known(Expected, expect),
        )


def read_order(folder: Path) -> AttemptOrder:
    """The spec in an attempt's folder. Raises `OSError`, `ValueError`."""
    return AttemptOrder.of(json.loads(read_file(folder / SPEC)))


# --- what the node decides

#: JSON of a `NodeRules`, in the environment of every process that Scrapyd starts for a project.
NODE_RULES = "DISCOVERYBOT_NODE"


@dataclass(frozen=True)
class NodeRules:
    """The settings of a node that matter in a crawl, by their names in `NodeSettings`."""

    log_level: str
    crawl_allow_networks: list[str]
    crawl_allow_handlers: list[str]
    crawl_max_page_bytes: int
    crawl_max_page_seconds: float
    crawl_max_log_bytes: int
    crawl_stop_grace: float
    crawl_stall_seconds: float
    crawl_frontier: bool
    crawl_max_undone: int
    requests_max_count: int
    requests_max_bytes: int
    chromium_path: str | None
    rate_limit_redis_url: str | None
    http_cache_redis_url: str | None
    http_cache_ttl: int
    #: Whether every project has a user of its own.
    alone: bool
    #: It has a default because a Scrapyd of release 0.2.0 may still run; that release has only
    #: `crawl_max_page_bytes`.
    crawl_page_bytes: int = 32 << 20

    @classmethod
    def of(cls, settings: Any) -> Self:
        """The rules from `NodeSettings`, a class that this module does not import."""
        names = [one.name for one in dataclasses.fields(cls) if one.name != "alone"]
        rules = {name: getattr(settings, name) for name in names}
        for name in ("crawl_allow_networks", "crawl_allow_handlers"):
            rules[name] = list(rules[name])
        path = settings.chromium_path
        return cls(**{**rules, "chromium_path": path and str(path), "alone": bool(settings.user_range)})

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def node_rules() -> NodeRules:
    """The rules of the node that has started this process; without a node, those of the environment's settings."""
    if text := os.environ.get(NODE_RULES):
        return _known(NodeRules, json.loads(text))
    from gateway.settings import NodeSettings  # noqa: PLC0415 - only in the node's own Python, as `scrapy crawl seo`

    return NodeRules.of(NodeSettings.load())
