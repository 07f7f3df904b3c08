"""`GET /health` for people and balancers, `GET /health/live` for whoever restarts us."""

from __future__ import annotations

from fastapi import APIRouter, Response

from gateway.services.health import Report
from gateway.web.dependencies import Parts
from gateway.web.errors import RETRY_AFTER
from gateway.web.schemas.platform import CheckView, HealthView, Liveness
from gateway.web.shared_health import SharedHealth

router = APIRouter(prefix="/health", tags=["platform"])


@router.get(
    "",
    summary="What works, and how to mend what does not",
    responses={
        503: {
            "model": HealthView,
            "description": "Nothing is accepted: MongoDB is away, or (`starting`) no node has published its spiders.",
        }
    },
)
@router.head("", include_in_schema=False)  # what some balancers ask
async def health(response: Response, parts: Parts) -> HealthView:
    report = await parts[SharedHealth].report()
    if not report.accepting:
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_AFTER)
    return _view(report)


@router.get("/live", summary="Whether this process answers")
@router.head("/live", include_in_schema=False)
async def live() -> Liveness:
    return Liveness()


def _view(report: Report) -> HealthView:
    checks = {name: CheckView.model_validate(check._asdict()) for name, check in report.checks.items()}
    return HealthView.model_validate({"status": report.status, "checks": checks})
