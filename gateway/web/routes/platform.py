"""Spiders, deployments, health."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from pydantic import BaseModel, Field
from pydantic.config import JsonDict

from gateway.dispatch.deployment import Deployment, Undeployment
from gateway.errors import InvalidRequestError
from gateway.projects.catalog import SpiderCatalog, project_name
from gateway.status.health import SharedHealth
from gateway.web.dependencies import Parts, StoreRoute
from gateway.web.errors import RETRY_AFTER, problems
from gateway.web.schemas.types import Name, QueryModel

_EGG_SPIDER: JsonDict = {
    "project": "shop",
    "version": "1.4",
    "latest": True,
    "name": "offers",
    "description": "Offers of the shop.",
    "params_schema": None,
    "allowed_domains": ["shop.example.com"],
    "own_start": False,
}
_OWN_SPIDER: JsonDict = {
    "project": "default",
    "version": None,
    "latest": True,
    "name": "seo",
    "description": "What search engines see of each page.",
    "params_schema": {"type": "object", "properties": {"obey_robots": {"type": "boolean", "default": True}}},
    "allowed_domains": [],
    "own_start": False,
}


_DEPLOYED: JsonDict = {
    "project": "shop",
    "version": "1.4",
    "spiders": 1,
    "nodes": [{"node": "n1", "accepted": True, "spiders": 1, "message": None}],
}
_DELETED: JsonDict = {
    "project": "shop",
    "version": "1.4",
    "nodes": [{"node": "n1", "removed": True, "message": None}],
}


class SpiderView(BaseModel, json_schema_extra={"examples": [_OWN_SPIDER, _EGG_SPIDER]}):
    """One spider of one version of its project."""

    project: str = Field(
        description="`default` is the platform's own project, which `POST /crawl` uses if it names no project."
    )
    version: str | None = Field(description="The version of the project's egg; null for the project `default`.")
    latest: bool = Field(description="Whether a crawl that names no version runs this one.")
    name: str
    description: str
    params_schema: dict[str, Any] | None = Field(
        description="JSON Schema of `params`; null: any parameters that are strings."
    )
    allowed_domains: list[str] = Field(
        description="Hosts that it visits, with their subdomains; other start URLs are refused. Empty: no limit."
    )
    own_start: bool = Field(description="The spider makes its own start requests and may ignore the start URLs.")


class ProjectView(BaseModel):
    """A deployed project, or the platform's own."""

    name: str
    latest: str | None = Field(description="The version that a crawl runs if it names none.")
    versions: list[str] = Field(description="All versions, the oldest first; empty for the project `default`.")


class SpiderList(BaseModel):
    spiders: list[SpiderView]
    projects: list[ProjectView] = Field(description="The projects of these spiders.")


class SpidersQuery(QueryModel):
    project: Name | None = Field(default=None, description="Only spiders of this project.")
    version: Name | None = Field(default=None, description="Only spiders of this version.")
    name: Name | None = Field(default=None, description="Only spiders with this name.")


class NodeAnswerView(BaseModel):
    node: str
    accepted: bool
    spiders: int = Field(description="The number of spiders in the egg.")
    message: str | None = Field(description="Why the node did not take the egg.")


class NodeRemovalView(BaseModel):
    node: str
    removed: bool = Field(description="Whether the node no longer has the version.")
    message: str | None = Field(
        description="Why the node still has it; it is removed as soon as the node can be reached."
    )


class DeletedView(BaseModel, json_schema_extra={"examples": [_DELETED]}):
    """A version that was deleted."""

    project: str
    version: str
    nodes: list[NodeRemovalView] = Field(description="The nodes that had the version.")


class DeployedView(BaseModel, json_schema_extra={"examples": [_DEPLOYED]}):
    """An egg that at least one node has taken and no node has refused."""

    project: str
    version: str
    spiders: int = Field(description="The number of spiders in the egg.")
    nodes: list[NodeAnswerView]


class DeployQuery(QueryModel):
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}$")] = Field(
        description="The name of the version. A crawl that names no version runs the newest one.", examples=["1.4"]
    )


class CheckView(BaseModel):
    status: Literal["ok", "down", "starting"]
    message: str
    todo: str | None = Field(default=None, description="What to do about it.")


class HealthView(BaseModel):
    status: Literal["ok", "degraded", "starting", "down"] = Field(
        description="`starting`: no node has published its spiders. While `starting` or `down`, no crawl is accepted."
    )
    checks: dict[str, CheckView]


class Liveness(BaseModel):
    status: Literal["ok"] = "ok"


# --- the routes: `GET /health` for people and balancers, `GET /health/live` for the supervisor that restarts us

health_router = APIRouter(prefix="/health", tags=["platform"])


@health_router.get(
    "",
    summary="What works, and what to do about what does not",
    responses={
        503: {
            "model": HealthView,
            "description": "No crawl is accepted: MongoDB is away, or (`starting`) no node has published spiders.",
        }
    },
)
@health_router.head("", include_in_schema=False)  # what some balancers ask
async def health(response: Response, parts: Parts) -> HealthView:
    report = await parts[SharedHealth].report()
    if not report.accepting:
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_AFTER)
    checks = {name: CheckView.model_validate(check._asdict()) for name, check in report.checks.items()}
    return HealthView.model_validate({"status": report.status, "checks": checks})


@health_router.get("/live", summary="Whether this process answers")
@health_router.head("/live", include_in_schema=False)
async def live() -> Liveness:
    return Liveness()


spiders_router = APIRouter(tags=["platform"], route_class=StoreRoute)


@spiders_router.get("/spiders", summary="What can be run", responses=problems(503))
def list_spiders(query: Annotated[SpidersQuery, Query()], parts: Parts) -> SpiderList:
    """Every spider of every version that the crawl nodes have."""
    project = project_name(query.project) if query.project else None
    infos = parts[SpiderCatalog].select(project=project, version=query.version, name=query.name)
    of_these = {info.project for info in infos}
    return SpiderList(
        spiders=[SpiderView(**info.model_dump()) for info in infos],
        projects=[ProjectView(**one._asdict()) for one in parts[SpiderCatalog].projects() if one.name in of_these],
    )


projects_router = APIRouter(tags=["platform"])

ProjectName = Annotated[
    str,
    PathParameter(
        pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_ .-]{0,98}[A-Za-z0-9_-])?$",
        description="The project's name; not `default`, which has no eggs.",
        examples=["shop"],
    ),
]
VersionName = Annotated[
    str,
    PathParameter(
        pattern=r"^[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,99}$",
        description="The version as `GET /spiders` spells it.",
        examples=["1.4"],
    ),
]
_EGG = {
    "required": True,
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


@projects_router.post(
    "/projects/{project}/versions",
    summary="Deploy an egg",
    responses=problems(409, 413, 502, 503),
    openapi_extra={"requestBody": _EGG},
)
async def add_version(
    request: Request, project: ProjectName, query: Annotated[DeployQuery, Query()], parts: Parts
) -> DeployedView:
    """Deploys the egg in the body, at most 64 MiB, to every living crawl node, and stores it. A node that could not
    be reached, or that comes later, gets the egg when a crawl waits for it. `discoverybot deploy` builds an egg from
    a Scrapy project and sends it. A caller of this route can run code on the nodes.

    A version that exists is replaced on all nodes. If a node refuses the egg, or no node could be reached, the answer
    is an error whose `detail.nodes` has the answer of each node; it is safe to repeat the call. The spiders are in
    `GET /spiders` a moment later.
    """
    if request.headers.get("content-type", "").lower().startswith("multipart/"):
        raise InvalidRequestError("egg", "send the egg itself as the body (curl --data-binary @shop.egg), not a form")
    with TemporaryDirectory(prefix="discoverybot-egg-") as folder:
        egg = Path(folder, "upload.egg")
        with egg.open("wb") as file:  # noqa: ASYNC230 - pieces of 64 KiB, into the page cache
            async for piece in request.stream():
                file.write(piece)
        answers = await parts.deploys.run(parts[Deployment].deploy, project, query.version, egg)
    return DeployedView(
        project=project,
        version=query.version,
        spiders=max(answer.spiders for answer in answers),
        nodes=[NodeAnswerView(**answer._asdict()) for answer in answers],
    )


@projects_router.delete(
    "/projects/{project}/versions/{version}", summary="Delete a deployed version", responses=problems(404, 503)
)
async def delete_version(project: ProjectName, version: VersionName, parts: Parts) -> DeletedView:
    """Removes the stored egg, and the egg on every node; from a node that cannot be reached now, it is removed later.
    Running attempts go on. Crawls that wait for this version wait until it is deployed again, or until they are
    cancelled; `waiting_reason` says so.
    """
    removals = await parts.deploys.run(parts[Undeployment].delete, project, version)
    nodes = [NodeRemovalView(**removal._asdict()) for removal in removals]
    return DeletedView(project=project, version=version, nodes=nodes)
