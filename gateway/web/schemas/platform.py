"""What is told of the platform: spiders, nodes, health."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from pydantic import BaseModel, Field

from gateway.domain.node_files import SpiderInfo
from gateway.storage.nodes import Node
from gateway.web.schemas.types import Timestamp


class SpiderList(BaseModel):
    spiders: list[SpiderInfo]


class NodeView(BaseModel):
    name: str
    url: str
    version: str
    healthy: bool = Field(description="It gave a sign of life lately.")
    max_slots: int
    used_slots: int
    free_slots: int
    running: int = Field(description="Spider processes alive at its last sign of life.")
    free_bytes: int | None = Field(description="Of its disk.")
    heartbeat_at: Timestamp
    rest_until: Timestamp | None = Field(description="Offered no new work before then.")

    @classmethod
    def of(cls, node: Node, now: datetime, dead_after: timedelta) -> NodeView:
        return cls(
            name=node.id,
            healthy=node.is_alive(now, dead_after),
            used_slots=len(node.slots),
            running=len(node.alive),
            **node.model_dump(include={"url", "version", "max_slots", "free_bytes", "heartbeat_at", "rest_until"}),
            free_slots=node.free_slots,
        )


class NodeList(BaseModel):
    nodes: list[NodeView]


class CheckView(BaseModel):
    status: Literal["ok", "down"]
    message: str
    todo: str | None = Field(default=None, description="How to mend it.")


class HealthView(BaseModel):
    status: Literal["ok", "degraded", "down"] = Field(description="Down: nothing can be accepted.")
    checks: dict[str, CheckView]


class Liveness(BaseModel):
    status: Literal["ok"] = "ok"
