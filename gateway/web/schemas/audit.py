"""Who did what: which entries are asked for, and what is told of them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gateway.domain.api_key import Scope
from gateway.domain.audit import AuditEntry, AuditKind
from gateway.storage.audit import AuditFilter
from gateway.web.schemas.types import Cursor, Name, QueryTime, Text, Timestamp, UserId

_EXAMPLE: dict[str, JsonValue] = {
    "id": "3c1f0b7e5a6d4e2f8b9a0c1d2e3f4a5b",
    "at": "2027-06-01T09:00:01.250Z",
    "kind": "call",
    "user_id": "abc123",
    "key_id": "4f1d9c2b3a4e",
    "scope": "crawl",
    "method": "POST",
    "route": "/jobs/{job_id}/cancel",
    "resources": {"job_id": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"},
    "status": 200,
    "request_id": "0b9f6f1c2f0e4c3d9a4f5e6d7c8b9a01",
    "address": "192.0.2.7",
    "count": None,
    "last_at": None,
}


class AuditQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    user_id: UserId | None = Field(default=None, description="By this user's keys.")
    key_id: Name | None = Field(default=None, description="By this key.")
    route: Annotated[Text, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="As in this description: `/jobs/{job_id}/cancel`; or a command."
    )
    kind: AuditKind | None = None
    since: QueryTime | None = Field(default=None, description="At or after; RFC 3339 with an offset.")
    until: QueryTime | None = Field(default=None, description="Before.")
    limit: int = Field(default=50, ge=1, le=200)
    after: Cursor | None = Field(default=None, description="`next` of the page before.")

    def to_filter(self) -> AuditFilter:
        return AuditFilter(self.user_id, self.key_id, self.route, self.kind, self.since, self.until)


class AuditView(BaseModel):
    """One call that may have changed something."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    id: str
    at: Timestamp = Field(description="Of failed logins the first.")
    kind: AuditKind = Field(description="`login_failed`: wrong keys of one address within an hour.")
    user_id: str | None = Field(description="The key's; null while there are no keys.")
    key_id: str | None
    scope: Scope | None = Field(description="The highest that the key has.")
    method: str | None
    route: str | None = Field(description="Or the command that was given on the server.")
    resources: dict[str, str] = Field(description="What the address names, and what was made.")
    status: int | None = Field(description="How it was answered.")
    request_id: str | None = Field(description="Also in the log, and the `correlation_id` of jobs that were made.")
    address: str | None = Field(description="Of the client; of a command the user and the machine.")
    count: int | None = Field(description="Failed logins.")
    last_at: Timestamp | None = Field(description="The last of them.")

    @classmethod
    def of(cls, entry: AuditEntry) -> AuditView:
        return cls(**entry.model_dump())


class AuditPage(BaseModel):
    entries: list[AuditView]
    next: str | None = Field(description="`after` of the next page; null on the last.")
