"""What is told of crawl nodes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gateway.domain.node_state import NodeState
from gateway.services.node_health import report_on
from gateway.storage.nodes import Node
from gateway.web.schemas.types import Timestamp

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
    "todo": "look at Scrapyd's log there; it is probed when its rest is over",
    "failures": 3,
    "rest_until": "2027-06-01T09:00:14.000Z",
    "draining": False,
    "healthy": True,
    "max_slots": 4,
    "used_slots": 1,
    "free_slots": 3,
    "max_render_slots": 0,
    "used_render_slots": 0,
    "running": 1,
    "load": 0.25,
    "free_bytes": 41943040000,
    "disk_full": False,
    "heartbeat_at": "2027-06-01T09:00:09.000Z",
    "eggs": [{"project": "shop", "version": "1.4"}],
}


class EggView(BaseModel):
    project: str
    version: str


class NodeView(BaseModel):
    """A crawl node: a Scrapyd, its tailer and a disk."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    name: str
    url: str
    version: str
    state: NodeState = Field(description="Only one that is `up` is offered new work.")
    why: str | None = Field(description="Why it is in this state; null where that needs no word.")
    since: Timestamp | None = Field(description="Since when there has been a reason for it.")
    todo: str | None = Field(description="What to do about it.")
    failures: int = Field(description="In a row. From the third on it is quarantined; one success makes up for all.")
    rest_until: Timestamp | None = Field(description="It is offered no work: after this it is probed, and returns.")
    draining: bool = Field(description="It is offered no new work because somebody said so.")
    healthy: bool = Field(description="It gave a sign of life lately.")
    max_slots: int
    used_slots: int
    free_slots: int = Field(description="Not in use; whether they are offered, its state says.")
    max_render_slots: int = Field(description="Of its slots, how many may drive a browser; 0 without one.")
    used_render_slots: int
    running: int = Field(description="Spider processes alive at its last sign of life.")
    load: float = Field(description="The share of its slots that is in use.")
    free_bytes: int | None = Field(description="Of its disk.")
    disk_full: bool = Field(description="Less than `NODE_MIN_FREE_BYTES` is free.")
    heartbeat_at: Timestamp
    eggs: list[EggView] = Field(description="Deployed there. Our own project, which has no egg, is everywhere.")

    @classmethod
    def of(cls, node: Node, now: datetime, dead_after: timedelta) -> NodeView:
        return cls(
            name=node.id,
            healthy=node.is_alive(now, dead_after),
            draining=node.draining_since is not None,
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
    "heartbeat_at",
}  # fmt: skip


class MissingView(BaseModel):
    url: str
    todo: str


class NodeList(BaseModel):
    nodes: list[NodeView]
    missing: list[MissingView] = Field(description="What `SCRAPYD_URL` names, and no node has registered itself as.")
