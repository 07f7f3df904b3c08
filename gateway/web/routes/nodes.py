"""`GET /nodes`."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.web.dependencies import Wired
from gateway.web.schemas.platform import NodeList, NodeView
from gateway.web.schemas.problem import problems

router = APIRouter(tags=["platform"])


@router.get("/nodes", summary="Crawl nodes", responses=problems(503))
def list_nodes(wiring: Wired) -> NodeList:
    now = wiring.truth.clock()
    return NodeList(nodes=[NodeView.of(node, now, wiring.dead_after) for node in wiring.nodes.all()])
