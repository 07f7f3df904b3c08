"""How messages travel, whichever broker the URL names. All who send or receive take it from here, because RabbitMQ
refuses whoever declares a queue differently from the one who was first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import structlog
from attrs import define, field
from celery import Celery
from kombu import Connection, Exchange, Queue
from kombu.exceptions import KombuError
from structlog.contextvars import get_contextvars

from gateway.stores.unanswered import note_unanswered

#: Of a broker's message; `correlation_id` there is Celery's own, the message's.
HEADER = "x-correlation-id"


def current_correlation() -> str | None:
    """Of what this thread or task is at."""
    correlation_id: str | None = get_contextvars().get("correlation_id")
    return correlation_id


#: Times that a message is handed out again after its worker was lost, before it is put aside.
DELIVERY_LIMIT = 3
#: Messages in the queue beyond which a publish is refused: the sweep finds what they would have named.
MAX_WAITING = 100_000
#: Messages put aside that are kept for whoever wants to know why; the oldest make room, all go after a week.
MAX_DEAD = 10_000
DEAD_TTL_SECONDS = 7 * 24 * 3600.0

#: Seconds that the broker may take to say that it has a message.
CONFIRM_TIMEOUT = 5.0
#: Seconds between noticing that the queue is gone and declaring it. Were it there again at once, RabbitMQ would not
#: tell those who listened to the one before, and hand them messages that they never see.
FAREWELL = 0.5

_AMQP = frozenset({"amqp", "amqps", "pyamqp", "librabbitmq"})
_REDIS = frozenset({"redis", "rediss", "valkey", "valkeys", "redis+socket", "unix"})


class HintQueue(Queue):
    """A queue whose declaration brings the one for what it cannot deliver: a broker that has the first and not the
    second would have nowhere to put a message aside.
    """

    attrs = (*Queue.attrs, ("dead_letters", None))
    dead_letters: Queue

    def declare(self, nowait: bool = False, channel: Any = None) -> str:  # noqa: FBT001, FBT002 - as kombu calls it
        self.dead_letters.declare(nowait=nowait, channel=channel or self.channel)
        return str(super().declare(nowait=nowait, channel=channel))


def dead_letter_name(queue_name: str) -> str:
    return f"{queue_name}.dead"


def broker_settings(url: str, queue_name: str) -> dict[str, Any]:
    """Celery's settings for `url`; its scheme alone decides."""
    scheme = url.partition(":")[0]
    common = {
        "task_default_queue": queue_name,
        "broker_connection_timeout": 3,
        # a channel that the broker closes, say because a queue is not what we declare, is opened again, not the end
        "broker_channel_error_retry": True,
        # every send: returned where no queue takes it, and known to be with the broker before it counts as sent
        "task_routes": {"*": {"mandatory": True, "confirm_timeout": CONFIRM_TIMEOUT}},
    }
    if scheme in _AMQP:
        options = {"confirm_publish": True, "write_timeout": CONFIRM_TIMEOUT}
        # of workers, in seconds; a connection on which two are missed is made anew
        own = {"broker_heartbeat": 6, "task_queues": [_quorum_queue(queue_name)]}
        return common | own | {"broker_transport_options": options}
    if scheme in _REDIS:
        # visibility: seconds until a message whose worker was killed is handed out again; the check: a connection on
        # which nothing comes, because a firewall forgot it, is made anew within twice as many seconds
        limits = {"socket_timeout": 3, "socket_connect_timeout": 3, "health_check_interval": 2}
        options = {"visibility_timeout": 60, **limits}
        return common | {"broker_transport_options": options}
    return common


def _quorum_queue(name: str) -> HintQueue:
    """Kept by a majority of the broker's nodes. At-least-once dead-lettering needs `reject-publish`."""
    dead = dead_letter_name(name)
    return HintQueue(
        name,
        Exchange(name, type="direct"),
        routing_key=name,
        queue_arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-max-length": MAX_WAITING,
            "x-overflow": "reject-publish",
            "x-dead-letter-exchange": dead,
            "x-dead-letter-routing-key": dead,
            "x-dead-letter-strategy": "at-least-once",
        },
        dead_letters=Queue(
            dead,
            Exchange(dead, type="direct"),
            routing_key=dead,
            queue_arguments={
                "x-queue-type": "quorum",
                "x-max-length": MAX_DEAD,
                "x-overflow": "drop-head",
                "x-message-ttl": int(DEAD_TTL_SECONDS * 1000),
            },
        ),
    )


# --- one thread's own connection to the broker

log = structlog.get_logger()

#: AMQP's reply code for a message that no queue takes.
_NO_ROUTE = 312


@define(eq=False, repr=False, slots=False)
class BrokerConnection:
    """Sends a task and knows that the broker has it. After any failure the connection is given up: a confirmation
    that comes late would be taken for that of the next message.
    """

    _app: Celery
    #: Common to all lines of a process: RabbitMQ loses messages of those who declare at once.
    _declaring: threading.Lock
    _connection: Connection | None = field(init=False, default=None)

    def send(self, task: str, args: tuple[Any, ...], fields: dict[str, Any]) -> None:
        """Raises one of `errors` when the broker does not take it."""
        is_new = self._connection is None
        try:
            # the queue is taken to be there: checking would declare one that was just deleted
            self._send(task, args, fields)
        except self.errors as error:
            if _is_unroutable(error):
                self._send_to_new_queue(task, args, fields)
            elif is_new:
                raise
            else:
                self._send(task, args, fields)

    def _send_to_new_queue(self, task: str, args: tuple[Any, ...], fields: dict[str, Any]) -> None:
        with self._declaring:
            try:
                # another thread may have declared it meanwhile
                self._send(task, args, fields)
            except self.errors as error:
                if not _is_unroutable(error):
                    raise
                queue = self._app.amqp.default_queue
                log.warning("message_unroutable", task=task, queue=queue.name, error=str(error))
                time.sleep(FAREWELL)
                self._send(task, args, fields, declare=(queue,))

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What a broker that is away, full, or of another mind makes a sender meet."""
        transport = self._app.connection_for_write().transport
        return (KombuError, OSError, *transport.connection_errors, *transport.channel_errors)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # without a farewell, which a broker that hangs would not answer
            with suppress(*self.errors):
                connection.collect(socket_timeout=1)

    def _send(
        self, task: str, args: tuple[Any, ...], fields: dict[str, Any], *, declare: Sequence[Queue] = ()
    ) -> None:
        correlation_id = current_correlation()
        try:
            self._app.send_task(
                task, args=args, kwargs=fields, connection=self._connected(), declare=list(declare),
                retry=False, ignore_result=True, headers={HEADER: correlation_id} if correlation_id else None,
            )  # fmt: skip
        except self.errors as error:
            if not _is_unroutable(error):
                note_unanswered("the broker")
            self.close()
            raise

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._app.connection_for_write()
        if not self._connection.connected:
            # each of the broker's addresses at once, or not at all: a channel would wait for a broker without end
            others = len(self._connection.alt) - 1
            self._connection.ensure_connection(max_retries=others, interval_start=0, interval_step=0)
            # no answer is waited for without end, that to a declaration neither
            sock = getattr(self._connection.connection, "sock", None)
            if sock is not None:
                sock.settimeout(CONFIRM_TIMEOUT)
        return self._connection


def _is_unroutable(error: Exception) -> bool:
    return getattr(error, "reply_code", None) == _NO_ROUTE
