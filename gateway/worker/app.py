"""The Celery application and its tasks."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

import structlog
from celery import Celery, Task, bootsteps
from celery.signals import setup_logging
from pymongo.database import Database

from gateway import logging
from gateway.clock import VERDICT_SECONDS
from gateway.container import Container, part
from gateway.contract.crawl import Egg
from gateway.contract.outbox import AttemptId
from gateway.dispatch.dispatcher import Dispatch
from gateway.dispatch.egg_delivery import EggDelivery
from gateway.jobs import messages
from gateway.jobs.completion import Completion
from gateway.jobs.messages import about_message
from gateway.jobs.store import JobStore
from gateway.nodes.health import WORKER, HeartbeatStore
from gateway.retention.retention import Retention
from gateway.settings import Settings
from gateway.signals.webhooks import Webhooks
from gateway.stores.broker import HEADER, broker_settings
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import Document, connect, within
from gateway.stores.unanswered import lately_unanswered

log = structlog.get_logger()

#: Seconds between two signs of life.
_PACE = 3.0


class SignOfLife(bootsteps.StartStopStep):
    """Signs of life from the worker's start to its end, in its own thread: a slow task must not make it look dead."""

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
            # without this, calls under way would go on; no other part does anything by itself
            self._parts[Webhooks].close()

    terminate = stop

    def _beat(self) -> None:
        while not self._ended.is_set():
            try:
                with within(VERDICT_SECONDS):
                    self._parts[HeartbeatStore].beat(self._name, lately_unanswered())
                self._parts[Webhooks].look()
            except Exception as error:  # noqa: BLE001 - after any failure the next sign of life may get through
                log.warning("sign_of_life_failed", error=str(error), kind=type(error).__name__)
            self._ended.wait(_PACE)


# --- the base of all tasks: their log lines carry the correlation id of the message

#: The first argument of each is the job's id.
_ABOUT_A_JOB = frozenset(
    {
        messages.ENQUEUE_CRAWL,
        messages.FINISH_CRAWL,
        messages.CANCEL_CRAWL,
        messages.POST_AGAIN,
        messages.CALL_WEBHOOKS,
    }
)


class TracedTask(Task):
    """The base of our tasks. What a task does to a job other than its message's, it logs under that job's id."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        job_id = kwargs.get("job_id", args[0] if args else None) if self.name in _ABOUT_A_JOB else None
        with about_message(job_id, self.request.get(HEADER)):
            log.debug("task_began", task=self.name)
            return super().__call__(*args, **kwargs)


# --- the tasks. Each of them calls one service; the sweeper may do everything that a task may do.
def register_tasks(app: Celery, parts: Container) -> None:
    """Bind the tasks to `app`; their names are part of the contract with everything that sends them."""
    _register_node_tasks(app, parts)

    @app.task(name=messages.ENQUEUE_CRAWL)
    def enqueue_crawl(job_id: str | None = None, others: Sequence[str] = (), **_target: Any) -> None:
        # `_target` is not needed: the job's document holds what a target's run is about
        parts[Dispatch].fill(job_id, *others, overdue=False)

    @app.task(name=messages.SEE_TO_OVERDUE)
    def see_to_overdue() -> None:
        parts[Dispatch].fill()

    @app.task(name=messages.FINISH_CRAWL)
    def finish_crawl(job_id: str) -> None:
        parts[Completion].conclude(job_id)

    @app.task(name=messages.CALL_WEBHOOKS)
    def call_webhooks(job_id: str) -> None:  # noqa: ARG001 - the id is for the log; all calls that are due are made
        parts[Webhooks].look()

    @app.task(name=messages.REMOVE_EXPIRED)
    def remove_expired() -> None:
        parts[Retention].run()

    @app.task(name=messages.BRING_EGG)
    def bring_egg(node: str, project: str, version: str) -> None:
        parts[EggDelivery].bring(node, Egg(project, version))


def _register_node_tasks(app: Celery, parts: Container) -> None:
    """Tasks that ask a node for something. None of them waits for the node's answer."""

    @app.task(name=messages.CANCEL_CRAWL)
    def cancel_crawl(job_id: str) -> None:
        parts[Dispatch].cancel(parts[JobStore].get(job_id))

    @app.task(name=messages.POST_AGAIN)
    def post_again(job_id: str) -> None:
        parts[Dispatch].post_again(parts[JobStore].get(job_id))

    @app.task(name=messages.STOP_ATTEMPT)
    def stop_attempt(node: str, project: str, attempt: str) -> None:
        if attempt_id := AttemptId.parse(attempt):
            parts[Dispatch].stop(node, project, attempt_id)

    @app.task(name=messages.PROBE_NODE)
    def probe_node(node: str) -> None:
        # a node that answers the probe gets work at once
        parts[Dispatch].probe(node, parts[Dispatch].fill)


# --- the application: it sets how messages travel, not what they cause
class WorkerParts(Container):
    """The parts of a worker or a beat."""

    @part
    def database(self) -> Database[Document]:
        database = connect(self.mongo_uri)
        try:
            ensure_indexes(database)
        except BaseException:
            # the next caller connects anew
            database.client.close()
            raise
        return self.connected(database)


def create_celery(settings: Settings) -> Celery:
    """The app for workers and beats. Nothing is connected before the first task or tick."""
    app = Celery("discoverybot", broker=settings.broker_location, task_cls=TracedTask)
    app.conf.update(
        **broker_settings(settings.broker_location, settings.queue_name),
        # a message is a hint: results are in MongoDB, and a repeated task finds nothing left to do
        task_ignore_result=True,
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_pool="threads",
        worker_concurrency=settings.worker_concurrency,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        worker_consumer="gateway.worker.consumer:Consumer",
        beat_scheduler="gateway.worker.beat:MongoScheduler",
        # how long beat may sleep: our scheduler says itself when it wants to be called
        beat_max_loop_interval=settings.tick_seconds,
    )
    parts = WorkerParts(settings)
    parts.celery = app
    app.parts = parts
    register_tasks(app, parts)
    app.steps["worker"].add(SignOfLife)
    # keeps Celery from putting its own handlers in the place of ours
    setup_logging.connect(lambda **_: logging.configure(settings.log_level), weak=False)
    return app
