"""What every refusal looks like, and how routes declare theirs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class ErrorBody(BaseModel):
    code: str = Field(description="Stable, for programs.", examples=["job_not_found"])
    message: str = Field(description="For people.", examples=["there is no job '5f0c…'"])
    detail: Any = Field(default=None, description="What is known besides; `detail.field` names a wrong field.")


class Problem(BaseModel):
    """Any answer that is not a success."""

    error: ErrorBody
    request_id: str = Field(description="Also in the `X-Request-ID` header, and in the gateway's log.")


_MEANINGS = {
    401: "There are keys, and the request shows none that is valid",
    403: "Not allowed: by the caller's key, an address that may not be fetched, or a request from another origin",
    404: "There is no such thing",
    409: "Its state does not allow this",
    413: "The body is larger than this call takes: 256 KiB, or 64 MiB for an egg",
    422: "Invalid; `detail.field` names the field",
    429: "Too many requests, or too many crawls wait: nothing was done, ask again after `Retry-After` seconds",
    500: "A fault of ours; the log has more under the request id",
    502: "A crawl node did not do as asked; `detail` has what each of them said",
    503: "The database is away, or no crawl node has published its spiders; ask again after `Retry-After` seconds",
    504: "The run has not ended in time; it goes on, and `detail.run_id` names it",
}
_CODES = {
    401: "key_required",
    403: "forbidden",
    404: "job_not_found",
    409: "conflict",
    413: "body_too_large",
    422: "invalid_request",
    429: "too_many_requests",
    500: "internal_error",
    502: "node_error",
    503: "unavailable",
    504: "run_goes_on",
}
Responses = dict[int | str, dict[str, Any]]


def problems(*statuses: int) -> Responses:
    """For `responses=` of a route: these refusals, in our format."""
    return {status: _response(status) for status in statuses}


def _response(status: int) -> dict[str, Any]:
    error: dict[str, Any] = {"code": _CODES[status], "message": _MEANINGS[status], "detail": None}
    example = {"error": error, "request_id": "0b9f6f1c2f0e4c3d9a4f5e6d7c8b9a01"}
    response: dict[str, Any] = {
        "model": Problem,
        "description": _MEANINGS[status],
        "content": {"application/json": {"example": example}},
    }
    if status in {429, 503}:
        response["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds"}}
    if status == 401:  # noqa: PLR2004 - the one status of ours that asks for a key
        response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}, "description": "`Bearer …`"}}
    return response
