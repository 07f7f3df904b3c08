"""Tells that a worker is there. Its messages cannot: a broker keeps them for one that was killed, too. And has it do
now and then what no message may have asked for.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

import structlog
from celery import bootsteps

from gateway.container import Container
from gateway.domain.clock import VERDICT_SECONDS
from gateway.domain.unanswered import lately_unanswered
from gateway.services.webhooks import Webhooks
from gateway.storage.client import within
from gateway.storage.heartbeats import WORKER, HeartbeatStore

log = structlog.get_logger()

#: Seconds between two signs of life.
_PACE = 3.0


class SignOfLife(bootsteps.StartStopStep):
    """From the worker's start to its end, from a thread of its own: a slow task does not make a worker look dead."""

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._parts: Container = parent.app.parts
        self._name = f"{WORKER}:{socket.gethostname()}:{os.getpid()}"
        self._ended = threading.Event()

    def start(self, _parent: Any) -> None:
        threading.Thread(target=self._beat, name="sign-of-life", daemon=True).start()

    def stop(self, _parent: Any) -> None:
        self._ended.set()
        if Webhooks in self._parts:
            # calls under way would go on; nothing else does anything by itself
            self._parts[Webhooks].close()

    terminate = stop

    def _beat(self) -> None:
        while not self._ended.is_set():
            try:
                with within(VERDICT_SECONDS):
                    self._parts[HeartbeatStore].beat(self._name, lately_unanswered())
                self._parts[Webhooks].look()
            except Exception as error:  # noqa: BLE001 - whatever it was, the next sign of life may get through
                log.warning("sign_of_life_failed", error=str(error), kind=type(error).__name__)
            self._ended.wait(_PACE)
