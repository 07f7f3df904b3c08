"""Celery's consumer: without what we do not use, and putting aside what it would drop."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import structlog
from amqp.exceptions import ConsumerCancelled
from celery.worker import consumer
from kombu.message import Message

from gateway.services.broker import FAREWELL

log = structlog.get_logger()

#: Workers do not talk with each other: neither needs a queue at the broker for each worker. (Without heartbeats, too,
#: an idle worker would see late that it is to stop.)
_UNUSED = {"without_gossip": True, "without_mingle": True}


class Consumer(consumer.Consumer):
    class Blueprint(consumer.Consumer.Blueprint):
        #: Without the 28 queues for tasks with a countdown: `not_before` stands in the job's document.
        default_steps: ClassVar = [
            step for step in consumer.Consumer.Blueprint.default_steps if not step.endswith(":DelayedDelivery")
        ]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options | _UNUSED)

    def on_decode_error(self, message: Message, exc: Exception) -> None:
        """Celery acknowledges what cannot be read, which is then nowhere; rejected, it is among the dead letters."""
        log.error("message_undecodable", content_type=message.content_type, error=str(exc))
        message.reject()

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Leaves the other workers the time to hear that the queue is gone before it is declared anew."""
        super().on_connection_error_after_connected(exc)
        if isinstance(exc, ConsumerCancelled):
            log.warning("queue_gone", error=str(exc))
            time.sleep(FAREWELL)
