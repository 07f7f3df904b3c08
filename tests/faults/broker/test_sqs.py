"""SQS as the broker, which loses messages, its queue and itself. The site's access log is the verifier."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sqs
from crawl_verifier import CrawlVerifier
from forms import in_full
from stack import Stack, running_stack, wait_until
from stores import StoreProcess

from gateway.jobs.messages import create_producer
from gateway.stores.broker import BrokerConnection

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

QUEUE = "scraping"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with sqs.sqs_server(tmp_path_factory.mktemp("sqs")) as server:
        yield server


@pytest.fixture(scope="module")
def stack(server: StoreProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    variables = {
        "BROKER_URL": str(server),
        "DISCOVERYBOT_RESTART_BACKOFF_MAX": "0.2",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with running_stack(tmp_path_factory.mktemp("stack") / "home", **variables) as stack:
        yield stack


def check(stack: Stack) -> dict[str, Any]:
    found: dict[str, Any] = stack.http.get(f"{stack.url}/health").json()["checks"]["broker"]
    return found


@in_full("the same crawls over RabbitMQ, and refusals below")
def test_a_crawl_goes_through_and_its_messages_through_the_queue(
    verifier: CrawlVerifier, stack: Stack, server: StoreProcess
) -> None:
    assert check(stack)["status"] == "ok"
    verifier.begin(3)
    verifier.check_each_once()
    found = sqs.client(server)
    (queue,) = found.list_queues()["QueueUrls"]
    assert queue.rpartition("/")[2] == QUEUE
    attributes = found.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    assert attributes["VisibilityTimeout"] == "60"


@in_full("the same crawls over RabbitMQ, and refusals below")
def test_messages_that_are_dropped_cost_no_crawl(verifier: CrawlVerifier, server: StoreProcess) -> None:
    """SQS holds each back until it is purged; the sweeper finds what they named."""
    found = sqs.client(server)
    queue = found.get_queue_url(QueueName=QUEUE)["QueueUrl"]

    def held() -> int:
        attributes = found.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        return int(attributes["ApproximateNumberOfMessagesDelayed"])

    found.set_queue_attributes(QueueUrl=queue, Attributes={"DelaySeconds": "900"})
    verifier.begin(6)
    wait_until(held, what="a message that is held back")
    found.set_queue_attributes(QueueUrl=queue, Attributes={"DelaySeconds": "0"})
    found.purge_queue(QueueUrl=queue)
    assert not held()
    verifier.check_each_once()


@in_full("the same crawls over RabbitMQ, and refusals below")
def test_it_may_go_away_and_forget_its_queue(verifier: CrawlVerifier, stack: Stack, server: StoreProcess) -> None:
    worker = stack.ready["pids"]["worker"]
    with server.away():
        verifier.begin(3)
        wait_until(lambda: check(stack)["status"] == "down", what="a word of it")
        assert stack.ready["pids"]["worker"] == worker
    # a queue that is gone ends a worker, which is started again
    verifier.check_each_once()
    wait_until(lambda: check(stack)["status"] == "ok", what="a word of its return")
    wait_until(lambda: sqs.client(server).list_queues().get("QueueUrls"), what="the queue, declared anew")


def test_a_refusal_is_an_error_that_senders_expect(server: StoreProcess) -> None:
    url, found = str(server), sqs.client(server)
    with create_producer(url, "own") as producer:
        line = BrokerConnection(producer, threading.Lock())
        line.send("a_task", (), {})
        found.delete_queue(QueueUrl=found.get_queue_url(QueueName="own")["QueueUrl"])
        # its queue is declared anew on the second try
        line.send("a_task", (), {})
        queue = found.get_queue_url(QueueName="own")["QueueUrl"]
        assert len(found.receive_message(QueueUrl=queue)["Messages"]) == 1
        with server.away(), pytest.raises(line.errors):
            line.send("a_task", (), {})
        line.close()
