"""The clock of the platform, as a Celery Beat scheduler. Any number of beats may tick at once."""

from __future__ import annotations

import os
import socket
from typing import Any

import structlog
from celery.beat import ScheduleEntry, Scheduler

from gateway.worker.wiring import Wiring

log = structlog.get_logger()


class MongoScheduler(Scheduler):
    """Finds what is due in MongoDB and nowhere else: there is no schedule file and nothing to lose.

    A tick that fails is logged and comes again; a beat never ends because a store is away.
    """

    def setup_schedule(self) -> None:
        self._wiring: Wiring = self.app.wiring
        self._interval: float = self.app.conf.beat_max_loop_interval
        self._name = f"beat:{socket.gethostname()}:{os.getpid()}"

    def tick(self, *_: Any, **__: Any) -> float:
        """One sweep; the seconds until the next."""
        try:
            # first, because it ticks whatever the sweep meets
            self._wiring.heartbeats.beat(self._name)
            self._wiring.sweeper.sweep()
        except Exception as error:  # noqa: BLE001 - see the class: whatever it was, the next tick looks again
            log.warning("tick_failed", error=str(error), kind=type(error).__name__)
        return self._interval

    @property
    def schedule(self) -> dict[str, ScheduleEntry]:
        return {}

    def sync(self) -> None:
        """Nothing is kept here."""
