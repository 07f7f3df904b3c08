from __future__ import annotations

import pytest

from gateway.access.invitation import NodeVariables
from gateway.errors import ConflictError


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://user:x@mongodb:27017/db?authSource=admin",
        "redis://localhost:6379/0",
        "amqp://[::1]:5672//",
        "amqp://rabbitmq//",
    ],
)
def test_an_address_that_is_of_this_machine_alone_is_refused_with_the_setting_that_says_another(url: str) -> None:
    with pytest.raises(ConflictError, match="JOIN_X: nodes elsewhere cannot reach"):
        NodeVariables({}, {"JOIN_X": url}, "s3://bucket").require_reachable()


@pytest.mark.parametrize(
    "url",
    [
        "mongodb://10.0.0.2:27017/db",
        "mongodb://a.example.org,b.example.org/db",
        "mongodb+srv://cluster.example.net/db",
        "redis://[2001:db8::2]:6379/0",
        # of a service that a library knows
        "sqs://",
    ],
)
def test_another_address_is_handed_on(url: str) -> None:
    NodeVariables({}, {"JOIN_X": url}, "s3://bucket").require_reachable()
