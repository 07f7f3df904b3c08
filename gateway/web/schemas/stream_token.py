"""What opens a job's log to a browser."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.stream_token import StreamToken
from gateway.web.schemas.types import Timestamp

_JOB = "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_TOKEN = f"st_4f1d9c2b3a4e_1811840460_{'0d4f5c6b7a8e4f1d' * 4}"


class StreamTokenView(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "token": _TOKEN,
                    "expires_at": "2027-06-01T09:01:00.000Z",
                    "url": f"/jobs/{_JOB}/logs?token={_TOKEN}",
                }
            ]
        }
    )

    token: str
    expires_at: Timestamp
    url: str = Field(description="For an `EventSource`.")

    @classmethod
    def of(cls, job_id: str, token: StreamToken) -> StreamTokenView:
        return cls(token=str(token), expires_at=token.expires_at, url=f"/jobs/{job_id}/logs?token={token}")
