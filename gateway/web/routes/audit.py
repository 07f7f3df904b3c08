"""`GET /audit`: who did what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gateway.storage.audit import AuditStore
from gateway.web.dependencies import Parts
from gateway.web.schemas.audit import AuditPage, AuditQuery, AuditView
from gateway.web.schemas.problem import problems

router = APIRouter(tags=["platform"])


@router.get("/audit", summary="Who did what", responses=problems(503))
async def list_audit(query: Annotated[AuditQuery, Query()], parts: Parts) -> AuditPage:
    """Calls that may have changed something, refused ones too, newest first; they are there within a second. Pass
    `next` as `after` for the page that follows.
    """
    found, following = await parts.reads.run(parts[AuditStore].page, query.to_filter(), query.limit, query.after)
    return AuditPage(entries=[AuditView.of(entry) for entry in found], next=following)
