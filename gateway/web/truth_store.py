"""MongoDB from the gateway's side: it may come later than we do, and nothing is accepted before it is ready."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime

import structlog
from pymongo.database import Database
from pymongo.errors import PyMongoError

from gateway.domain.clock import Clock, utc_now
from gateway.domain.errors import UnavailableError
from gateway.storage.client import Document, ServerClock
from gateway.storage.indexes import ensure_indexes
from gateway.storage.presence import LOOK_SECONDS, Presence

log = structlog.get_logger("gateway.web")

_RETRY_SECONDS = 1.0


class TruthStore:
    """Without the unique indexes two identical requests could make two jobs: so they come first."""

    def __init__(self, database: Database[Document], clock: ServerClock) -> None:
        self._database = database
        self._server_clock = clock
        self._clock: Clock = utc_now
        self._ready = asyncio.Event()
        self._presence = Presence(database.client)

    def clock(self) -> datetime:
        """MongoDB's time, once it has been measured; this machine's until then."""
        return self._clock()

    def require(self) -> None:
        """Raises `UnavailableError` until the database has been prepared."""
        if not self._ready.is_set():
            raise UnavailableError("the database has not been reached since the gateway was started")

    def refuse_if_away(self) -> None:
        """Raises `UnavailableError` while it is known to be away, when a call would only wait for its time-out."""
        if self._presence.is_away:
            raise UnavailableError("the database is away")

    async def watch(self) -> None:
        """To be run for as long as anybody asks."""
        while True:
            self._presence.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def prepare(self) -> None:
        """Try until it works."""
        is_prepared = False
        while not is_prepared:
            is_prepared = await self._try_to_prepare()
        self._clock = self._server_clock
        self._ready.set()

    async def wait(self, seconds: float) -> None:
        """Until it is ready, but not longer than `seconds`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), seconds)

    async def _try_to_prepare(self) -> bool:
        try:
            await asyncio.to_thread(self._prepare_once)
        except PyMongoError as error:
            log.warning("database_not_ready", error=type(error).__name__)
            await asyncio.sleep(_RETRY_SECONDS)
            return False
        return True

    def _prepare_once(self) -> None:
        ensure_indexes(self._database)
        self._server_clock.measure()
