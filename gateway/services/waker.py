"""Wakes a worker: "look at job X now". The message is a hint; the sweeper finds whatever a lost one named."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import structlog
from celery import Celery
from kombu.exceptions import KombuError

log = structlog.get_logger()

ENQUEUE_CRAWL = "enqueue_crawl"
FINISH_CRAWL = "finish_crawl"
CANCEL_CRAWL = "cancel_crawl"
CALL_WEBHOOKS = "call_webhooks"
RECONCILE_NODE = "reconcile_node"
REMOVE_EXPIRED = "remove_expired"


class Waker(Protocol):
    def wake(self, task: str, *args: Any) -> None:
        """Ask for `task` soon. Returns at once and never fails."""


class CeleryWaker:
    """Publishes from a few threads of its own: a broker that is away stalls neither a request nor a tick."""

    #: Messages waiting for the broker; beyond that the sweeper is quicker.
    MAX_WAITING = 1000

    def __init__(self, app: Celery, *, threads: int = 4) -> None:
        self._app = app
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="waker")
        self._waiting = 0

    def wake(self, task: str, *args: Any) -> None:
        if self._waiting >= self.MAX_WAITING:
            return
        self._waiting += 1
        self._threads.submit(self._publish, task, args)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _publish(self, task: str, args: tuple[Any, ...]) -> None:
        try:
            self._app.send_task(task, args=args, retry=False, ignore_result=True)
        except (KombuError, OSError, self._app.connection_for_write().connection_errors) as error:
            log.warning("wake_failed", task=task, error=str(error))
        finally:
            self._waiting -= 1


def create_producer(broker_url: str, queue_name: str) -> Celery:
    """A Celery app that can send tasks, by name, and do nothing else."""
    app = Celery("discoverybot", broker=broker_url, set_as_current=False)
    app.conf.update(
        task_default_queue=queue_name,
        task_ignore_result=True,
        broker_connection_retry=False,
        broker_connection_timeout=2,
        broker_transport_options={"socket_timeout": 5, "socket_connect_timeout": 2},
    )
    return app
