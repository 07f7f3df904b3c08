"""Spiders, projects, and the deployment of their versions."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal
from urllib.parse import quote

import orjson
from fastapi import Path as PathParameter
from fastapi import Query, Request
from pydantic import BaseModel, Field
from pydantic.config import JsonDict
from starlette.datastructures import UploadFile
from starlette.responses import JSONResponse

from gateway.access.keys import Scope
from gateway.contract.crawl import MAX_REQUIREMENTS, Egg
from gateway.contract.reasons import Reason
from gateway.contract.records import SpiderInfo
from gateway.dispatch.dependencies import Dependencies, put_requirements
from gateway.dispatch.deployment import Deployment, Undeployment, are_installing
from gateway.errors import InvalidRequestError
from gateway.nodes.store import Node, NodeStore
from gateway.projects.catalog import Project, SpiderCatalog, project_name
from gateway.projects.eggs import PROJECT_NAME, EggStore, KeptEgg
from gateway.projects.versions import Releases
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts, Router
from gateway.web.errors import problems
from gateway.web.schemas.types import Name, Open, QueryModel, SearchText, Timestamp

_EGG_SPIDER: JsonDict = {
    "project": "shop",
    "version": "1.4",
    "latest": True,
    "name": "offers",
    "description": "Offers of the shop.",
    "params_schema": None,
    "allowed_domains": ["shop.example.com"],
    "own_start": False,
    "needs_urls": False,
    "arguments": ["category"],
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
    "needs_urls": True,
    "arguments": [],
}


_DEPLOYED: JsonDict = {
    "project": "shop",
    "version": "1.4",
    "spiders": 1,
    "nodes": [{"node": "n1", "accepted": True, "spiders": 1, "message": None, "reason": None}],
}
_INSTALLING: JsonDict = {
    "project": "shop",
    "version": "1.4",
    "dependencies_url": "/projects/shop/versions/1.4/dependencies",
    "nodes": [
        {
            "node": "n1",
            "accepted": False,
            "spiders": 0,
            "message": "what it depends on is still being installed",
            "reason": "still_installing",
        }
    ],
}
_DEPENDENCIES: JsonDict = {
    "project": "shop",
    "version": "1.4",
    "nodes": [
        {
            "node": "n1",
            "state": "ready",
            "message": None,
            "reason": None,
            "packages": ["itemloaders==1.3.2", "scrapy==2.14.1"],
            "log": "resolving the requirements\nInstalled 42 packages in 90ms\n",
            "warnings": ["scrapy 2.14.1 has a known vulnerability (GHSA-76g3-c3x4-crvx): pin 2.17 or later"],
        }
    ],
}
_FAILED: JsonDict = {
    "project": "shop",
    "version": "1.5",
    "nodes": [
        {
            "node": "n1",
            "state": "failed",
            "message": "the requirements cannot be met: the node's index has no itemloader: leave it out, or ask for "
            "what it is called there",
            "reason": "requirements_unmet",
            "packages": [],
            "log": "resolving the requirements\n",
        }
    ],
}
_PROJECT: JsonDict = {"name": "shop", "latest": "1.4", "previous": "1.3", "versions": ["1.3", "1.4"]}
_KEPT: JsonDict = {
    "version": "1.4",
    "latest": True,
    "deployed_at": "2027-06-01T09:00:00.000Z",
    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "size": 20480,
    "spiders": 3,
    "nodes": ["n1", "n2"],
}
_VERSIONS: JsonDict = {
    "project": "shop",
    "latest": "1.4",
    "previous": "1.3",
    "versions": [_KEPT, {**_KEPT, "version": "1.3", "latest": False, "deployed_at": "2027-05-20T09:00:00.000Z"}],
}
_DELETED: JsonDict = {
    "project": "shop",
    "version": "1.4",
    "nodes": [{"node": "n1", "removed": True, "message": None}],
}


_PROJECT_NAME = f"^{PROJECT_NAME.pattern}$"


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
    needs_urls: bool = Field(description="Whether a crawl must name start URLs, because the spider has none.")
    arguments: list[str] = Field(
        description="What the constructor of a deployed spider takes by name, as `params`. Others become attributes."
    )


class ProjectView(BaseModel, json_schema_extra={"examples": [_PROJECT]}):
    """A deployed project, or the platform's own."""

    name: str
    latest: str | None = Field(description="The version that a crawl runs if it names none.")
    previous: str | None = Field(description="The version that a rollback makes the latest; null if there is none.")
    versions: list[str] = Field(
        description="All versions; the one that was deployed last comes last. Empty for the project `default`."
    )


class ProjectList(BaseModel):
    """All projects."""

    projects: list[ProjectView]


class VersionView(BaseModel):
    """One version of a project."""

    version: str
    latest: bool = Field(description="Whether a crawl that names no version runs this one.")
    deployed_at: Timestamp | None = Field(description="When its egg was stored; null if no egg is stored.")
    sha256: str | None = Field(description="The SHA-256 of the egg.")
    size: int | None = Field(description="The size of the egg in bytes.")
    spiders: int = Field(description="How many spiders it has.")
    nodes: list[str] = Field(description="The nodes that have it. Others get it when a crawl waits for it.")


class VersionList(BaseModel, json_schema_extra={"examples": [_VERSIONS]}):
    """The versions of a project; the one that was deployed last comes first."""

    project: str
    latest: str | None = Field(description="The version that a crawl runs if it names none.")
    previous: str | None = Field(description="The version that a rollback makes the latest; null if there is none.")
    versions: list[VersionView]


class SpiderList(BaseModel):
    """A page of spiders."""

    spiders: list[SpiderView] = Field(description="Sorted by project, name and version.")
    projects: list[ProjectView] = Field(
        description="The projects of these spiders, each on the page of its first one."
    )
    next: str | None = Field(description="The value of `after` for the next page; null on the last page.")


class SpidersQuery(QueryModel):
    project: Name | None = Field(default=None, description="Only spiders of this project.")
    version: Name | None = Field(default=None, description="Only spiders of this version.")
    name: Name | None = Field(default=None, description="Only spiders with this name.")
    q: SearchText | None = Field(default=None, description="Only spiders with this text in their name.")
    limit: int = Field(default=200, ge=1, le=1000, description="The size of a page.")
    after: Annotated[str, Field(max_length=1000)] | None = Field(
        default=None, description="The `next` of the previous page."
    )


class NodeAnswerView(BaseModel):
    """What a node has said to a deployment."""

    node: str
    accepted: bool
    spiders: int = Field(description="The number of spiders in the egg.")
    message: str | None = Field(description="Why the node did not accept the egg.")
    reason: Open[Reason] | None = Field(
        default=None,
        description="The same as a code, which docs/troubleshooting.md explains. Nodes of older releases give none.",
    )


class NodeRemovalView(BaseModel):
    """Whether a node has removed a version."""

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


class InstallingView(BaseModel, json_schema_extra={"examples": [_INSTALLING]}):
    """An egg that no node has refused; some still install what it depends on."""

    project: str
    version: str
    dependencies_url: str = Field(description="Says how it goes on. When no node is `building`, send the egg again.")
    nodes: list[NodeAnswerView]


class NodeDependenciesView(BaseModel):
    """What a node has installed for a version."""

    node: str
    state: Literal["none", "building", "ready", "failed", "unknown"] = Field(
        description="`none`: the version has no requirements and runs with what the node has. `unknown`: the node "
        "does not answer, or not in a way that is understood."
    )
    message: str | None = Field(description="Why it failed, or why the node cannot say it.")
    reason: Open[Reason] | None = Field(
        default=None,
        description="The same as a code, which docs/troubleshooting.md explains. Nodes of older releases give none.",
    )
    packages: list[str] = Field(description="The installed packages, as `name==version`.")
    log: str = Field(description="The installer's output so far.")
    warnings: list[str] = Field(
        default=[],
        description="Known vulnerabilities of what is installed, and "
        "what a node has changed so that the version runs (`PROJECT_LENIENT`), as sentences.",
    )


class DependenciesView(BaseModel, json_schema_extra={"examples": [_DEPENDENCIES, _FAILED]}):
    """What one version depends on, and whether each living node has it."""

    project: str
    version: str
    nodes: list[NodeDependenciesView]


class DeployQuery(QueryModel):
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}$")] = Field(
        description="The name of the version. A crawl that names none runs the version that was deployed last.",
        examples=["1.4"],
    )
    wait: Annotated[float, Field(ge=0, le=60)] | None = Field(
        default=None,
        description="Seconds for which the answer waits until what the egg depends on is installed. If that takes "
        "longer, the answer is 202. Without it the answer waits for a minute, and is then an error (502).",
    )


#: Bytes of schemas after which a page of spiders ends: the event loop encodes it, and a project may declare 32 MiB.
_PAGE_BYTES = 2 << 20

spiders_router = Router(tags=["spiders"])


def _fitting(infos: Sequence[SpiderInfo]) -> Sequence[SpiderInfo]:
    """As many of them as a page has room for, at least one."""
    size = 0
    for number, info in enumerate(infos):
        size += len(orjson.dumps(info.params_schema))
        if number and size > _PAGE_BYTES:
            return infos[:number]
    return infos


@spiders_router.get("/spiders", summary="What can be run", responses=problems(503))
@needs(Scope.READ, by_project=True)
def list_spiders(query: Annotated[SpidersQuery, Query()], parts: Parts, caller: Called) -> SpiderList:
    """Every spider of every version that the crawl nodes have. Pass `next` as `after` for the page that follows."""
    project = project_name(query.project) if query.project else None
    found = parts[SpiderCatalog].select(project=project, version=query.version, name=query.name)
    found = [info for info in found if caller.may_see_projects([info.project])]
    if query.q is not None:
        text = query.q.lower()
        found = [info for info in found if text in info.name.lower()]
    start = bisect_right(found, _place(query.after), key=_sort_key) if query.after else 0
    infos = _fitting(found[start : start + query.limit])
    rest = found[start + len(infos) :]
    # without the project that an earlier page has shown already
    of_these = {info.project for info in infos} - {info.project for info in found[max(0, start - 1) : start]}
    return SpiderList(
        spiders=[SpiderView(**info.model_dump()) for info in infos],
        projects=[_view(one) for one in parts[SpiderCatalog].projects() if one.name in of_these],
        next=_cursor(infos[-1]) if rest else None,
    )


def _sort_key(info: SpiderInfo) -> tuple[str, str, str]:
    return info.project, info.name, info.version or ""


def _cursor(info: SpiderInfo) -> str:
    return urlsafe_b64encode(orjson.dumps(_sort_key(info))).decode()


def _place(cursor: str) -> tuple[str, str, str]:
    """The sort key in a cursor. Raises `InvalidRequestError` for text that is not a cursor of this list."""
    try:
        project, name, version = orjson.loads(urlsafe_b64decode(cursor))
    except (ValueError, TypeError):
        project = name = version = None
    if not all(isinstance(one, str) for one in (project, name, version)):
        raise InvalidRequestError("after", "is not the `next` of a page of this list")
    return project, name, version


projects_router = Router(tags=["projects"])

AnyProjectName = Annotated[
    str, PathParameter(pattern=_PROJECT_NAME, description="A project of `GET /projects`.", examples=["shop"])
]

ProjectName = Annotated[
    str,
    PathParameter(
        pattern=_PROJECT_NAME,
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
    # some generators know the first kind of content alone, and the form has all
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["egg"],
                "properties": {
                    "egg": {"type": "string", "format": "binary"},
                    "requirements": {
                        "type": "string",
                        "description": "What the project depends on, as a requirements file says it; best a lock.",
                    },
                },
            }
        },
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
    },
}


@projects_router.post(
    "/projects/{project}/versions",
    summary="Deploy an egg",
    response_model=DeployedView,
    responses={
        202: {
            "model": InstallingView,
            "description": "What it depends on is still being installed (with `wait` only)",
        },
        **problems(409, 413, 502, 503),
    },
    openapi_extra={"requestBody": _EGG},
)
@needs(Scope.ADMIN)
async def deploy_version(
    request: Request, project: ProjectName, query: Annotated[DeployQuery, Query()], parts: Parts
) -> DeployedView | JSONResponse:
    """Deploys the egg in the body, at most 64 MiB, to every living crawl node, and stores it. A node that could not
    be reached, or that comes later, gets the egg when a crawl waits for it. `discoverybot deploy` builds an egg from
    a Scrapy project and sends it. A caller of this route can run code on the nodes.

    A form has the egg as `egg`, and may have `requirements`: each node installs them in a virtual environment that
    the project's crawls run in. If they cannot be met, the answer is an error (422) in the resolver's words. With
    `wait`, an installation that takes longer goes on after the answer (202): call `dependencies_url` until no node
    is `building`, and send the same request again. Its answer has the result.

    A version that exists is replaced on all nodes. If a node refuses the egg, or no node could be reached, the answer
    is an error whose `detail.nodes` has each node's answer and its `reason`; it is safe to repeat the call. After the
    answer, the next `POST /crawl` that names no version runs this one, on every node.
    """
    with TemporaryDirectory(prefix="discoverybot-egg-") as folder:
        egg = Path(folder, "upload.egg")
        if request.headers.get("content-type", "").lower().startswith("multipart/"):
            await _read_form(request, egg, parts)
        else:
            with egg.open("wb") as file:  # noqa: ASYNC230 - pieces of 64 KiB, into the page cache
                async for piece in request.stream():
                    file.write(piece)
        answers = await parts.threads.run(parts[Deployment].deploy, project, query.version, egg, query.wait)
    known = {"project": project, "version": query.version, "nodes": [answer.shown() for answer in answers]}
    if query.wait is not None and are_installing(answers):
        url = f"/projects/{quote(project)}/versions/{quote(query.version)}/dependencies"
        return JSONResponse(InstallingView(**known, dependencies_url=url).model_dump(), HTTPStatus.ACCEPTED)
    return DeployedView(**known, spiders=max(answer.spiders for answer in answers))


async def _read_form(request: Request, egg: Path, parts: GatewayParts) -> None:
    """Write the egg of the form to `egg`, with the form's requirements. Raises `InvalidRequestError`."""
    async with request.form(max_files=2, max_fields=2, max_part_size=MAX_REQUIREMENTS + 1) as form:
        upload, requirements = form.get("egg"), form.get("requirements")
        if not isinstance(upload, UploadFile):
            raise InvalidRequestError("egg", "is missing in the form: send it as a file (curl -F egg=@shop.egg)")
        with egg.open("wb") as file:
            await parts.threads.run(copyfileobj, upload.file, file)
        if isinstance(requirements, UploadFile):
            content = await requirements.read(MAX_REQUIREMENTS + 1)
        else:
            content = (requirements or "").encode()
        if requirements is not None:
            await parts.threads.run(put_requirements, egg, content)


@projects_router.get(
    "/projects/{project}/versions/{version}/dependencies",
    summary="What a version depends on",
    responses=problems(404, 409, 503),
)
@needs(Scope.ADMIN)
def get_version_dependencies(project: ProjectName, version: VersionName, parts: Parts) -> DependenciesView:
    """How the installation of the version's requirements has gone on each living node, with its log. For some time a
    node also knows that of a version that was refused.
    """
    answers = parts[Dependencies].of(project, version)
    nodes = [NodeDependenciesView(**answer._asdict()) for answer in answers]
    return DependenciesView(project=project, version=version, nodes=nodes)


@projects_router.get("/projects", summary="Projects", responses=problems(503))
@needs(Scope.READ, by_project=True)
def list_projects(parts: Parts, caller: Called) -> ProjectList:
    """All projects by name, with their versions. The project `default` is the platform's own and has none."""
    with mongo_errors():
        found = parts[SpiderCatalog].projects()
    return ProjectList(projects=[_view(one) for one in found if caller.may_see_projects([one.name])])


@projects_router.get("/projects/{project}/versions", summary="A project's versions", responses=problems(404, 503))
@needs(Scope.READ)
def list_versions(project: AnyProjectName, parts: Parts) -> VersionList:
    """All versions of the project; the one that was deployed last comes first."""
    with mongo_errors():
        found = parts[SpiderCatalog].project(project)
        named = parts[SpiderCatalog].select(project=found.name)
        # others differ in the case of their name
        spiders = Counter(info.version for info in named if info.project == found.name)
        kept = parts[EggStore].find(Egg(found.name, version) for version in found.versions)
        nodes = parts[NodeStore].all(attempts=False)
    versions = [
        _version(Egg(found.name, version), found, kept, nodes, spiders[version]) for version in found.versions[::-1]
    ]
    return VersionList(project=found.name, latest=found.latest, previous=found.previous, versions=versions)


@projects_router.post(
    "/projects/{project}/versions/{version}/activate",
    summary="Make a version the latest",
    responses=problems(404, 409, 503),
)
@needs(Scope.ADMIN)
def activate_version(project: ProjectName, version: VersionName, parts: Parts) -> ProjectView:
    """After the answer, crawls that name no version run this one, until another is deployed. Crawls that were asked
    for before keep theirs; schedules take the latest with each run.
    """
    with mongo_errors():
        found = parts[SpiderCatalog].project(project)
        parts[Releases].activate(Egg(found.name, version), found.versions)
        return _view(parts[SpiderCatalog].project(project))


@projects_router.post(
    "/projects/{project}/rollback", summary="Go back to the version before", responses=problems(404, 409, 503)
)
@needs(Scope.ADMIN)
def roll_back_project(project: ProjectName, parts: Parts) -> ProjectView:
    """Makes the version that was the latest before the latest again. Another call goes one version further back. 409
    if there is no earlier version.
    """
    with mongo_errors():
        found = parts[SpiderCatalog].project(project)
        parts[Releases].roll_back(found.name, found.versions)
        return _view(parts[SpiderCatalog].project(project))


def _view(project: Project) -> ProjectView:
    return ProjectView(**project._asdict())


def _version(
    egg: Egg, project: Project, kept: Mapping[Egg, KeptEgg], nodes: Iterable[Node], spiders: int
) -> VersionView:
    known = kept.get(egg)
    content = known.content if known else None
    return VersionView(
        version=egg.version,
        latest=egg.version == project.latest,
        deployed_at=known.changed_at if known else None,
        sha256=content.sha256 if content else None,
        size=content.size if content else None,
        spiders=spiders,
        nodes=[node.id for node in nodes if egg in node.eggs],
    )


@projects_router.delete(
    "/projects/{project}/versions/{version}", summary="Delete a deployed version", responses=problems(404, 503)
)
@needs(Scope.ADMIN)
async def delete_version(project: ProjectName, version: VersionName, parts: Parts) -> DeletedView:
    """Removes the stored egg, and the egg on every node; from a node that cannot be reached now, it is removed later.
    Running attempts go on. Crawls that wait for this version wait until it is deployed again, or until they are
    cancelled; `waiting_reason` says so.
    """
    removals = await parts.threads.run(parts[Undeployment].delete, project, version)
    nodes = [NodeRemovalView(**removal._asdict()) for removal in removals]
    return DeletedView(project=project, version=version, nodes=nodes)
