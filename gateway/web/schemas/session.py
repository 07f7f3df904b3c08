"""Who is signed in."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SecretStr

from gateway.domain.api_key import Caller, Scope, Seal
from gateway.domain.console_session import ConsoleSession
from gateway.web.schemas.types import Timestamp

_KEY = f"db_4f1d9c2b3a4e_{'0d4f5c6b' * 6}"
_VIEW: dict[str, JsonValue] = {
    "user_id": "abc123",
    "scopes": ["read", "crawl"],
    "key_id": "4f1d9c2b3a4e",
    "expires_at": "2027-06-01T21:00:00.000Z",
    "csrf_token": "0d4f5c6b7a8e4f1d" * 4,
}


class SignIn(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"key": _KEY}]})

    key: SecretStr = Field(max_length=200, description="`db_<id>_<secret>`; not needed beside `Authorization`.")


class SessionView(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [_VIEW]})

    user_id: str | None = Field(description="On whose behalf; `null` while there are no keys.")
    scopes: list[Scope] = Field(description="What it may: each takes in those before it.")
    key_id: str | None
    expires_at: Timestamp | None = Field(description="When the session, or else the key, ends.")
    csrf_token: str | None = Field(description="For `X-CSRF-Token`; `null` where there is no session.")

    @classmethod
    def of(cls, caller: Caller, session: ConsoleSession | None, seal: Seal) -> SessionView:
        key = caller.key
        return cls(
            user_id=key.user_id if key else None,
            scopes=[scope for scope in Scope if scope in caller.scopes],
            key_id=key.id if key else None,
            expires_at=session.expires_at if session else key.expires_at if key else None,
            csrf_token=session.csrf_token(key, seal) if session and key else None,
        )
