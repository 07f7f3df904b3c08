"""`/console/nodes`: the crawl nodes, whether each of them gets work, and if not, why."""

from __future__ import annotations

from fastapi import Request, Response

from gateway.access.keys import Scope
from gateway.console.pages import Pages, page
from gateway.web.authorisation import needs
from gateway.web.dependencies import Parts
from gateway.web.routes.nodes import list_nodes

router = Pages()


@router.page("/console/nodes")
@needs(Scope.ADMIN)
def nodes_page(request: Request, parts: Parts) -> Response:
    found = list_nodes(parts)
    return page(request, "nodes.html", nodes=found.nodes, missing=found.missing)
