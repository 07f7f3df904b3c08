"""`/nodes`: what each crawl node does, and whether it gets work."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import Path, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from gateway.access.invitation import Invitations, NodeVariables
from gateway.access.keys import ApiKey, Caller, Scope
from gateway.contract.outbox import AttemptId
from gateway.errors import ConflictError, InvalidRequestError, JobNotFoundError, NodeNotFoundError
from gateway.jobs.completion import Cancellation
from gateway.nodes.health import MISSING_TODO, report_on
from gateway.nodes.node import NodeState
from gateway.nodes.scrapyd_pages import ScrapydPages
from gateway.nodes.store import Node, NodeStore
from gateway.settings import NODE_NAME
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts, Router
from gateway.web.errors import problems
from gateway.web.schemas.types import Body, Open, QueryModel, Timestamp

NodeName = Annotated[
    str, Path(description="As `GET /nodes` has it.", pattern=r"^[^\x00-\x1f\x7f/]{1,255}$", examples=["n1"])
]

_EXAMPLE: JsonDict = {
    "name": "n1",
    "url": "http://10.0.0.7:6800",
    "version": "1.0.0",
    "state": "quarantined",
    "why": "3 failures in a row, the last: nobody answers at http://10.0.0.7:6800/daemonstatus.json",
    "since": "2027-06-01T09:00:00.000Z",
    "todo": "see Scrapyd's log there; the node is probed when its rest is over",
    "failures": 3,
    "rest_until": "2027-06-01T09:00:14.000Z",
    "draining": False,
    "waits_for": [],
    "removable": False,
    "healthy": True,
    "max_slots": 4,
    "used_slots": 1,
    "free_slots": 3,
    "max_render_slots": 0,
    "used_render_slots": 0,
    "running": 1,
    "load": 0.25,
    "free_bytes": 41943040000,
    "cpu_load": 0.31,
    "memory_load": 0.52,
    "disk_full": False,
    "heartbeat_at": "2027-06-01T09:00:09.000Z",
    "eggs": [{"project": "shop", "version": "1.4"}],
}


class EggView(BaseModel):
    """A version of a project that a node has."""

    project: str
    version: str


class NodeView(BaseModel, json_schema_extra={"examples": [_EXAMPLE]}):
    """A crawl node: a Scrapyd, its tailer and a disk."""

    name: str
    url: str
    version: str
    state: Open[NodeState] = Field(description="Only a node that is `up` gets new work.")
    why: str | None = Field(description="Why it is in this state; null if there is nothing to explain.")
    since: Timestamp | None = Field(description="Since when the reason exists.")
    todo: str | None = Field(description="What to do about it.")
    failures: int = Field(
        description="Failures in a row. After three the node is quarantined; one success sets the number to 0."
    )
    rest_until: Timestamp | None = Field(
        description="Until then it gets no work. Then it is probed, and gets work again if it answers."
    )
    draining: bool = Field(description="Whether a person has drained the node, so that it gets no new work.")
    waits_for: list[str] = Field(
        description="What must happen before the machine of a drained node may go; empty for one that is not drained."
    )
    removable: bool = Field(description="Whether the node is drained, has no crawl, and has shipped all its data.")
    healthy: bool = Field(description="Whether the node's last sign of life is recent.")
    max_slots: int
    used_slots: int
    free_slots: int = Field(description="Slots that are not in use. They are used only if the node's state is `up`.")
    max_render_slots: int = Field(
        description="How many of its slots may drive a browser; 0 if the node has no browser."
    )
    used_render_slots: int
    running: int = Field(description="Spider processes that ran at its last sign of life.")
    load: float = Field(description="The share of its slots that are in use, 0 to 1.")
    free_bytes: int | None = Field(description="Free bytes of its disk.")
    cpu_load: float | None = Field(
        description="The share of its machine's processors in use at its last sign of life, 0 to 1."
    )
    memory_load: float | None = Field(description="The same of its machine's memory.")
    disk_full: bool = Field(description="Whether less than `NODE_MIN_FREE_BYTES` is free.")
    heartbeat_at: Timestamp
    eggs: list[EggView] = Field(
        description="The eggs that the node has. The project `default`, which has no egg, is on every node."
    )

    @classmethod
    def of(cls, node: Node, now: datetime, dead_after: timedelta) -> NodeView:
        is_drained = node.draining_since is not None
        waits_for = node.waits_for if is_drained else []
        return cls(
            name=node.id,
            healthy=node.is_alive(now, dead_after),
            draining=is_drained,
            waits_for=waits_for,
            removable=is_drained and not waits_for,
            used_slots=node.used_slots,
            used_render_slots=node.used_render_slots,
            running=len(node.alive),
            load=round(node.used_slots / node.max_slots, 3) if node.max_slots else 0.0,
            free_slots=node.free_slots,
            eggs=[EggView(**egg._asdict()) for egg in node.eggs],
            **report_on(node, now, dead_after)._asdict(),
            **node.model_dump(include=_AS_STORED),
        )


_AS_STORED = {
    "url", "version", "failures", "rest_until", "max_slots", "max_render_slots", "free_bytes", "disk_full",
    "cpu_load", "memory_load",
    "heartbeat_at",
}  # fmt: skip


class MissingNodeView(BaseModel):
    """A node that nobody hears of, and what to do about it."""

    url: str
    todo: str


class NodeListView(BaseModel):
    """All nodes, and those that are missing."""

    nodes: list[NodeView]
    missing: list[MissingNodeView] = Field(description="URLs in `SCRAPYD_URL` with which no node has registered.")


router = Router(prefix="/nodes", tags=["nodes"])


@router.get("", summary="Crawl nodes", responses=problems(503))
@needs(Scope.ADMIN)
def list_nodes(parts: Parts) -> NodeListView:
    """Each with its state, the reason for it, and what to do about it."""
    with mongo_errors():
        nodes = parts[NodeStore].all()
    missing = parts.node_list.missing(node.url for node in nodes)
    return NodeListView(
        nodes=[_view(node, parts) for node in nodes],
        missing=[MissingNodeView(url=url, todo=MISSING_TODO) for url in missing],
    )


# --- another machine becomes a node

_INVITATION: JsonDict = {
    "token": "db_4f1d9c2b3a4e_…",
    "expires_at": "2027-06-01T10:00:00.000Z",
    "needs": ["BROKER_URL", "MONGO_URI", "REDIS_URL"],
    "warnings": [],
}
_JOINED: JsonDict = {
    "version": "0.3.0",
    "variables": {"QUEUE_NAME": "scraping", "SCRAPYD_USERNAME": "discoverybot", "SCRAPYD_PASSWORD": "…"},
}


class InvitationRequest(Body, json_schema_extra={"examples": [{"minutes": 60, "note": "the one in Lyon"}]}):
    """How long an invitation of a node is valid."""

    minutes: int = Field(default=60, ge=1, le=7 * 24 * 60, description="How long the invitation is good.")
    note: str | None = Field(default=None, max_length=200, description="For whom it is: `keys list` shows it.")


class InvitationView(BaseModel, json_schema_extra={"examples": [_INVITATION]}):
    """What a new node needs to join."""

    token: str = Field(description="Good once, for `POST /nodes/join`, which answers with Scrapyd's password.")
    expires_at: Timestamp
    needs: list[str] = Field(
        description="Settings that the machine has to bring: the stores, as users of this node alone. The platform's "
        "own passwords are not handed on."
    )
    warnings: list[str] = Field(description="Settings with which the node will not work on another machine.")


class JoinRequest(
    BaseModel,
    extra="forbid",
    json_schema_extra={"examples": [{"name": "east", "has": ["BROKER_URL", "MONGO_URI", "REDIS_URL"]}]},
):
    """The node that joins, and what it has."""

    name: str = Field(pattern=NODE_NAME, description="The name of the new node; no node may have it already.")
    has: list[str] = Field(
        default=[], max_length=100, description="Names of the settings that the node has by itself; not their values."
    )


class JoinedView(BaseModel, json_schema_extra={"examples": [_JOINED]}):
    """The settings of a node that has joined."""

    version: str = Field(description="The gateway's version. Nodes should have the same.")
    variables: dict[str, str] = Field(description="The settings that the node needs, by their names.")


@router.post("/invitations", status_code=201, summary="Invite a machine", responses=problems(409, 503))
@needs(Scope.ADMIN)
def invite_node(parts: Parts, caller: Called, body: InvitationRequest | None = None) -> InvitationView:
    """Makes a token with which one machine can become a node. 409 while there are no keys."""
    _require_key(caller)
    wanted = body or InvitationRequest()
    expires_at = parts.clock() + timedelta(minutes=wanted.minutes)
    with mongo_errors():
        issued = parts[Invitations].invite(expires_at, wanted.note)
    told = parts[NodeVariables]
    return InvitationView(
        token=str(issued.token), expires_at=expires_at, needs=sorted(told.needed), warnings=told.warnings
    )


@router.post("/join", summary="Become a node", responses=problems(401, 409, 503))
@needs(Scope.JOIN)
def join_as_node(parts: Parts, caller: Called, body: JoinRequest) -> JoinedView:
    """Called with an invitation as key: returns the settings that all nodes share, Scrapyd's password included. An
    invitation is good once. 401 if it was used, 409 if a node has this name, or if the new node lacks a setting.
    """
    with mongo_errors():
        accepted = parts[Invitations].accept(_require_key(caller), body.name, body.has)
    return JoinedView(version=version("discoverybot"), variables=dict(accepted.shared))


def _require_key(caller: Caller) -> ApiKey:
    if caller.key is None:
        raise ConflictError("there are no keys yet, and this gateway serves its own machine only: see GATEWAY_HOST")
    return caller.key


@router.get("/{node}", summary="One crawl node", responses=problems(404, 503))
@needs(Scope.ADMIN)
def get_node(node: NodeName, parts: Parts) -> NodeView:
    """One node, as `GET /nodes` shows it."""
    with mongo_errors():
        return _view(_known(parts[NodeStore].get(node), node), parts)


@router.delete("/{node}", summary="Forget a node", status_code=204, responses=problems(404, 409, 503))
@needs(Scope.ADMIN)
def forget_node(node: NodeName, parts: Parts) -> Response:
    """Removes a node whose machine is gone from the list at once; otherwise this happens after a week. Its name can
    then be used again. 409 while the node gives signs of life, and while crawls that ran there have not ended.
    """
    store = parts[NodeStore]
    with mongo_errors():
        found = _known(store.get(node), node)
        if found.is_alive(parts.clock(), parts.dead_after):
            raise ConflictError(f"{node} still gives signs of life: stop its Scrapyd and its tailer first")
        if found.used_slots:
            raise ConflictError(f"crawls that ran on {node} have not ended; they are found to be lost within minutes")
        if not store.forget(found):
            raise ConflictError(f"{node} has just given a sign of life: stop its Scrapyd and its tailer first")
    return Response(status_code=204)


# --- draining, and waiting until nothing is left

#: Seconds between two checks of a node that is waited for. It gives a sign of life every two seconds.
_LOOK_EVERY = 0.25


class DrainQuery(QueryModel):
    wait: Annotated[float, Field(ge=0, le=60)] | None = Field(
        default=None,
        description="Seconds for which the answer waits until nothing is left on the node. If that takes longer, the "
        "answer is 202, and `GET /nodes/{node}` says how it goes on.",
    )


@router.post(
    "/{node}/drain",
    summary="Give a node no new work",
    responses={
        202: {
            "model": NodeView,
            "description": "It is drained, and `waits_for` says what is left there (with `wait` only)",
            "headers": {"Location": {"description": "Where to ask", "schema": {"type": "string"}}},
        },
        **problems(404, 503),
    },
)
@needs(Scope.ADMIN)
async def drain_node(
    node: NodeName, query: Annotated[DrainQuery, Query()], response: Response, parts: Parts
) -> NodeView:
    """Running jobs continue to their end. The node stays drained until it is resumed, even after a restart. With
    `wait`, 200 means that its machine may be removed: the node is `removable`.
    """
    parts.readiness.refuse_if_away()
    with mongo_errors():
        found = _known(await parts.threads.run(parts[NodeStore].drain, node), node)
        if query.wait is None:
            return _view(found, parts)
        view = await _waited(node, parts, time.monotonic() + query.wait)
    if not view.removable:
        response.status_code = 202
        response.headers["Location"] = f"/nodes/{quote(node, safe='')}"
    return view


async def _waited(name: str, parts: GatewayParts, until: float) -> NodeView:
    """The node as soon as it is removable, or as it is at the time `until` (of `time.monotonic`).

    Raises `NodeNotFoundError`, PyMongo's errors.
    """
    while True:
        view = _view(_known(await parts.threads.look(parts[NodeStore].get, name), name), parts)
        if view.removable or (left := until - time.monotonic()) <= 0:
            return view
        await asyncio.sleep(min(left, _LOOK_EVERY))


@router.post("/{node}/resume", summary="Give a node work again", responses=problems(404, 503))
@needs(Scope.ADMIN)
def resume_node(node: NodeName, parts: Parts) -> NodeView:
    """Undoes a draining. A node that rests after failures is probed at once, and its failures are forgotten."""
    with mongo_errors():
        return _view(_known(parts[NodeStore].resume(node), node), parts)


def _known(found: Node | None, name: str) -> Node:
    if found is None:
        raise NodeNotFoundError(name)
    return found


def _view(node: Node, parts: GatewayParts) -> NodeView:
    return NodeView.of(node, parts.clock(), parts.dead_after)


# --- `/nodes/{node}/scrapyd/`: Scrapyd's own pages, for admins, without the node's password

scrapyd_router = Router(tags=["nodes"])

ConsoleNode = Annotated[str, Path(description="The node's name, as `GET /nodes` shows it.", examples=["n1"])]
PagePath = Annotated[str, Path(description="The page: empty, `jobs`, `logs/…` or `items/…`.", examples=["jobs"])]
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "application/x-www-form-urlencoded": {
                "schema": {
                    "type": "object",
                    "required": ["project", "job"],
                    "properties": {"project": {"type": "string"}, "job": {"type": "string"}},
                },
                "example": {"project": "default", "job": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a-1"},
            }
        },
    }
}


@scrapyd_router.get(
    "/nodes/{node}/scrapyd/{path:path}",
    summary="A node's own pages",
    response_class=Response,
    responses={
        200: {
            "description": "The page as Scrapyd sends it; its links lead to this route again",
            "content": {kind: {"schema": {"type": "string"}} for kind in ("text/html", "text/plain")},
        },
        **problems(404, 502, 503),
    },
)
@needs(Scope.ADMIN)
async def get_node_page(node: ConsoleNode, path: PagePath, request: Request, parts: Parts) -> Response:
    """Scrapyd's console: its jobs, logs and items, read-only but for the button that cancels a job."""
    found = await _node(parts, node)
    return await parts[ScrapydPages].page(found.url, path, _prefix(request, node), request.headers)


@scrapyd_router.post(
    "/nodes/{node}/scrapyd/cancel.json",
    status_code=303,
    summary="Cancel a job on a node",
    response_class=Response,
    responses={303: {"description": "To the node's jobs"}, **problems(404, 502, 503)},
    openapi_extra=_FORM,
)
@needs(Scope.ADMIN)
async def cancel_on_node(node: ConsoleNode, request: Request, parts: Parts, caller: Called) -> Response:
    """The button on Scrapyd's page. A job of ours is cancelled as `POST /jobs/{id}/cancel` does, so that it is not
    tried again; any other job is Scrapyd's own.
    """
    found = await _node(parts, node)
    form = parse_qs((await request.body()).decode(errors="replace"))
    project, job = (_field(form, name) for name in ("project", "job"))
    attempt = AttemptId.parse(job)
    if attempt is None or not await _is_cancelled(parts, attempt, caller.name):
        await parts[ScrapydPages].cancel(found.url, project, job)
    return RedirectResponse(f"{_prefix(request, node)}/jobs", status_code=303)


async def _node(parts: GatewayParts, name: str) -> Node:
    """Raises `NodeNotFoundError`, `UnavailableError`."""
    with mongo_errors():
        return _known(await parts.threads.look(parts[NodeStore].get, name), name)


async def _is_cancelled(parts: GatewayParts, attempt: AttemptId, by: str | None) -> bool:
    """Cancel the attempt's job. Returns `False` if the platform has no such job, or it can no longer be cancelled."""
    try:
        await parts.threads.run(parts[Cancellation].cancel, attempt.job_id, by)
    except (JobNotFoundError, ConflictError):
        return False
    return True


def _field(form: dict[str, list[str]], name: str) -> str:
    values = form.get(name, [])
    if len(values) != 1 or len(values[0]) > 200:  # noqa: PLR2004 - longer than any project or job there is
        raise InvalidRequestError(name, "is needed, once")
    return values[0]


def _prefix(request: Request, node: str) -> str:
    return f"{request.scope.get('root_path', '').rstrip('/')}/nodes/{quote(node, safe='')}/scrapyd"
