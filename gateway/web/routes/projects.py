"""`POST /projects/{project}/versions`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter

from gateway.domain.errors import InvalidRequestError
from gateway.web.dependencies import Wired
from gateway.web.schemas.platform import DeployedView, DeployQuery, NodeAnswerView
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
    request: Request, project: ProjectName, query: Annotated[DeployQuery, Query()], wiring: Wired
) -> DeployedView:
    """Puts the egg in the body, at most 64 MiB, on every living crawl node. `discoverybot deploy` builds one from a
    Scrapy project and sends it. Whoever may call this runs code on the nodes.

    A version that exists is replaced. Where a node does not take it, the answer is an error whose `detail.nodes` has
    what each of them said; doing it again is safe. The spiders are in `GET /spiders` a moment later.
    """
    if request.headers.get("content-type", "").lower().startswith("multipart/"):
        raise InvalidRequestError("egg", "send the egg itself as the body (curl --data-binary @shop.egg), no form")
    with TemporaryDirectory(prefix="discoverybot-egg-") as folder:
        egg = Path(folder, "upload.egg")
        with egg.open("wb") as file:  # noqa: ASYNC230 - pieces of 64 KiB, into the page cache
            async for piece in request.stream():
                file.write(piece)
        answers = await wiring.deploys.run(wiring.deployment.deploy, project, query.version, egg)
    return DeployedView(
        project=project,
        version=query.version,
        spiders=max(answer.spiders for answer in answers),
        nodes=[NodeAnswerView.model_validate(answer._asdict()) for answer in answers],
    )
