"""kombu's transport for SQS, with its worst failures taken for what they are: a connection that is lost."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError
from kombu.transport import SQS


class Channel(SQS.Channel):
    def _on_messages_ready(self, queue: str, qname: str, messages: Any) -> int:
        """Where SQS cannot be reached, kombu hands on an empty list and trips over it, which would end the worker."""
        return super()._on_messages_ready(queue, qname, messages) if messages else 0


class Transport(SQS.Transport):
    Channel = Channel
    #: A refusal (no such queue, no right) is among them: the queue is declared anew on the next connection.
    connection_errors = (*SQS.Transport.connection_errors, ClientError)
