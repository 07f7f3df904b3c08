"""How messages are transported, for each kind of broker. All senders and receivers take the queue's declaration from
here, because RabbitMQ refuses one that differs from the first.
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
from kombu.transport import TRANSPORT_ALIASES
from structlog.contextvars import get_contextvars

from gateway.stores.unanswered import note_unanswered

#: The message header with our correlation id. Celery uses the message's own `correlation_id` for another purpose.
HEADER = "x-correlation-id"


def current_correlation() -> str | None:
    """The correlation id of the request or message that this thread or task works on; `None` if there is none."""
    correlation_id: str | None = get_contextvars().get("correlation_id")
    return correlation_id


#: How often a message is delivered again after its worker was lost; then it goes to the dead-letter queue.
DELIVERY_LIMIT = 3
#: With this many messages in the queue, a publish is refused; the sweep finds the jobs that such messages name.
MAX_WAITING = 100_000
#: How many messages the dead-letter queue keeps, for an operator who looks for the cause. New messages replace the
#: oldest, and all are deleted after a week.
MAX_DEAD = 10_000
DEAD_TTL_SECONDS = 7 * 24 * 3600.0

#: Seconds that the broker may take to confirm a message.
CONFIRM_TIMEOUT = 5.0
#: Seconds to wait after the queue was deleted, before it is declared again. If it were declared at once, RabbitMQ
#: would not notify the consumers of the old queue, and would deliver messages to them that they never see.
FAREWELL = 0.5

_AMQP = frozenset({"amqp", "amqps", "pyamqp", "librabbitmq"})
#: The scheme of Amazon's SQS, or of a server that speaks its protocol.
SQS = "sqs"
# kombu imports this only if a URL names it: it needs libraries that are not installed everywhere
TRANSPORT_ALIASES[SQS] = "gateway.stores.sqs:Transport"
_REDIS = frozenset({"redis", "rediss", "valkey", "valkeys", "redis+socket", "unix"})


class HintQueue(Queue):
    """A queue that declares its dead-letter queue first: otherwise the broker would have no place for messages that
    it cannot deliver.
    """

    attrs = (*Queue.attrs, ("dead_letters", None))
    dead_letters: Queue

    def declare(self, nowait: bool = False, channel: Any = None) -> str:  # noqa: FBT001, FBT002 - as kombu calls it
        self.dead_letters.declare(nowait=nowait, channel=channel or self.channel)
        return str(super().declare(nowait=nowait, channel=channel))


def dead_letter_name(queue_name: str) -> str:
    """The name of the queue's dead-letter queue."""
    return f"{queue_name}.dead"


def broker_settings(url: str, queue_name: str) -> dict[str, Any]:
    """Celery's settings for the broker at `url`. They depend only on the URL's scheme."""
    scheme = url.partition(":")[0]
    common = {
        "task_default_queue": queue_name,
        "broker_connection_timeout": 3,
        # open a channel again that the broker has closed, for example because its queue differs from our declaration
        "broker_channel_error_retry": True,
        # a message is returned if there is no queue for it, and counts as sent only once the broker has confirmed it
        "task_routes": {"*": {"mandatory": True, "confirm_timeout": CONFIRM_TIMEOUT}},
    }
    if scheme in _AMQP:
        options = {"confirm_publish": True, "write_timeout": CONFIRM_TIMEOUT}
        # `broker_heartbeat` is for workers, in seconds; after two missed heartbeats a connection is opened again
        own = {"broker_heartbeat": 6, "task_queues": [_quorum_queue(queue_name)]}
        return common | own | {"broker_transport_options": options}
    if scheme in _REDIS:
        # `visibility_timeout`: seconds until a message whose worker was killed is delivered again.
        # `health_check_interval`: a dead connection, for example one that a firewall dropped, is opened again within
        # twice this time
        limits = {"socket_timeout": 3, "socket_connect_timeout": 3, "health_check_interval": 2}
        options = {"visibility_timeout": 60, **limits}
        return common | {"broker_transport_options": options}
    if scheme == SQS:
        return common | {"broker_transport_options": sqs_options(CONFIRM_TIMEOUT)}
    return common


#: SQS does not push messages: a worker's request waits at SQS for a message, for this many seconds. SQS allows 20.
SQS_WAIT = 10


def sqs_options(timeout: float) -> dict[str, Any]:
    """Options for kombu's transport. `timeout`: seconds for one call. Requests for messages have their own
    timeout.
    """
    calls = {"connect_timeout": timeout, "read_timeout": timeout, "retries": {"total_max_attempts": 1}}
    # in seconds: until a message whose worker was killed is delivered again; how long a request for messages waits;
    # and between two requests
    waits = {"visibility_timeout": 60, "wait_time_seconds": SQS_WAIT, "polling_interval": 0.5}
    return {**waits, "client-config": calls}


def _quorum_queue(name: str) -> HintQueue:
    """A quorum queue, which a majority of the broker's nodes stores. At-least-once dead-lettering requires
    `reject-publish`.
    """
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


# --- a connection to the broker, for one thread

log = structlog.get_logger()

#: AMQP's reply code for a message that no queue takes.
_NO_ROUTE = 312


@define(eq=False, repr=False, slots=False)
class BrokerConnection:
    """Sends tasks, and waits until the broker confirms each of them. After any failure the connection is closed,
    because a late confirmation would be taken for the next message's.
    """

    _app: Celery
    #: Shared by all connections of a process: if several declare the queue at the same time, RabbitMQ loses messages.
    _declaring: threading.Lock
    _connection: Connection | None = field(init=False, default=None)

    def send(self, task: str, args: tuple[Any, ...], fields: dict[str, Any]) -> None:
        """Send the task. Raises one of `errors` if the broker does not take it."""
        is_new = self._connection is None
        try:
            # assume that the queue exists: a check would declare it, too soon if it was just deleted (`FAREWELL`)
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
                # another thread may have declared it by now
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
        """The errors that a sender gets if the broker cannot be reached, is full, or refuses the message."""
        transport = self._app.connection_for_write().transport
        return (KombuError, OSError, *transport.connection_errors, *transport.channel_errors)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # without a closing handshake, which a broker that hangs would not answer
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
            # try each of the broker's addresses once, without a pause: by default, kombu would try for ever
            others = len(self._connection.alt) - 1
            self._connection.ensure_connection(max_retries=others, interval_start=0, interval_step=0)
            # every wait for an answer must end, including the answer to a declaration
            sock = getattr(self._connection.connection, "sock", None)
            if sock is not None:
                sock.settimeout(CONFIRM_TIMEOUT)
        return self._connection


def _is_unroutable(error: Exception) -> bool:
    return getattr(error, "reply_code", None) == _NO_ROUTE
