"""`/console/jobs/{id}/compare?job_id=OTHER`: what changed from the earlier of two runs to the later one. Without
`job_id`, a run is compared with the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, NamedTuple

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import Field

from gateway.access.keys import Caller, Scope
from gateway.console.formats import duration
from gateway.console.job_view import RunRow, pretty, runs, today_and_before
from gateway.console.pages import Pages, Viewer, page
from gateway.jobs.attempts import AttemptStore
from gateway.jobs.job import GOOD_STATUSES, Job, ListedJob
from gateway.jobs.queries import JobFilter, JobQueries
from gateway.jobs.run_days import day_of
from gateway.jobs.store import JobStore
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import JobId, Parts
from gateway.web.routes.differences import DifferencesQuery, get_item_differences
from gateway.web.routes.fields import FieldsQuery, FieldView, read_fields
from gateway.web.routes.repair import answers_of, asked_of
from gateway.web.schemas.types import QueryModel

router = Pages()

#: A field is marked if its share has changed by more than this, as in the tab with the items.
_MARKED = 0.05


class CompareQuery(QueryModel):
    #: The other run. The user's right to see it is checked, as for every `job_id` in an address.
    job_id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = None


class CompareItemsQuery(CompareQuery):
    #: The fields that make two items the same item; empty: the dataset's key, or `url`.
    key: Annotated[str, Field(max_length=500)] = ""


class Beside(NamedTuple):
    name: str
    #: The values of the other run and of this run, as text.
    before: str
    now: str
    differs: bool
    #: Whether the value is worse than before.
    is_bad: bool = False


@router.page("/console/jobs/{job_id}/compare")
@needs(Scope.READ)
def compare_page(
    request: Request, job_id: JobId, query: Annotated[CompareQuery, Query()], parts: Parts, caller: Called
) -> Response:
    with mongo_errors():
        now = parts[AttemptStore].complete(parts[JobStore].get(job_id))
        before = _other(now, query.job_id, parts, caller)
    if before is None:
        return page(request, "job/compare.html", now=now, before=None)
    if before.created_at > now.created_at:
        # the other way round, every difference would be told backwards
        return RedirectResponse(Viewer.of(request).link(f"/console/jobs/{before.id}/compare", job_id=now.id))
    new, old = runs([now, before], parts.clock()).rows
    return page(
        request,
        "job/compare.html",
        now=now,
        before=before,
        figures=list(_figures(before, now, old, new)),
        asked=list(_asked(before, now)),
        fields=list(_fields(before, now, parts, caller)),
        stats=list(_stats(before, now)),
    )


@router.page("/console/jobs/{job_id}/compare/items")
@needs(Scope.READ)
def compare_items(
    request: Request, job_id: JobId, query: Annotated[CompareItemsQuery, Query()], parts: Parts, caller: Called
) -> Response:
    """The part of the page with the items. It is loaded separately, because reading them takes seconds."""
    asked = DifferencesQuery(other_job_id=query.job_id, key=query.key.strip() or None)
    return page(
        request, "job/compare_items.html", found=get_item_differences(job_id, asked, parts, caller), asked=query
    )


def _other(now: Job, other: str | None, parts: GatewayParts, caller: Caller) -> Job | None:
    """The job with this id. Without an id: the last earlier run of the same schedule or request that ended well."""
    if other is not None:
        return parts[AttemptStore].complete(parts[JobStore].get(other))
    return next(iter(parts[JobQueries].runs_before(now, 1, of_all_users=caller.user_id is None)), None)


class TwoDays(NamedTuple):
    """Two runs to compare: one of today, and one of an earlier day."""

    today: ListedJob
    before: ListedJob
    #: How the earlier day is called.
    day: str


#: Among so many good runs of today, and of the days before, the two are looked for.
_LOOKED_AT = 20


def two_days(wanted: JobFilter, parts: GatewayParts) -> TwoDays | None:
    """`None` if there are no two."""
    now, midnight = parts.clock(), day_of(parts.clock())
    good = wanted._replace(status=tuple(sorted(GOOD_STATUSES)))
    halves = good._replace(since=midnight), good._replace(until=midnight)
    with mongo_errors():
        found = today_and_before(
            [job for half in halves for job in parts[JobQueries].page(half, _LOOKED_AT).jobs], now
        )
    if found is None:
        return None
    is_yesterday = day_of(found[1].created_at) == midnight - timedelta(days=1)
    return TwoDays(*found, "yesterday" if is_yesterday else f"{found[1].created_at:%d %b}")


def _figures(before: Job, now: Job, old: RunRow, new: RunRow) -> Iterator[Beside]:
    for name, left, right in (
        ("Status", before.status.value, now.status.value),
        ("Message", before.message, now.message),
        ("Version", before.spec.version, now.spec.version),
        ("Duration", duration(old.seconds), duration(new.seconds)),
        ("Pages", f"{old.pages:,}", f"{new.pages:,}"),
        ("Items", f"{old.items:,}", f"{new.items:,}"),
        ("Errors", f"{old.errors:,}", f"{new.errors:,}"),
        ("Attempts", f"{old.job.attempts_count}", f"{new.job.attempts_count}"),
        ("Node", before.node, now.node),
    ):
        yield Beside(name, left or "–", right or "–", left != right)


def _asked(before: Job, now: Job) -> Iterator[Beside]:
    """The differences between the two requests. Secrets are shown by their names only."""
    left, right = (asked_of(one) for one in (before, now))
    for name in dict.fromkeys([*left, *right]):
        if left.get(name) != right.get(name):
            yield Beside(name, pretty(left.get(name)) or "–", pretty(right.get(name)) or "–", differs=True)


def _fields(before: Job, now: Job, parts: GatewayParts, caller: Caller) -> Iterator[Beside]:
    """How full each field is in both runs, and the types of its values."""
    left, right = (
        {field.name: field for field in read_fields(parts, one.id, FieldsQuery(), caller).fields}
        for one in (before, now)
    )
    for name in dict.fromkeys([*right, *left]):
        old, new = left.get(name), right.get(name)
        change = (new.share if new else 0.0) - (old.share if old else 0.0)
        other_types = bool(old and new) and _types(old) != _types(new)
        is_bad = change < -_MARKED or other_types
        yield Beside(name, _full(old), _full(new), is_bad or change > _MARKED, is_bad)


def _full(field: FieldView | None) -> str:
    return f"{field.share:.0%} {_types(field)}" if field else "–"


def _types(field: FieldView | None) -> str:
    return ", ".join(sorted(name for name in field.types if name != "null")) if field else ""


def _stats(before: Job, now: Job) -> Iterator[Beside]:
    left, right = (answers_of(one) for one in (before, now))
    for name in sorted({*left, *right}):
        old, new = left.get(name, 0), right.get(name, 0)
        yield Beside(name, f"{old:,}", f"{new:,}", old != new)
