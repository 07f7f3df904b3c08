"""The Celery application, its consumer and its tasks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import structlog
from amqp.exceptions import ConsumerCancelled, PreconditionFailed
from celery import Celery, Task, bootsteps
from celery.bootsteps import RUN
from celery.signals import setup_logging
from celery.worker import consumer
from kombu.message import Message
from pymongo.database import Database

from gateway import logging
from gateway.clock import VERDICT_SECONDS
from gateway.container import Container, part
from gateway.dispatch.dispatcher import Dispatch
from gateway.jobs import messages
from gateway.jobs.messages import about_message
from gateway.jobs.store import JobStore
from gateway.nodes.health import SIGN_SECONDS, WORKER, HeartbeatStore, process_name
from gateway.process import take_short_turns
from gateway.settings import Settings
from gateway.signals.delivering import Webhooks
from gateway.stores.broker import FAREWELL, HEADER, broker_settings
from gateway.stores.document_format import enter, refuse_newer_stores
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import Document, connect, within
from gateway.stores.unanswered import lately_unanswered, note_unanswered
from gateway.worker.ended_attempts import EndedAttempts
from gateway.worker.own_work import OwnWork

log = structlog.get_logger()


class SignOfLife(bootsteps.StartStopStep):
    """Writes the worker's heartbeats from its start to its end, in a thread of its own, so that the worker does not
    look dead during a slow task.
    """

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._parts: Container = parent.app.parts
        refuse_newer_stores(self._parts.mongo_uri, WORKER)
        self._name = process_name(WORKER)
        self._ended = threading.Event()

    def start(self, _parent: Any) -> None:
        self._parts.start_traces(WORKER)
        take_short_turns()
        threading.Thread(target=self._beat, name="sign-of-life", daemon=True).start()

    def stop(self, _parent: Any) -> None:
        self._ended.set()
        if Webhooks in self._parts:
            # ends calls that are under way
            self._parts[Webhooks].close()
        self._parts.end_traces()

    terminate = stop

    def _beat(self) -> None:
        while not self._ended.is_set():
            try:
                with within(VERDICT_SECONDS):
                    slow = self._parts[Dispatch].tasks.slow_nodes() if Dispatch in self._parts else ()
                    self._parts[HeartbeatStore].beat(self._name, lately_unanswered(), slow)
                self._parts[Webhooks].look()
            except Exception as error:  # noqa: BLE001 - after any failure the next sign of life may get through
                log.warning("sign_of_life_failed", error=str(error), kind=type(error).__name__)
            self._ended.wait(SIGN_SECONDS)


# --- the base of all tasks: their log lines carry the correlation id of the message

#: Tasks whose first argument is the job's id.
_ABOUT_A_JOB = frozenset(
    {
        messages.ENQUEUE_CRAWL,
        messages.FINISH_CRAWL,
        messages.CANCEL_CRAWL,
        messages.CALL_WEBHOOKS,
    }
)


class TracedTask(Task):
    """The base of our tasks. Their log lines carry the id of the message's job, unless they are about another job."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        job_id = kwargs.get("job_id", args[0] if args else None) if self.name in _ABOUT_A_JOB else None
        with about_message(job_id, self.request.get(HEADER)):
            log.debug("task_began", task=self.name)
            return super().__call__(*args, **kwargs)


# --- the tasks. Each calls one service. They only do sooner what the worker's own work, or the sweep, would do
# anyway.
def register_tasks(app: Celery, parts: Container) -> None:
    """Bind the tasks to `app`. Their names must not change, because processes of other releases send them."""

    @app.task(name=messages.ENQUEUE_CRAWL)
    def enqueue_crawl(job_id: str | None = None, others: Sequence[str] = (), **_target: Any) -> None:
        # `_target` is not needed, because the job's document has all that a target's run needs
        parts[Dispatch].loop.wake(job_id, *others)

    @app.task(name=messages.FINISH_CRAWL)
    def finish_crawl(job_id: str, others: Sequence[str] = ()) -> None:
        parts[EndedAttempts].loop.wake(job_id, *others)

    @app.task(name=messages.CALL_WEBHOOKS)
    def call_webhooks(job_id: str) -> None:  # noqa: ARG001 - the id is for the log; all due calls are made
        parts[Webhooks].look()

    @app.task(name=messages.CANCEL_CRAWL)
    def cancel_crawl(job_id: str) -> None:
        # this does not wait for the node's answer
        parts[Dispatch].cancel(parts[JobStore].get(job_id))

    def look(*_: Any) -> None:
        parts[Dispatch].loop.wake()

    for name in messages.OF_OLDER_BEATS:
        app.task(name=name)(look)


# --- Celery's consumer without the parts that we do not use. Messages that it would drop become dead letters.

#: Gossip and mingle need a queue at the broker for each worker, and our workers do not talk with each other. Nobody
#: reads the heartbeat events, and each would wait for RabbitMQ's confirmation: on a dead connection, for ever.
_UNUSED = {"without_gossip": True, "without_mingle": True, "without_heartbeat": True}
#: Seconds after which an idle worker notices that it is to stop, or that the broker's heartbeats are missing.
_LOOK_UP = 1.0


class Consumer(consumer.Consumer):
    """Celery's consumer without unused parts, which loses neither connections nor messages silently."""

    class Blueprint(consumer.Consumer.Blueprint):
        #: Without the 28 queues for tasks with a countdown: we use none, because jobs have `not_before`.
        default_steps: ClassVar = [
            step for step in consumer.Consumer.Blueprint.default_steps if not step.endswith(":DelayedDelivery")
        ]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options | _UNUSED)
        #: The last channel on which an acknowledgement failed.
        self._lost: Any = None

    def register_with_event_loop(self, hub: Any) -> None:
        super().register_with_event_loop(hub)
        hub.timer.call_repeatedly(_LOOK_UP, lambda: None)

    def call_soon_ack(self, p: Callable[..., None], *args: Any, **options: Any) -> Any:
        """Treat a failed acknowledgement as a lost connection.

        Celery only logs the failure. If the broker is Redis, the message then counts as unfinished for ever. When the
        worker has as many such messages as it may have at once, it asks for no more, and so it never notices that the
        connection is lost.
        """
        return super().call_soon_ack(self._tell, p, *args, **options)

    def _tell(self, tell: Callable[..., None], logger: Any, errors: Any, *args: Any, **options: Any) -> None:
        channel = tell.__self__.channel  # type: ignore[attr-defined]  # a method of the message
        if channel is self._lost:
            # each further acknowledgement would wait for a timeout again. The broker redelivers the message
            return
        try:
            tell(logger, (), *args, **options)
        except errors as error:
            log.warning("acknowledgement_failed", error=str(error), kind=type(error).__name__)
            # a failure on an earlier connection, or at the worker's end, says nothing about this connection
            if self.task_consumer and channel is self.task_consumer.channel and self.blueprint.state == RUN:
                self._lost = channel
                raise

    def on_decode_error(self, message: Message, exc: Exception) -> None:
        """Reject a message that cannot be read, so that it becomes a dead letter. Celery itself would acknowledge it:
        then it would be lost.
        """
        log.error("message_undecodable", content_type=message.content_type, error=str(exc))
        message.reject()

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Wait before the queue is declared again. Celery itself would try a hundred times a second, but the other
        workers need time to learn that the queue is gone, and an operator needs time to delete a queue that has other
        properties than ours.
        """
        super().on_connection_error_after_connected(exc)
        note_unanswered("the broker")
        if isinstance(exc, ConsumerCancelled):
            log.warning("queue_gone", error=str(exc))
        if isinstance(exc, ConsumerCancelled | PreconditionFailed):
            time.sleep(FAREWELL)


# --- the application: how messages are transported
class WorkerParts(Container):
    """The parts of a worker or a beat."""

    @part
    def database(self) -> Database[Document]:
        database = connect(self.mongo_uri)
        try:
            enter(database)
            ensure_indexes(database)
        except BaseException:
            # the next caller connects again
            database.client.close()
            raise
        return self.connected(database)


def create_celery(settings: Settings) -> Celery:
    """The app for workers and beats. Nothing is connected before the first task or tick."""
    app = Celery("discoverybot", broker=settings.broker_location, task_cls=TracedTask)
    app.conf.update(
        **broker_settings(settings.broker_location, settings.queue_name),
        # messages are only hints: results are in MongoDB, and a repeated task finds nothing left to do
        task_ignore_result=True,
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        worker_pool="threads",
        worker_concurrency=settings.worker_concurrency,
        worker_enable_remote_control=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        worker_consumer=Consumer,
        beat_scheduler="gateway.worker.beat:MongoScheduler",
        # the longest sleep of a beat; our scheduler itself says how long to sleep
        beat_max_loop_interval=settings.tick_seconds,
    )
    parts = WorkerParts(settings)
    parts.celery = app
    app.parts = parts
    register_tasks(app, parts)
    app.steps["worker"] |= {SignOfLife, OwnWork}
    # keeps Celery from replacing our log handlers with its own
    setup_logging.connect(lambda **_: logging.configure(settings.log_level), weak=False)
    return app
