"""`/sites`, and what they can be asked for."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from gateway.services.sites import SiteService
from gateway.web.dependencies import Parts
from gateway.web.schemas.problem import problems
from gateway.web.schemas.site import (
    SiteAbilities,
    SiteAbilitiesList,
    SiteChanges,
    SiteDeletion,
    SitePage,
    SiteRequest,
    SitesQuery,
    SiteView,
)
from gateway.web.store_route import StoreRoute

router = APIRouter(tags=["sites"], route_class=StoreRoute)

SiteName = Annotated[str, Path(description="As `POST /sites` was given it.", examples=["example-jobs"])]


@router.get("/sites", summary="List sites", responses=problems(503))
async def list_sites(query: Annotated[SitesQuery, Query()], parts: Parts) -> SitePage:
    """By name. Pass `next` as `after` for the page that follows."""
    found, following = await parts.reads.run(
        lambda: parts[SiteService].page(query.limit, query.after, enabled=query.enabled)
    )
    return SitePage(sites=[SiteView.of(*one) for one in found], next=following)


@router.post("/sites", summary="Add a site", status_code=201, responses=problems(409, 413, 503))
def add_site(body: SiteRequest, parts: Parts, response: Response) -> SiteView:
    """It is crawled every `interval_minutes` from now on, unless its template needs words that `payload` has not."""
    parts.truth.require()
    view = SiteView.of(*parts[SiteService].create(body.given()))
    response.headers["Location"] = f"/sites/{view.name}"
    return view


@router.get("/sites/{name}", summary="A site", responses=problems(404, 503))
def get_site(name: SiteName, parts: Parts) -> SiteView:
    return SiteView.of(*parts[SiteService].get(name))


@router.patch("/sites/{name}", summary="Change a site", responses=problems(404, 409, 413, 503))
def change_site(name: SiteName, body: SiteChanges, parts: Parts) -> SiteView:
    """What is named is replaced, and no run of what it was begins after the answer. Disabling it pauses its schedule
    and those of its targets; runs that have begun go on.
    """
    parts.truth.require()
    return SiteView.of(*parts[SiteService].edit(name, body.given()))


@router.delete("/sites/{name}", summary="Delete a site", status_code=204, responses=problems(404, 409, 503))
def delete_site(name: SiteName, query: Annotated[SiteDeletion, Query()], parts: Parts) -> None:
    """One that targets name only with `force=true`, which deletes them too. Runs that have been made go on."""
    parts.truth.require()
    parts[SiteService].delete(name, force=query.force)


@router.get("/jobs/sites", summary="What sites can be asked for", responses=problems(503))
def list_abilities(parts: Parts) -> SiteAbilitiesList:
    """For `POST /jobs/scrape`: every site, and what a run of it can be told."""
    return SiteAbilitiesList(sites=[SiteAbilities.of(site) for site in parts[SiteService].all()])
