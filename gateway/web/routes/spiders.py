"""`GET /spiders`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gateway.services.spider_catalog import SpiderCatalog, project_name
from gateway.web.dependencies import Parts
from gateway.web.schemas.platform import ProjectView, SpiderList, SpidersQuery, SpiderView
from gateway.web.schemas.problem import problems
from gateway.web.store_route import StoreRoute

router = APIRouter(tags=["platform"], route_class=StoreRoute)


@router.get("/spiders", summary="What can be run", responses=problems(503))
def list_spiders(query: Annotated[SpidersQuery, Query()], parts: Parts) -> SpiderList:
    """Every spider of every version that the crawl nodes have."""
    project = project_name(query.project) if query.project else None
    infos = parts[SpiderCatalog].select(project=project, version=query.version, name=query.name)
    of_these = {info.project for info in infos}
    return SpiderList(
        spiders=[SpiderView.of(info) for info in infos],
        projects=[
            ProjectView.model_validate(project._asdict())
            for project in parts[SpiderCatalog].projects()
            if project.name in of_these
        ],
    )
