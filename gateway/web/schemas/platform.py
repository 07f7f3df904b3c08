"""What is told of the platform: spiders, deployments, health."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gateway.domain.node_files import SpiderInfo
from gateway.web.schemas.types import Name

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


class SpiderView(BaseModel):
    """One spider of one version of its project."""

    model_config = ConfigDict(json_schema_extra={"examples": [_OWN_SPIDER, _EGG_SPIDER]})

    project: str = Field(description="`default` is our own, which `POST /crawl` takes without a project.")
    version: str | None = Field(description="Of the project's egg; our own project has none.")
    latest: bool = Field(description="A crawl that names no version gets this one.")
    name: str
    description: str
    params_schema: dict[str, Any] | None = Field(description="JSON Schema of `params`; null: any strings.")
    allowed_domains: list[str] = Field(
        description="It keeps to these hosts and their subdomains: start URLs elsewhere are refused. Empty: no limit."
    )
    own_start: bool = Field(description="It decides by itself where it starts and may not look at the start URLs.")

    @classmethod
    def of(cls, info: SpiderInfo) -> SpiderView:
        return cls(**info.model_dump())


class ProjectView(BaseModel):
    """A deployed project, or our own."""

    name: str
    latest: str | None = Field(description="What a crawl that names no version gets.")
    versions: list[str] = Field(description="Oldest first; our own project has none.")


class SpiderList(BaseModel):
    spiders: list[SpiderView]
    projects: list[ProjectView] = Field(description="Those of these spiders.")


class SpidersQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    project: Name | None = Field(default=None, description="Only of this project.")
    version: Name | None = Field(default=None, description="Only of this version.")
    name: Name | None = Field(default=None, description="Only spiders of this name.")


class NodeAnswerView(BaseModel):
    node: str
    accepted: bool
    spiders: int = Field(description="In the egg.")
    message: str | None = Field(description="Why it was not taken.")


class NodeRemovalView(BaseModel):
    node: str
    removed: bool = Field(description="It is not there any more.")
    message: str | None = Field(description="Why it still is; it is removed once the node can be asked.")


class DeletedView(BaseModel):
    """A version that is kept no longer."""

    model_config = ConfigDict(json_schema_extra={"examples": [_DELETED]})

    project: str
    version: str
    nodes: list[NodeRemovalView] = Field(description="Those that had it.")


class DeployedView(BaseModel):
    """An egg that at least one node has taken, and none refused."""

    model_config = ConfigDict(json_schema_extra={"examples": [_DEPLOYED]})

    project: str
    version: str
    spiders: int = Field(description="In the egg.")
    nodes: list[NodeAnswerView]


class DeployQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}$")] = Field(
        description="The newest one is what crawls get that name none.", examples=["1.4"]
    )


class CheckView(BaseModel):
    status: Literal["ok", "down", "starting"]
    message: str
    todo: str | None = Field(default=None, description="How to mend it.")


class HealthView(BaseModel):
    status: Literal["ok", "degraded", "starting", "down"] = Field(
        description="Starting: no node has published its spiders yet. With it, and with down, nothing is accepted."
    )
    checks: dict[str, CheckView]


class Liveness(BaseModel):
    status: Literal["ok"] = "ok"
