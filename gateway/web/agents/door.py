"""The way to the server of the Model Context Protocol, which begins when it is first asked for."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from importlib import import_module
from typing import Any

from attrs import define, field
from starlette.types import ASGIApp

_SERVER = "gateway.web.agents.mcp_server"


@define(eq=False, repr=False)
class AgentDoor:
    """Most gateways are never asked, so they have neither the SDK nor the server."""

    _beginning: asyncio.Task[Any] | None = field(init=False, default=None)
    _serving: asyncio.Task[None] | None = field(init=False, default=None)

    async def open(self) -> ASGIApp:
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._begin(), context=contextvars.Context())
        found: ASGIApp = await asyncio.shield(self._beginning)
        return found

    async def close(self) -> None:
        for task in (self._beginning, self._serving):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})

    async def _begin(self) -> ASGIApp:
        module = await asyncio.to_thread(import_module, _SERVER)
        # it tells of each request, which the gateway's log does as well
        logging.getLogger("mcp").setLevel(logging.WARNING)
        manager, is_ready = module.manager(), asyncio.Event()

        async def serve() -> None:
            # in a task of its own: what it opens has to be closed by the task that opened it
            async with manager.run():
                is_ready.set()
                await asyncio.Event().wait()

        self._serving = asyncio.create_task(serve())
        await is_ready.wait()
        app: ASGIApp = manager.handle_request
        return app
