"""`/nodes`: what each crawl node does, and whether it gets work."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.domain.errors import NodeNotFoundError
from gateway.services.node_health import MISSING_TODO
from gateway.storage.client import truth_store_errors
from gateway.storage.nodes import Node, NodeStore
from gateway.web.dependencies import Parts
from gateway.web.parts import GatewayParts
from gateway.web.schemas.node import MissingView, NodeList, NodeName, NodeView
from gateway.web.schemas.problem import problems
from gateway.web.store_route import StoreRoute

router = APIRouter(prefix="/nodes", tags=["platform"], route_class=StoreRoute)


@router.get("", summary="Crawl nodes", responses=problems(503))
def list_nodes(parts: Parts) -> NodeList:
    """Each with its state, the reason for it, and what to do about it."""
    with truth_store_errors():
        nodes = parts[NodeStore].all()
    missing = parts.node_list.missing(node.url for node in nodes)
    return NodeList(
        nodes=[_view(node, parts) for node in nodes],
        missing=[MissingView(url=url, todo=MISSING_TODO) for url in missing],
    )


@router.post("/{node}/drain", summary="Give a node no new work", responses=problems(404, 503))
def drain_node(node: NodeName, parts: Parts) -> NodeView:
    """What runs there ends by itself. It stays drained until it is resumed, however often it is started anew."""
    parts.truth.require()
    with truth_store_errors():
        return _view(_known(parts[NodeStore].drain(node), node), parts)


@router.post("/{node}/resume", summary="Give a node work again", responses=problems(404, 503))
def resume_node(node: NodeName, parts: Parts) -> NodeView:
    """Undoes a draining. One that rests because it has failed is probed at once, and its failures are forgotten."""
    parts.truth.require()
    with truth_store_errors():
        return _view(_known(parts[NodeStore].resume(node), node), parts)


def _known(found: Node | None, name: str) -> Node:
    if found is None:
        raise NodeNotFoundError(name)
    return found


def _view(node: Node, parts: GatewayParts) -> NodeView:
    return NodeView.of(node, parts.clock(), parts.dead_after)
