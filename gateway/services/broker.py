"""How messages travel, whichever broker the URL names. All who send or receive take it from here, because RabbitMQ
refuses whoever declares a queue differently from the one who was first.
"""

from __future__ import annotations

from typing import Any

from kombu import Exchange, Queue

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
