"""Wakes a worker: "look at job X now". The message is a hint; the sweeper finds whatever a lost one named."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import structlog
from celery import Celery

from gateway.correlation import about_message, correlation_of, current_correlation
from gateway.domain.job import Job
from gateway.services.broker import broker_settings
from gateway.services.broker_line import BrokerLine

log = structlog.get_logger()

ENQUEUE_CRAWL = "enqueue_crawl"
SEE_TO_OVERDUE = "see_to_overdue"
FINISH_CRAWL = "finish_crawl"
CANCEL_CRAWL = "cancel_crawl"
CALL_WEBHOOKS = "call_webhooks"
POST_AGAIN = "post_again"
STOP_ATTEMPT = "stop_attempt"
PROBE_NODE = "probe_node"
REMOVE_EXPIRED = "remove_expired"
BRING_EGG = "bring_egg"


class Waker(Protocol):
    """Each of these returns at once and never fails."""

    def wake(self, task: str, *args: Any) -> None:
        """Ask for `task` soon."""

    def wake_job(self, job: Job) -> None:
        """Ask for a look at this job. The message of a target's run also says what is searched for, where."""


class _Message(NamedTuple):
    task: str
    args: tuple[Any, ...]
    fields: dict[str, Any]
    correlation_id: str | None


class CeleryWaker:
    """Publishes from a few threads of its own: a broker that is away stalls neither a request nor a tick."""

    #: Messages waiting for the broker; beyond that the sweeper is quicker. More than schedules fire at once: 1,000
    #: take about a second.
    MAX_WAITING = 10_000
    #: Seconds after which nothing that is still unsent is worth the time that a broker takes to fail.
    PATIENCE = 5.0

    def __init__(self, app: Celery, *, threads: int = 4) -> None:
        self._app = app
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="waker")
        self._lines: list[BrokerLine] = []
        self._own = threading.local()
        self._declaring = threading.Lock()
        #: Messages that the broker has not taken yet.
        self.unsent = 0
        self._lock = threading.Lock()
        self._failed_at = float("-inf")

    def wake(self, task: str, *args: Any) -> None:
        self._submit(_Message(task, args, {}, current_correlation()))

    def wake_job(self, job: Job) -> None:
        about = job.target.to_message(job.attempt) if job.target else {}
        self._submit(_Message(ENQUEUE_CRAWL, (), {"job_id": job.id, **about}, correlation_of(job)))

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        for line in self._lines:
            line.close()

    def _submit(self, message: _Message) -> None:
        with self._lock:
            if self.unsent >= self.MAX_WAITING:
                return
            self.unsent += 1
        self._threads.submit(self._publish, message, time.monotonic())

    def _publish(self, message: _Message, asked_at: float) -> None:
        line = self._line()
        try:
            if self._failed_at - asked_at < self.PATIENCE:
                with about_message(None, message.correlation_id):
                    line.send(message.task, message.args, message.fields)
        except line.errors as error:
            self._failed_at = time.monotonic()
            log.warning("wake_failed", task=message.task, error=str(error), kind=type(error).__name__)
        finally:
            with self._lock:
                self.unsent -= 1

    def _line(self) -> BrokerLine:
        line: BrokerLine | None = getattr(self._own, "line", None)
        if line is None:
            line = self._own.line = BrokerLine(self._app, self._declaring)
            self._lines.append(line)
        return line


def create_producer(broker_url: str, queue_name: str) -> Celery:
    """A Celery app that can send tasks, by name, and do nothing else."""
    app = Celery("discoverybot", broker=broker_url, set_as_current=False)
    app.conf.update(task_ignore_result=True, broker_connection_retry=False, **broker_settings(broker_url, queue_name))
    return app
