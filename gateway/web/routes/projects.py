"""`POST /projects/{project}/versions` and `DELETE /projects/{project}/versions/{version}`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter

from gateway.domain.errors import InvalidRequestError
from gateway.services.deployment import Deployment
from gateway.services.undeployment import Undeployment
from gateway.web.dependencies import Parts
from gateway.web.schemas.platform import DeletedView, DeployedView, DeployQuery, NodeAnswerView, NodeRemovalView
from gateway.web.schemas.problem import problems

router = APIRouter(tags=["platform"])

ProjectName = Annotated[
    str,
    PathParameter(
        pattern=r"^[A-Za-z0-9_]([A-Za-z0-9_ .-]{0,98}[A-Za-z0-9_-])?$",
        description="Any but our own project's.",
        examples=["shop"],
    ),
]
VersionName = Annotated[
    str,
    PathParameter(
        pattern=r"^[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,99}$", description="As `GET /spiders` spells it.", examples=["1.4"]
    ),
]
_EGG = {
    "required": True,
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


@router.post(
    "/projects/{project}/versions",
    summary="Deploy an egg",
    responses=problems(409, 413, 502, 503),
    openapi_extra={"requestBody": _EGG},
)
async def add_version(
    request: Request, project: ProjectName, query: Annotated[DeployQuery, Query()], parts: Parts
) -> DeployedView:
    """Puts the egg in the body, at most 64 MiB, on every living crawl node, and keeps it: a node that could not be
    asked, or comes later, is brought it when a crawl waits for it. `discoverybot deploy` builds an egg from a Scrapy
    project and sends it. Whoever may call this runs code on the nodes.

    A version that exists is replaced, everywhere. Where a node refuses it, or none could be asked, the answer is an
    error whose `detail.nodes` has what each of them said; doing it again is safe. The spiders are in `GET /spiders` a
    moment later.
    """
    if request.headers.get("content-type", "").lower().startswith("multipart/"):
        raise InvalidRequestError("egg", "send the egg itself as the body (curl --data-binary @shop.egg), no form")
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
        nodes=[NodeAnswerView.model_validate(answer._asdict()) for answer in answers],
    )


@router.delete(
    "/projects/{project}/versions/{version}", summary="Delete a deployed version", responses=problems(404, 503)
)
async def delete_version(project: ProjectName, version: VersionName, parts: Parts) -> DeletedView:
    """Removes what is kept of it, and the egg from every node; a node that cannot be asked now loses it once it can.
    Attempts that run go on. Crawls that wait for this version say so, and wait until it is deployed again, or they
    are cancelled.
    """
    removals = await parts.deploys.run(parts[Undeployment].delete, project, version)
    nodes = [NodeRemovalView.model_validate(removal._asdict()) for removal in removals]
    return DeletedView(project=project, version=version, nodes=nodes)
