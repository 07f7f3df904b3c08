"""Notes every call that may change something, once it is known who calls; also one that is refused."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from typing import Any

import orjson
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.domain.api_key import ANYBODY, Caller
from gateway.domain.api_key import Scope as KeyScope
from gateway.domain.audit import AuditEntry
from gateway.services.audit_trail import AuditTrail
from gateway.web.key_guard import signs_in
from gateway.web.parts import GatewayParts

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: Fields of an answer that name what was made.
_IDS = ("job_id", "schedule_id", "task_id", "id", "name", "key_id")
#: An answer that names what was made is shorter.
_SHORT = 64 << 10
_LONGEST = 200


class Audit:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _READING:
            await self.app(scope, receive, send)
            return
        answer = _Answer(scope, send)
        try:
            await self.app(scope, receive, answer.send)
        finally:
            answer.note()


class _Answer:
    """Notes the call when the answer begins: it may be a stream of hours."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        #: Of an answer that never came.
        self._status = 500
        self._is_json = False
        self._is_noted = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._is_json = Headers(raw=message["headers"]).get("content-type", "").startswith("application/json")
            if not self._is_json:
                self.note()
        elif not self._is_noted:
            self.note(message.get("body", b""))
        await self._send(message)

    def note(self, body: bytes = b"") -> None:
        """Once; but what is at no address of ours, or is not possible there, changes nothing. Nor does a sign-in that
        fails, which anybody may try without end: wrong keys are counted by address and hour.
        """
        if self._is_noted or "route" not in self._scope or self._status == HTTPStatus.METHOD_NOT_ALLOWED:
            return
        self._is_noted = True
        if signs_in(self._scope) and self._status >= HTTPStatus.MULTIPLE_CHOICES:
            return
        parts: GatewayParts = self._scope["app"].state.parts
        made = _made(body) if self._is_json and self._status < HTTPStatus.MULTIPLE_CHOICES else {}
        parts[AuditTrail].note(_entry(self._scope, self._status, made, parts.clock()))


def _made(body: bytes) -> dict[str, str]:
    if len(body) > _SHORT:
        return {}
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(told, dict):
        return {}
    within = told.get("data")
    fields: dict[str, Any] = {**told, **(within if isinstance(within, dict) else {})}
    return {name: fields[name][:_LONGEST] for name in _IDS if isinstance(fields.get(name), str)}


def _entry(scope: Scope, status: int, made: dict[str, str], at: datetime) -> AuditEntry:
    state = scope.get("state", {})
    caller: Caller = state.get("caller", ANYBODY)
    key = caller.key
    named = {name: _storable(str(value)) for name, value in scope.get("path_params", {}).items()}
    return AuditEntry(
        at=at,
        user_id=key.user_id if key else None,
        key_id=key.id if key else None,
        scope=[one for one in KeyScope if one in caller.scopes][-1] if key else None,
        method=scope["method"],
        route=scope["route"].path_format,
        resources={**made, **named},
        status=status,
        request_id=state.get("request_id"),
        address=str(scope["client"][0]) if scope.get("client") else None,
    )


def _storable(text: str) -> str:
    """An address may hold half a surrogate pair, which a document cannot."""
    return text[:_LONGEST].encode("utf-8", "replace").decode()
