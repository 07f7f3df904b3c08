"""`/`: what the platform does now, and whether all is well."""

from __future__ import annotations

from fastapi import Request, Response

from gateway.web.console.pages import Pages, page
from gateway.web.dependencies import Parts
from gateway.web.routes.jobs import jobs_health

router = Pages()


@router.page("/", like="GET /jobs")
def overview(request: Request, parts: Parts) -> Response:
    return page(request, "overview.html", health=jobs_health(parts))
