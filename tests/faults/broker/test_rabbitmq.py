"""RabbitMQ as the broker, itself and all around it going down. The site's access log is the verifier."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import warm
from busy_worker import BusyWorker
from celery import Celery
from crawl_verifier import CrawlVerifier
from fault_table import record
from forms import full_or_short, in_full
from rabbitmq import RabbitMQ
from stack import ROOT, Stack, wait_until
from structlog.testing import capture_logs
from warm import WarmProcess
from worker_kills import kill_workers

from gateway.jobs.messages import CeleryWaker, create_producer
from gateway.stores.broker import DELIVERY_LIMIT, BrokerConnection, dead_letter_name

pytestmark = [pytest.mark.stack]

QUEUE = "scraping"
BROKER_KILLS = full_or_short(10, 1)
WORKER_KILLS = full_or_short(20, 2)
DELETIONS = full_or_short(10, 1)
#: Crawls while it takes no message, and seconds within which each begins.
BLOCKED, BEGUN_WITHIN = full_or_short(12, 2), full_or_short(2.0, 20.0)
#: Seconds. RabbitMQ 3.10 that is killed, or is to delete a queue, in the queue's first moments has it and has it not
#: afterwards: it answers INTERNAL_ERROR to whoever asks for it, until it is started anew.
SETTLED = 1.5


@pytest.fixture
def producer(rabbit: RabbitMQ, request: pytest.FixtureRequest) -> Iterator[Celery]:
    """A producer like the gateway's, for a queue that only this test uses."""
    queue = request.node.name
    with create_producer(rabbit.url, queue) as producer:
        yield producer
    for name in (queue, dead_letter_name(queue)):
        with suppress(Exception):
            rabbit.delete(name)


@pytest.fixture
def line(producer: Celery) -> Iterator[BrokerConnection]:
    line = BrokerConnection(producer, threading.Lock())
    yield line
    line.close()


def test_a_crawl_goes_through(verifier: CrawlVerifier) -> None:
    verifier.begin(3)
    verifier.check_each_once()


def test_queues_are_what_we_say_and_gateway_worker_and_beat_agree(
    verifier: CrawlVerifier, stack: Stack, rabbit: RabbitMQ
) -> None:
    verifier.begin(1)
    verifier.check_each_once()
    queues = rabbit.described_queues()
    # none for workers to talk with each other, and none for delays
    assert set(queues) == {QUEUE, dead_letter_name(QUEUE)}
    for argument in (
        *('"x-queue-type","quorum"', f'"x-delivery-limit",{DELIVERY_LIMIT}', '"x-overflow","reject-publish"'),
        *('"x-dead-letter-exchange","scraping.dead"', '"x-dead-letter-strategy","at-least-once"'),
    ):
        assert argument in queues[QUEUE]
    assert '"x-queue-type","quorum"' in queues[dead_letter_name(QUEUE)]
    assert "PRECONDITION" not in stack.output.read_text()


def test_a_message_that_no_queue_takes_is_noticed_told_and_sent_again(
    line: BrokerConnection, producer: Celery, rabbit: RabbitMQ
) -> None:
    queue = producer.conf.task_default_queue
    line.send("note", ("first",), {})
    rabbit.delete(queue)
    with capture_logs() as logs:
        line.send("note", ("second",), {})
        line.send("note", ("third",), {})
    told = [entry for entry in logs if entry["event"] == "message_unroutable"]
    assert [(entry["queue"], entry["task"]) for entry in told] == [(queue, "note")]
    sent = [json.loads(message.body)[0] for message in rabbit.take(queue)]
    assert sent == [["second"], ["third"]]


def test_a_broker_that_hangs_holds_up_a_sender_for_seconds_only(line: BrokerConnection, rabbit: RabbitMQ) -> None:
    line.send("note", ("before",), {})
    with rabbit.frozen():
        began = time.monotonic()
        with pytest.raises(line.errors):
            line.send("note", ("meanwhile",), {})
        assert time.monotonic() - began < 40
    line.send("note", ("after",), {})


@in_full("messages that are not confirmed above")
def test_a_thousand_messages_are_all_confirmed(producer: Celery, rabbit: RabbitMQ) -> None:
    waker = CeleryWaker(producer)
    for number in range(1_000):
        waker.wake("note", number)
    wait_until(lambda: waker.unsent == 0, what="the last confirmation")
    waker.close()
    assert rabbit.depth(producer.conf.task_default_queue) == 1_000


def test_a_message_that_kills_its_worker_is_put_aside_and_its_neighbours_are_done(
    stack: Stack, producer: Celery, line: BrokerConnection, rabbit: RabbitMQ, tmp_path: Path
) -> None:
    queue, notes = producer.conf.task_default_queue, tmp_path / "notes"
    for task, args in (("note", ("one",)), ("poison", ()), ("note", ("two",)), ("note", ("three",))):
        line.send(task, args, {})
    own = {"QUEUE_NAME": queue, "NOTES": str(notes), "WORKER_CONCURRENCY": "1"}
    deaths = 0
    while deaths <= DELIVERY_LIMIT:
        with _worker(stack.environment() | own, tmp_path) as worker:
            worker.wait(60)
        deaths += 1
    wait_until(lambda: rabbit.depth(dead_letter_name(queue)), what="the dead letter")
    with _worker(stack.environment() | own, tmp_path):
        wait_until(lambda: len(notes.read_text().split()) == deaths + 3, what="the neighbours")
    assert sorted(notes.read_text().split()) == ["one", *["poison"] * deaths, "three", "two"]
    (dead,) = rabbit.take(dead_letter_name(queue))
    assert dead.headers["task"] == "poison"
    assert dead.headers["x-death"][0]["reason"] == "delivery_limit"


@in_full("the queues' declarations above")
def test_a_queue_that_is_something_else_is_named_and_a_worker_waits_until_it_is_gone(
    stack: Stack, producer: Celery, line: BrokerConnection, rabbit: RabbitMQ, tmp_path: Path
) -> None:
    queue, log, notes = producer.conf.task_default_queue, tmp_path / "worker.log", tmp_path / "notes"
    with rabbit.channel() as channel:
        channel.queue_declare(queue, durable=True, auto_delete=False)
    with _worker(stack.environment() | {"QUEUE_NAME": queue, "NOTES": str(notes)}, tmp_path):
        wait_until(lambda: "PRECONDITION_FAILED" in log.read_text(), what="a word about it")
        rabbit.delete(queue)
        wait_until(lambda: _is_taken(line), what="a queue that takes messages")
        wait_until(lambda: notes.exists() and notes.read_text().startswith("done\n"), what="the task")


def _is_taken(line: BrokerConnection) -> bool:
    """RabbitMQ refuses what comes while the one queue goes and the other is made, as whoever sends is told."""
    try:
        line.send("note", ("done",), {})
    except line.errors:
        return False
    return True


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        pytest.param(b"\x80 no JSON", {"task": "enqueue_crawl", "id": "1"}, id="unreadable"),
        pytest.param(b"[[], {}, {}]", {"task": "no_such_task", "id": "2"}, id="unknown task"),
        pytest.param(b"{}", {}, id="no task"),
    ],
)
def test_a_message_that_nobody_understands_is_put_aside_and_crawls_go_on(
    verifier: CrawlVerifier, rabbit: RabbitMQ, body: bytes, headers: dict[str, str]
) -> None:
    rabbit.take(dead_letter_name(QUEUE))
    content = {"content_type": "application/json", "content_encoding": "utf-8"}
    rabbit.publish(QUEUE, body, application_headers=headers, **content)
    wait_until(lambda: rabbit.depth(dead_letter_name(QUEUE)) == 1, what="the dead letter")
    (dead,) = rabbit.take(dead_letter_name(QUEUE))
    assert bytes(dead.body if isinstance(dead.body, bytes) else dead.body.encode()) == body
    verifier.begin(1)
    verifier.check_each_once()


@in_full("a message that no queue takes above")
def test_a_queue_that_is_deleted_while_crawls_come_in_is_there_again_and_nothing_is_lost(
    verifier: CrawlVerifier, stack: Stack, rabbit: RabbitMQ
) -> None:
    slowest = 0.0
    for _ in range(DELETIONS):
        verifier.begin(3)
        _delete_unnoticed(verifier, stack, rabbit)
        time.sleep(SETTLED)
        with ThreadPoolExecutor(1) as users:
            asking = users.submit(verifier.begin, 8, at_once=4)
            rabbit.delete(QUEUE)
            deleted = time.monotonic()
            asking.result()
        slowest = max(slowest, verifier.wait_for_visit(verifier.begin(2), after=deleted))
    verifier.wait()
    injected = f"deleted × {2 * DELETIONS}, {len(verifier.crawls)} crawls"
    record("Queue deleted while crawls come in", injected, recovered=slowest, **verifier.verdict())


def _delete_unnoticed(verifier: CrawlVerifier, stack: Stack, rabbit: RabbitMQ) -> None:
    """So that it is not the worker who makes the queue anew before anybody sends something."""
    told = stack.output.read_text().count("message_unroutable")
    wait_until(lambda: rabbit.has(QUEUE), what="the last queue")
    time.sleep(SETTLED)
    stack.kill("worker", signal.SIGSTOP)
    try:
        rabbit.delete(QUEUE)
        verifier.begin(3)
        wait_until(lambda: rabbit.has(QUEUE), what="a new queue")
        wait_until(lambda: stack.output.read_text().count("message_unroutable") > told, what="a word about it")
    finally:
        stack.kill("worker", signal.SIGCONT)


@in_full("the same with Redis as broker in test_worker_kills.py")
def test_workers_that_are_killed_lose_nothing_and_double_nothing(verifier: CrawlVerifier, stack: Stack) -> None:
    slowest = kill_workers(stack, verifier, WORKER_KILLS)
    verifier.wait()
    injected = f"SIGKILL × {WORKER_KILLS}, {len(verifier.crawls)} crawls"
    record("Worker killed under load, RabbitMQ as broker", injected, recovered=slowest, **verifier.verdict())


@in_full("the same with Redis as broker in test_broker_away.py")
def test_a_broker_that_is_killed_in_the_midst_of_it_loses_nothing_and_doubles_nothing(
    verifier: CrawlVerifier, rabbit: RabbitMQ
) -> None:
    time.sleep(SETTLED)
    slowest = 0.0
    for _ in range(BROKER_KILLS):
        verifier.begin(6, at_once=3)
        rabbit.kill()
        asked = time.monotonic()
        meanwhile = verifier.begin(4)
        rabbit.start()
        slowest = max(slowest, verifier.wait_for_visit(meanwhile, after=asked))
    verifier.wait()
    injected = f"kill -9 × {BROKER_KILLS}, {len(verifier.crawls)} crawls"
    record("RabbitMQ killed in the midst of it", injected, recovered=slowest, **verifier.verdict())


@in_full("the same with Redis as broker in test_broker_away.py")
@pytest.mark.parametrize("fault", ["blocked", "frozen"])
def test_crawls_begin_while_the_broker_takes_no_message(
    verifier: CrawlVerifier, stack: Stack, rabbit: RabbitMQ, fault: str
) -> None:
    """A memory alarm blocks whoever publishes, and closes no connection."""
    verifier.begin(1)
    verifier.wait()
    with getattr(rabbit, fault)():
        waited = [verifier.begun() for _ in range(BLOCKED)]
        verifier.wait()
        wait_until(lambda: stack.check("broker")["status"] == "down", timeout=60, what="a word of it")
    record(f"RabbitMQ {fault}", f"{BLOCKED} crawls, one after the other", recovered=max(waited), **verifier.verdict())
    assert max(waited) < BEGUN_WITHIN, waited


@in_full("the same with Redis as broker in test_busy_workers.py")
def test_a_worker_without_a_free_thread_comes_through_a_broker_that_hangs_and_one_that_is_killed(
    verifier: CrawlVerifier, stack: Stack, rabbit: RabbitMQ, producer: Celery, tmp_path: Path
) -> None:
    """And those that start while it is away wait for it."""
    with BusyWorker(rabbit.url, producer.conf.task_default_queue, tmp_path).running() as worker:
        worker.check_works()
        worker.finish_during(rabbit.frozen(), unnoticed=True)
        worker.check_works()
        time.sleep(SETTLED)
        worker.finish_during(_away_for_those_who_start(verifier, stack, rabbit))
        worker.check_works()
    verifier.check_each_once()


@contextmanager
def _away_for_those_who_start(verifier: CrawlVerifier, stack: Stack, rabbit: RabbitMQ) -> Iterator[None]:
    with rabbit.away():
        before = stack.ready["pids"]
        for name in ("worker", "beat"):
            stack.kill(name)
        for name in ("worker", "beat"):
            stack.wait_for_another(name, before[name])
        verifier.begin(3)
        yield


@contextmanager
def _worker(environment: dict[str, str], home: Path) -> Iterator[WarmProcess]:
    command = ("--quiet", "-A", "poisoned_worker", "worker")
    log, folder = home / "worker.log", ROOT / "tests/support"
    worker = warm.start("celery.__main__", *command, env=environment, cwd=folder, stdout=log)
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait(60)
