from __future__ import annotations

from collections.abc import Iterator

import pytest
from crawl_verifier import CrawlVerifier
from rabbitmq import RabbitMQ, need_rabbitmq
from sites.server import Site
from stack import Stack, running_stack


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    need_rabbitmq()
    with RabbitMQ(tmp_path_factory.mktemp("rabbitmq") / "home") as rabbit:
        yield rabbit


@pytest.fixture(scope="module")
def stack(rabbit: RabbitMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The whole platform, with RabbitMQ as its broker because the URL says so."""
    variables = {"BROKER_URL": rabbit.url, "DISCOVERYBOT_RESTART_BACKOFF_MAX": "0.2", "CRAWL_STOP_GRACE": "3"}
    with running_stack(tmp_path_factory.mktemp("stack") / "home", **variables) as stack:
        yield stack


@pytest.fixture
def verifier(stack: Stack, site: Site) -> Iterator[CrawlVerifier]:
    with CrawlVerifier(stack, site) as verifier:
        yield verifier
