"""The pages that a browser gets instead of the API's error answers: they explain the error and what to do next, or
lead to the sign-in.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.console.pages import page, sign_in_address

#: Header fields of the error answer that do not apply to the page that replaces it.
_REPLACED = frozenset({b"content-type", b"content-length", b"content-security-policy"})
_TODO = {
    HTTPStatus.FORBIDDEN: "Ask an admin for access, or sign in with another key.",
    HTTPStatus.NOT_FOUND: "It may have been deleted, or the link is incomplete.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Check the address, or start from the overview.",
    HTTPStatus.TOO_MANY_REQUESTS: "Wait a moment, then reload the page.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Reload the page in a few seconds. If this persists, see the health checks.",
}


class ErrorPages:
    """ASGI middleware for pages that a browser asks for: error answers in the API's format become pages."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = _Refusal(send)
        await self.app(scope, receive, refusal.send)
        if refusal.start is not None:
            await _instead(Request(scope), refusal)(scope, receive, refusal.send_page)


class _Refusal:
    """Passes an answer on, unless it is an error answer, which is kept for the error page."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.start: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_refusal(message):
            self.start = message
        elif self.start is not None:
            self._body += message.get("body", b"")
        else:
            await self._send(message)

    async def send_page(self, message: Message) -> None:
        """Send the page with the header fields of the error answer, such as the id of the request."""
        if message["type"] == "http.response.start" and self.start is not None:
            said = {name for name, _ in message["headers"]} | _REPLACED
            kept = [pair for pair in self.start["headers"] if pair[0].lower() not in said]
            message["headers"] = [*message["headers"], *kept]
        await self._send(message)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = orjson.loads(self._body)["error"]
        return error

    @property
    def request_id(self) -> str | None:
        """The id of the request, by which its lines can be found in the gateway's log."""
        found: str | None = orjson.loads(self._body).get("request_id")
        return found


def _is_refusal(start: Message) -> bool:
    kind = dict(start["headers"]).get(b"content-type", b"")
    return bool(start["status"] >= HTTPStatus.BAD_REQUEST) and kind.startswith(b"application/json")


def _instead(request: Request, refusal: _Refusal) -> Response:
    assert refusal.start is not None  # noqa: S101 - only called for an error answer
    status, error = refusal.start["status"], refusal.error
    if status == HTTPStatus.UNAUTHORIZED:
        return _to_sign_in(request)
    path = request.url.path
    if status == HTTPStatus.NOT_FOUND and path.startswith("/console") and path != (there := path.rstrip("/")):
        # people type these
        there = "/" if there == "/console" else there
        return RedirectResponse(there + (f"?{request.url.query}" if request.url.query else ""))
    name = HTTPStatus(status).phrase
    return page(
        request,
        "error.html",
        status_code=status,
        name=name,
        message=error["message"],
        todo=_TODO.get(status),
        request_id=refusal.request_id,
    )


def _to_sign_in(request: Request) -> Response:
    """Lead to the sign-in. If the request is for a part of a page, htmx would show the form inside this part. So htmx
    is told to load the whole page again.
    """
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"HX-Refresh": "true"})
    return RedirectResponse(sign_in_address(request.url), status_code=303)
