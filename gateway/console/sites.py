"""`/console/sites`: the pages and forms of sites and their targets, and the results of their runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import orjson
from fastapi import Query, Request, Response

from gateway.access.keys import Scope
from gateway.console.days import histories_of, in_list
from gateway.console.pages import Pages, page
from gateway.contract.crawl import PaginationType
from gateway.jobs.job import LIVE_STATUSES
from gateway.jobs.run_days import RunSubject
from gateway.sites.site import KEYWORDS, LOCATION, SELECTORS, SearchUrl
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts
from gateway.web.routes.jobs import QueueQuery, SiteRunsView, count_jobs, get_queue_status, list_jobs
from gateway.web.routes.sites import (
    NamedSite,
    SitesQuery,
    SiteView,
    TargetId,
    TargetsQuery,
    get_site,
    get_target,
    list_sites,
    list_targets,
)
from gateway.web.schemas.types import JobCountQuery, JobsQuery, QueryModel, UserId

router = Pages()

#: The share of good runs is computed over this many hours, a week.
_HOURS = 168
#: The page of a site shows this many runs.
_RUNS = 10


class SitesPageQuery(SitesQuery):
    user_id: UserId | None = None


class SitePageQuery(QueryModel):
    #: The number of the last target on the previous page of targets.
    after: Annotated[str, Query(pattern="^[0-9]{1,15}$")] | None = None
    user_id: UserId | None = None


@router.page("/console/sites")
@needs(Scope.CRAWL)
async def sites(
    query: Annotated[SitesPageQuery, Query()], request: Request, parts: Parts, caller: Called
) -> Response:
    asked = SitesQuery(**query.model_dump(exclude={"user_id"}))
    found = await list_sites(asked, parts)
    still = {one.name: await _still(one.name, parts, caller) for one in found.sites if not one.enabled}
    last = {one.name: await _last_run(one, parts, caller) for one in found.sites}
    days = await parts.threads.run(histories_of, RunSubject.SITE, list(last), parts, caller)
    return page(request, "sites/list.html", found=found, asked=query, still=still, last=last, **in_list(days))


async def _last_run(site: SiteView, parts: GatewayParts, caller: Called) -> datetime | None:
    """When the newest run of the site began. Runs that were started by hand count, too; the site's schedule does not
    know them.
    """
    newest = (await list_jobs(JobsQuery(site=site.name, limit=1), parts, caller)).jobs
    return newest[0].started_at or newest[0].created_at if newest else site.last_run_at


async def _still(name: str, parts: GatewayParts, caller: Called) -> int:
    """How many runs of the site have not ended."""
    return (await count_jobs(JobCountQuery(site=name, status=sorted(LIVE_STATUSES)), parts, caller)).count


async def _fared(parts: GatewayParts, caller: Called) -> dict[str, SiteRunsView]:
    """By site: how its runs have ended in the last week. Empty unless the caller is an admin, because the figures
    include the runs of all users.
    """
    if Scope.ADMIN not in caller.scopes:
        return {}
    report = await get_queue_status(QueueQuery(hours=_HOURS), parts)
    return {one.site_name: one for one in report.sites}


@router.page("/console/sites/{name}")
@needs(Scope.CRAWL)
async def one_site(
    name: NamedSite, query: Annotated[SitePageQuery, Query()], request: Request, parts: Parts, caller: Called
) -> Response:
    site = await parts.threads.run(get_site, name, parts)
    places = SearchUrl(site.search_url).placeholders
    return page(
        request,
        "sites/one.html",
        site=site,
        targets=await list_targets(TargetsQuery(site=name, after=query.after), parts),
        asked=query,
        runs=(await list_jobs(JobsQuery(site=name, limit=_RUNS), parts, caller)).jobs,
        fared=(await _fared(parts, caller)).get(name),
        still=0 if site.enabled else await _still(name, parts, caller),
        live=sorted(LIVE_STATUSES),
        takes={"search_term": KEYWORDS in places, "location": LOCATION in places},
    )


@router.page("/console/new-site")
@needs(Scope.ADMIN)
async def new_site(request: Request) -> Response:
    return page(request, "sites/form.html", site=None, texts=_texts(None), **_choices())


@router.page("/console/sites/{name}/edit")
@needs(Scope.ADMIN)
def edit_site(name: NamedSite, request: Request, parts: Parts) -> Response:
    site = get_site(name, parts)
    return page(request, "sites/form.html", site=site, texts=_texts(site), **_choices())


@router.page("/console/targets/{target_id}")
@needs(Scope.ADMIN)
def edit_target(target_id: TargetId, request: Request, parts: Parts) -> Response:
    return page(request, "sites/target.html", target=get_target(target_id, parts))


def _choices() -> dict[str, Any]:
    return {"paginations": [one.value for one in PaginationType], "selectors": SELECTORS}


def _texts(site: SiteView | None) -> dict[str, str]:
    """The selectors, payload and expectations of a site as text for the fields of the form."""
    if site is None:
        return dict.fromkeys(("selectors", "payload", "expect"), "")
    expect = site.expect.model_dump(mode="json", exclude_defaults=True) if site.expect else None
    return {
        "selectors": "\n".join(f"{name}={selector}" for name, selector in site.selectors.items()),
        "payload": _json(site.payload) if site.payload else "",
        "expect": _json(expect) if expect else "",
    }


def _json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
