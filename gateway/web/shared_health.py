"""What `GET /health` is answered with. Anybody may ask, without a key, and as often as he likes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.services.health import Report


class SharedHealth:
    """For use on one loop. There is one look at a time: whoever asks meanwhile is told what it finds."""

    def __init__(self, look: Callable[[], Report]) -> None:
        self._look = look
        self._under_way: asyncio.Task[Report] | None = None

    async def report(self) -> Report:
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(asyncio.to_thread(self._look))
        # whoever began it may be gone by then
        return await asyncio.shield(self._under_way)
