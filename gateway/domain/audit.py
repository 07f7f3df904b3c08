"""Who did what: one entry for each call that may have changed something, and for what the command line changes."""

from __future__ import annotations

import uuid
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from gateway.domain.api_key import Scope


class AuditKind(StrEnum):
    CALL = "call"
    #: Wrong keys, tokens or sessions: one entry an address and hour.
    LOGIN_FAILED = "login_failed"
    #: On the server, by whoever can reach the database.
    COMMAND = "command"


class AuditEntry(BaseModel):
    """No bodies and no secrets; `_id` in MongoDB is its id."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    id: str = Field(alias="_id", default_factory=lambda: uuid.uuid4().hex)
    at: datetime
    kind: AuditKind = AuditKind.CALL
    #: The key's; `None` while there are no keys.
    user_id: str | None = None
    key_id: str | None = None
    #: The highest that the key has.
    scope: Scope | None = None
    method: str | None = None
    #: As in the API's description, with `{job_id}` for an id; or the command.
    route: str | None = None
    #: What the address names, and what the answer says was made.
    resources: dict[str, str] = {}
    status: int | None = None
    request_id: str | None = None
    #: Of the connection; of a command the user and the machine.
    address: str | None = None
    #: Failed logins.
    count: int | None = None
    #: The last of them.
    last_at: datetime | None = None
