"""From requests' schemas to what services take."""

from __future__ import annotations

from typing import Any

from gateway.domain.fetch_options import FetchOptions
from gateway.domain.job import DEFAULT_PROJECT, CrawlSpec
from gateway.domain.schedule import CatchUp, Overlap
from gateway.services.schedule_changes import Change
from gateway.services.schedule_submission import When, spelled
from gateway.services.spider_catalog import project_name
from gateway.services.submission import Order
from gateway.settings import Settings
from gateway.web.schemas.crawl import CrawlRequest
from gateway.web.schemas.schedule_request import ScheduleChange

_TIMING = {"interval", "timezone", "jitter", "ends_at"}
_SCHEDULE = {"name", "overlap", "catch_up", "max_runs"}
_ORDER = {"priority", "tags", "webhooks", "max_retries"}
_SPEC = {
    *("project", "version", "spider", "start_urls", "depth", "params", "max_pages", "max_items", "timeout"),
    *("ignore_cache", "fetch"),
}


def order_of(body: CrawlRequest, settings: Settings, *, ignore_cache: bool) -> Order:
    spec = CrawlSpec(
        project=project_name(body.project),
        version=body.version,
        spider=body.spider,
        start_urls=tuple(body.start_urls),
        depth=body.depth,
        params=body.params,
        max_pages=body.max_pages,
        max_items=body.max_items,
        timeout=settings.job_timeout if body.timeout is None else body.timeout,
        ignore_cache=ignore_cache,
        fetch=_wishes(body.fetch),
    )
    return Order(
        user_id=body.user_id,
        spec=spec,
        priority=body.priority,
        tags=tuple(dict.fromkeys(body.tags)),
        max_retries=settings.max_retries if body.max_retries is None else body.max_retries,
        webhook_url=body.webhook_url,
    )


def when_of(body: CrawlRequest, name: str | None = None) -> When | None:
    """`None` for a crawl that is run now."""
    if body.interval is None and body.schedule_at is None:
        return None
    return When(
        schedule_at=body.schedule_at,
        interval=body.interval,
        timezone=body.timezone or "UTC",
        jitter=body.jitter,
        overlap=body.overlap or Overlap.SKIP,
        catch_up=body.catch_up or CatchUp.ONE,
        ends_at=body.ends_at,
        max_runs=body.max_runs,
        name=name,
    )


def change_of(body: ScheduleChange, settings: Settings) -> Change:
    """Only what was given; null is the default."""
    given = {name: getattr(body, name) for name in body.model_fields_set}
    defaults: dict[str, Any] = {
        "project": DEFAULT_PROJECT,
        "timezone": "UTC",
        "overlap": Overlap.SKIP,
        "catch_up": CatchUp.ONE,
        "timeout": settings.job_timeout,
        "max_retries": settings.max_retries,
    }
    wanted = {name: defaults.get(name) if value is None else _plain(name, value) for name, value in given.items()}
    timing = _only(_TIMING, wanted)
    if "schedule_at" in wanted:
        timing["starts_at"] = wanted["schedule_at"]
    return Change(_only(_SCHEDULE, wanted), timing, _only(_ORDER, wanted), _only(_SPEC, wanted), body.rev)


def _only(names: set[str], fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in names}


def _plain(name: str, value: Any) -> Any:
    match name:
        case "interval":
            return spelled(value)
        case "project":
            return project_name(value)
        case "start_urls" | "webhooks" | "tags":
            return tuple(dict.fromkeys(value) if name != "start_urls" else value)
        case "fetch":
            return _wishes(value)
        case _:
            return value


def _wishes(fetch: FetchOptions | None) -> FetchOptions | None:
    """None at all are none."""
    return None if fetch == FetchOptions() else fetch
