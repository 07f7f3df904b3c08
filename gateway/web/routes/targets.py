"""`/targets`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from gateway.services.targets import TargetService
from gateway.web.dependencies import Parts
from gateway.web.schemas.problem import problems
from gateway.web.schemas.target import TargetChanges, TargetPage, TargetRequest, TargetsQuery, TargetView
from gateway.web.store_route import StoreRoute

router = APIRouter(prefix="/targets", tags=["sites"], route_class=StoreRoute)

TargetId = Annotated[str, Path(description="Its id, or its running number.", examples=["7"])]


@router.get("", summary="List targets", responses=problems(503))
async def list_targets(query: Annotated[TargetsQuery, Query()], parts: Parts) -> TargetPage:
    """By number. Pass `next` as `after` for the page that follows."""
    after = None if query.after is None else int(query.after)
    found, following = await parts.reads.run(
        lambda: parts[TargetService].page(query.limit, after, site=query.site, enabled=query.enabled)
    )
    next_page = None if following is None else str(following)
    return TargetPage(targets=[TargetView.of(*one) for one in found], next=next_page)


@router.post("", summary="Add a target", status_code=201, responses=problems(409, 413, 503))
def add_target(body: TargetRequest, parts: Parts, response: Response) -> TargetView:
    """Something to search for on a site, again and again, from now on."""
    parts.truth.require()
    view = TargetView.of(*parts[TargetService].create(body.given()))
    response.headers["Location"] = f"/targets/{view.id}"
    return view


@router.get("/{target_id}", summary="A target", responses=problems(404, 503))
def get_target(target_id: TargetId, parts: Parts) -> TargetView:
    return TargetView.of(*parts[TargetService].get(target_id))


@router.patch("/{target_id}", summary="Change a target", responses=problems(404, 409, 413, 503))
def change_target(target_id: TargetId, body: TargetChanges, parts: Parts) -> TargetView:
    """What is named is replaced, and no run of what it was begins after the answer."""
    parts.truth.require()
    return TargetView.of(*parts[TargetService].edit(target_id, body.given()))


@router.delete("/{target_id}", summary="Delete a target", status_code=204, responses=problems(404, 409, 503))
def delete_target(target_id: TargetId, parts: Parts) -> None:
    """With its schedule. Runs that have been made go on."""
    parts.truth.require()
    parts[TargetService].delete(target_id)
