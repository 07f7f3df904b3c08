"""kombu's transport for SQS, changed so that refusals of SQS count as a lost connection, and do not end the
worker.
"""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError
from kombu.transport import SQS

from gateway.private_names import require_names

require_names("kombu", SQS.Channel, "_on_messages_ready")


class Channel(SQS.Channel):
    """kombu's channel, which ignores an empty list of messages."""

    def _on_messages_ready(self, queue: str, qname: str, messages: Any) -> int:
        """Ignore the empty list that kombu passes if SQS cannot be reached: kombu's own code fails on this list, and
        the worker would end.
        """
        return super()._on_messages_ready(queue, qname, messages) if messages else 0


class Transport(SQS.Transport):
    """kombu's transport, for which refusals of SQS are lost connections."""

    Channel = Channel
    #: `ClientError` includes refusals (no such queue, no permission), so that the next connection declares the queue.
    connection_errors = (*SQS.Transport.connection_errors, ClientError)
