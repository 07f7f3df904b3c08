"""`GET /spiders`."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.web.dependencies import Wired
from gateway.web.schemas.platform import SpiderList
from gateway.web.schemas.problem import problems

router = APIRouter(tags=["platform"])


@router.get("/spiders", summary="What can be run", responses=problems(503))
def list_spiders(wiring: Wired) -> SpiderList:
    """`params_schema` is the JSON Schema of a spider's `params`; `null` takes any strings."""
    return SpiderList(spiders=wiring.catalog.all())
