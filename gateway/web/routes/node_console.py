"""`/nodes/{node}/scrapyd/`: Scrapyd's own pages, for admins, without the node's password."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse

from gateway.domain.errors import ConflictError, InvalidRequestError, JobNotFoundError, NodeNotFoundError
from gateway.domain.node_files import AttemptId
from gateway.services.cancellation import Cancellation
from gateway.storage.client import truth_store_errors
from gateway.storage.nodes import Node, NodeStore
from gateway.web.dependencies import Parts
from gateway.web.node_console import NodeConsole
from gateway.web.parts import GatewayParts
from gateway.web.schemas.problem import problems

router = APIRouter(tags=["platform"])

NodeName = Annotated[str, Path(description="As `GET /nodes` shows it.", examples=["n1"])]
PagePath = Annotated[str, Path(description="Nothing, `jobs`, `logs/…` or `items/…`.", examples=["jobs"])]
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


@router.get(
    "/nodes/{node}/scrapyd/{path:path}",
    summary="A node's own pages",
    response_class=Response,
    responses={
        200: {
            "description": "As Scrapyd has it; its links lead here again",
            "content": {kind: {"schema": {"type": "string"}} for kind in ("text/html", "text/plain")},
        },
        **problems(404, 502, 503),
    },
)
async def show_page(node: NodeName, path: PagePath, request: Request, parts: Parts) -> Response:
    """Scrapyd's console: its jobs, logs and items, read-only but for the button that cancels a job."""
    found = await _node(parts, node)
    return await parts[NodeConsole].page(found.url, path, _prefix(request, node), request.headers)


@router.post(
    "/nodes/{node}/scrapyd/cancel.json",
    status_code=303,
    summary="Cancel a job on a node",
    response_class=Response,
    responses={303: {"description": "To the node's jobs"}, **problems(404, 502, 503)},
    openapi_extra=_FORM,
)
async def cancel_on_node(node: NodeName, request: Request, parts: Parts) -> Response:
    """The button on Scrapyd's page. A job of ours is cancelled as `POST /jobs/{id}/cancel` does, so that it is not
    tried again; any other is Scrapyd's own.
    """
    found = await _node(parts, node)
    form = parse_qs((await request.body()).decode(errors="replace"))
    project, job = (_field(form, name) for name in ("project", "job"))
    attempt = AttemptId.parse(job)
    if attempt is None or not await _is_cancelled(parts, attempt):
        await parts[NodeConsole].cancel(found.url, project, job)
    return RedirectResponse(f"{_prefix(request, node)}/jobs", status_code=303)


async def _node(parts: GatewayParts, name: str) -> Node:
    """Raises `NodeNotFoundError`, `UnavailableError`."""
    with truth_store_errors():
        found = await parts.reads.run(parts[NodeStore].get, name)
    if found is None:
        raise NodeNotFoundError(name)
    return found


async def _is_cancelled(parts: GatewayParts, attempt: AttemptId) -> bool:
    """Or the job is not, or not any more, for us to cancel."""
    try:
        await parts.reads.run(parts[Cancellation].cancel, attempt.job_id)
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
