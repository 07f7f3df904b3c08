"""Celery's consumer without the parts that we do not use. What it would drop becomes a dead letter."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

import structlog
from amqp.exceptions import ConsumerCancelled, PreconditionFailed
from celery.bootsteps import RUN
from celery.worker import consumer
from kombu.message import Message

from gateway.stores.broker import FAREWELL
from gateway.stores.unanswered import note_unanswered

log = structlog.get_logger()

#: Gossip and mingle need a queue at the broker for each worker, and our workers do not talk with each other. Nothing
#: reads the heartbeat events, and each would wait for RabbitMQ's confirmation: on a dead connection for ever.
_UNUSED = {"without_gossip": True, "without_mingle": True, "without_heartbeat": True}
#: Seconds after which an idle worker sees that it is to stop, or that the broker's heartbeats are missing.
_LOOK_UP = 1.0


class Consumer(consumer.Consumer):
    class Blueprint(consumer.Consumer.Blueprint):
        #: Without the 28 queues for tasks with a countdown: `not_before` stands in the job's document.
        default_steps: ClassVar = [
            step for step in consumer.Consumer.Blueprint.default_steps if not step.endswith(":DelayedDelivery")
        ]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options | _UNUSED)
        #: The channel on which an acknowledgement failed last.
        self._lost: Any = None

    def register_with_event_loop(self, hub: Any) -> None:
        super().register_with_event_loop(hub)
        hub.timer.call_repeatedly(_LOOK_UP, lambda: None)

    def call_soon_ack(self, p: Callable[..., None], *args: Any, **options: Any) -> Any:
        """Treat an acknowledgement that fails as the sign that the connection is lost.

        Celery logs the failure and goes on. With Redis the message then counts for ever as one that this worker has
        yet to do. A worker that has as many of those as it may have at a time asks for no more, and if it asks for
        nothing it never notices that the connection is lost.
        """
        return super().call_soon_ack(self._tell, p, *args, **options)

    def _tell(self, tell: Callable[..., None], logger: Any, errors: Any, *args: Any, **options: Any) -> None:
        channel = tell.__self__.channel  # type: ignore[attr-defined]  # a method of the message
        if channel is self._lost:
            # each further one would wait for the time-out anew; the broker delivers the message again
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
        """Reject what cannot be read: it becomes a dead letter. Celery would acknowledge it, and it would be lost."""
        log.error("message_undecodable", content_type=message.content_type, error=str(exc))
        message.reject()

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Wait before the queue is declared anew. The other workers need time to hear that it is gone. An operator
        who deletes a queue that is not ours needs time to do so: Celery would try a hundred times a second.
        """
        super().on_connection_error_after_connected(exc)
        note_unanswered("the broker")
        if isinstance(exc, ConsumerCancelled):
            log.warning("queue_gone", error=str(exc))
        if isinstance(exc, ConsumerCancelled | PreconditionFailed):
            time.sleep(FAREWELL)
