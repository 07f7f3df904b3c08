"""One thread's own connection to the broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import structlog
from celery import Celery
from kombu import Connection, Queue
from kombu.exceptions import KombuError

from gateway.correlation import HEADER, current_correlation
from gateway.domain.unanswered import note_unanswered
from gateway.services.broker import CONFIRM_TIMEOUT, FAREWELL

log = structlog.get_logger()

#: AMQP's reply code for a message that no queue takes.
_NO_ROUTE = 312


class BrokerLine:
    """Sends a task and knows that the broker has it. After any failure the connection is given up: a confirmation
    that comes late would be taken for that of the next message.
    """

    def __init__(self, app: Celery, declaring: threading.Lock) -> None:
        """`declaring` is common to all lines of a process: RabbitMQ loses messages of those who declare at once."""
        self._app = app
        self._declaring = declaring
        self._connection: Connection | None = None

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
