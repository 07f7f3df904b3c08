"""What routes ask FastAPI for."""

from __future__ import annotations

import re
from typing import Annotated, cast

from fastapi import Depends, Path, Request

from gateway.domain.errors import JobNotFoundError, ScheduleNotFoundError
from gateway.web.parts import GatewayParts

_JOB_ID = re.compile(r"[0-9a-f]{32}")


async def _parts(request: Request) -> GatewayParts:
    return cast("GatewayParts", request.app.state.parts)


async def _job_id(
    job_id: Annotated[
        str, Path(description="As `POST /crawl` gave it.", examples=["5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"])
    ],
) -> str:
    if not _JOB_ID.fullmatch(job_id):
        raise JobNotFoundError(job_id)
    return job_id


async def _schedule_id(
    schedule_id: Annotated[
        str, Path(description="As `POST /crawl` gave it.", examples=["0d4f5c6b7a8e4f1d9c2b3a4e5f607182"])
    ],
) -> str:
    if not _JOB_ID.fullmatch(schedule_id):
        raise ScheduleNotFoundError(schedule_id)
    return schedule_id


async def _request_id(request: Request) -> str:
    return cast("str", request.state.request_id)


Parts = Annotated[GatewayParts, Depends(_parts)]
#: Anything that is not shaped like an id of ours is simply not there.
JobId = Annotated[str, Depends(_job_id)]
ScheduleId = Annotated[str, Depends(_schedule_id)]
RequestId = Annotated[str, Depends(_request_id)]
