"""`/mcp`: the platform as tools of AI agents, by the Model Context Protocol over HTTP."""

from __future__ import annotations

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as RequestScope

from gateway.web.agents.door import AgentDoor
from gateway.web.authorisation import for_everybody
from gateway.web.dependencies import Parts, Router
from gateway.web.middleware import MERELY_COUNTED

router = Router(include_in_schema=False)


class _HandedOn(Response):
    """An answer that is made by another ASGI application."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self._app = app

    async def __call__(self, scope: RequestScope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


@router.post("/mcp")
@for_everybody
async def call_tools(request: Request, parts: Parts) -> Response:
    """Open to every key. Whatever a tool does is a call of one of our routes, so it needs what that
    route needs, and is noted as such.
    """
    setattr(request.state, MERELY_COUNTED, True)
    return _HandedOn(await parts[AgentDoor].open())
