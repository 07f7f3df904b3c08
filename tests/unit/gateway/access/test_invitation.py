from __future__ import annotations

import pytest

from gateway.access.invitation import is_for_nodes
from gateway.container import Container
from gateway.settings import Settings


@pytest.mark.parametrize(
    "url",
    [
        # the platform's own password
        "mongodb://user:x@10.0.0.2:27017/db?authSource=admin",
        "redis://:x@redis.example.net:6379/0",
        # another machine has another store there
        "mongodb://mongodb:27017/db",
        "redis://localhost:6379/0",
        "amqp://[::1]:5672//",
        "amqp://rabbitmq//",
    ],
)
def test_what_is_the_platforms_own_or_means_another_elsewhere_is_not_handed_on(url: str) -> None:
    assert not is_for_nodes(url)


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
def test_another_url_is_handed_on(url: str) -> None:
    assert is_for_nodes(url)


def test_no_key_of_a_store_is_handed_on() -> None:
    settings = Settings.model_validate(
        {
            "mongo_uri": "mongodb://platform:m-secret@10.0.0.2/db",
            "redis_url": "redis://:r-secret@10.0.0.2/0",
            "rabbitmq_url": "amqp://platform:a-secret@10.0.0.2//",
            "scrapyd_password": "of-all-nodes",
            "files_url": "s3://crawls/files",
            "files_access_key": "f-access",
            "files_secret_key": "f-secret",
        }
    )
    told = Container(settings).node_variables
    assert told.needed == {"MONGO_URI", "REDIS_URL", "BROKER_URL", "FILES_ACCESS_KEY", "FILES_SECRET_KEY"}
    assert told.shared == {
        "QUEUE_NAME": "scraping",
        "SCRAPYD_USERNAME": "discoverybot",
        "SCRAPYD_PASSWORD": "of-all-nodes",
        "FILES_URL": "s3://crawls/files",
    }
