"""kombu's transport for SQS, changed so that its worst failures count as a lost connection."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError
from kombu.transport import SQS

from gateway.private_names import require_names

require_names("kombu", SQS.Channel, "_on_messages_ready")


class Channel(SQS.Channel):
    def _on_messages_ready(self, queue: str, qname: str, messages: Any) -> int:
        """Ignore the empty list that kombu passes on if SQS cannot be reached: its own code fails on this list, which
        would end the worker.
        """
        return super()._on_messages_ready(queue, qname, messages) if messages else 0


class Transport(SQS.Transport):
    Channel = Channel
    #: These include refusals (no such queue, no permission), so that the next connection declares the queue again.
    connection_errors = (*SQS.Transport.connection_errors, ClientError)
