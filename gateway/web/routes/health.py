"""Whether the platform works: for people, balancers, and the supervisor that restarts us."""

from __future__ import annotations

from typing import Literal

from fastapi import Response
from pydantic import BaseModel, Field

from gateway.status.health import SharedHealth
from gateway.web.authorisation import for_everybody
from gateway.web.dependencies import Parts, Router
from gateway.web.errors import RETRY_AFTER


class CheckView(BaseModel):
    """The result of one check, and what to do about it."""

    status: Literal["ok", "down", "starting"]
    message: str
    todo: str | None = Field(default=None, description="What to do about it.")


class HealthView(BaseModel):
    """Whether the platform is well, check by check."""

    status: Literal["ok", "degraded", "starting", "down"] = Field(
        description="`starting`: no node has published its spiders. While `starting` or `down`, no crawl is accepted."
    )
    checks: dict[str, CheckView]


class Liveness(BaseModel):
    """That the gateway answers."""

    status: Literal["ok"] = "ok"


router = Router(prefix="/health", tags=["health"])


@router.get(
    "",
    summary="What works, and what to do about what does not",
    responses={
        503: {
            "model": HealthView,
            "description": "No crawl is accepted: MongoDB is away, or (`starting`) no node has published spiders.",
        }
    },
)
@router.head("", include_in_schema=False)  # what some balancers ask
@for_everybody
async def get_health(response: Response, parts: Parts) -> HealthView:
    """Check by check: 503 if what is needed for crawls is away."""
    report = await parts[SharedHealth].report()
    if not report.accepting:
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_AFTER)
    checks = {name: CheckView.model_validate(check._asdict()) for name, check in report.checks.items()}
    return HealthView.model_validate({"status": report.status, "checks": checks})


@router.get("/live", summary="Whether this process answers")
@router.head("/live", include_in_schema=False)
@for_everybody
async def get_liveness() -> Liveness:
    """That the process answers. It asks nothing of the stores."""
    return Liveness()
