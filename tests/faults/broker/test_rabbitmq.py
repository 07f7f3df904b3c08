"""RabbitMQ as the broker, itself and all around it going down. The site's access log is the witness."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from celery import Celery
from rabbitmq import RabbitMQ
from sites.server import Site, html
from stack import ROOT, Stack, wait_until
from structlog.testing import capture_logs

from gateway.services.broker import DELIVERY_LIMIT, dead_letter_name
from gateway.services.broker_line import BrokerLine
from gateway.services.waker import CeleryWaker, create_producer

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("rabbitmq"), pytest.mark.timeout(240)]

QUEUE = "scraping"
#: Kills of the broker; `make faults` asks for the full ten.
KILLS = 10 if "FAULT_SECONDS" in os.environ else 1
#: Seconds. RabbitMQ 3.10 killed in the first moments of a queue takes nothing for it afterwards.
SETTLED = 1.5


@pytest.fixture
def producer(rabbit: RabbitMQ, request: pytest.FixtureRequest) -> Iterator[Celery]:
    """As the gateway's, for a queue of the test's own."""
    queue = request.node.name
    with create_producer(rabbit.url, queue) as producer:
        yield producer
    for name in (queue, dead_letter_name(queue)):
        with suppress(Exception):
            rabbit.delete(name)


@pytest.fixture
def line(producer: Celery) -> Iterator[BrokerLine]:
    line = BrokerLine(producer, threading.Lock())
    yield line
    line.close()


class Crawls:
    """Crawls of three pages each, told apart by their path."""

    def __init__(self, stack: Stack, site: Site) -> None:
        self._stack, self._site = stack, site
        self.jobs: list[str] = []

    def begin(self, count: int) -> None:
        for _ in range(count):
            path = f"/{len(self.jobs)}/"
            self._site.pages[path] = html('<a href="a">.</a><a href="b">.</a>')
            for name in "ab":
                self._site.pages[path + name] = html("")
            self.jobs.append(self._stack.crawl(self._site.url + path))

    def end(self) -> None:
        """Each one finishes, complete, and its pages were asked for once."""
        for number, job in enumerate(self.jobs):
            assert self._stack.wait_final(job)["status"] == "finished"
            assert len(self._stack.items(job)) == 3
            paths = sorted(path for path in self._site.paths() if path.startswith(f"/{number}/"))
            assert paths == [f"/{number}/", f"/{number}/a", f"/{number}/b"]


@pytest.fixture
def crawls(stack: Stack, site: Site) -> Crawls:
    return Crawls(stack, site)


def test_a_crawl_goes_through(crawls: Crawls) -> None:
    crawls.begin(3)
    crawls.end()


def test_queues_are_what_we_say_and_gateway_worker_and_beat_agree(
    crawls: Crawls, stack: Stack, rabbit: RabbitMQ
) -> None:
    crawls.begin(1)
    crawls.end()
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
    line: BrokerLine, producer: Celery, rabbit: RabbitMQ
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


def test_a_broker_that_hangs_holds_up_a_sender_for_seconds_only(line: BrokerLine, rabbit: RabbitMQ) -> None:
    line.send("note", ("before",), {})
    with rabbit.frozen():
        began = time.monotonic()
        with pytest.raises(line.errors):
            line.send("note", ("meanwhile",), {})
        assert time.monotonic() - began < 12
    line.send("note", ("after",), {})


def test_a_thousand_messages_are_all_confirmed(producer: Celery, rabbit: RabbitMQ) -> None:
    waker = CeleryWaker(producer)
    for number in range(1_000):
        waker.wake("note", number)
    wait_until(lambda: waker.unsent == 0, what="the last confirmation")
    waker.close()
    assert rabbit.depth(producer.conf.task_default_queue) == 1_000


def test_a_message_that_kills_its_worker_is_put_aside_and_its_neighbours_are_done(
    stack: Stack, producer: Celery, line: BrokerLine, rabbit: RabbitMQ, tmp_path: Path
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


def test_a_queue_that_is_something_else_is_named_and_a_worker_waits_until_it_is_gone(
    stack: Stack, producer: Celery, line: BrokerLine, rabbit: RabbitMQ, tmp_path: Path
) -> None:
    queue, log, notes = producer.conf.task_default_queue, tmp_path / "worker.log", tmp_path / "notes"
    with rabbit.channel() as channel:
        channel.queue_declare(queue, durable=True, auto_delete=False)
    with _worker(stack.environment() | {"QUEUE_NAME": queue, "NOTES": str(notes)}, tmp_path):
        wait_until(lambda: "PRECONDITION_FAILED" in log.read_text(), what="a word about it")
        rabbit.delete(queue)
        line.send("note", ("done",), {})
        wait_until(lambda: notes.exists() and notes.read_text() == "done\n", what="the task")


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        pytest.param(b"\x80 no JSON", {"task": "enqueue_crawl", "id": "1"}, id="unreadable"),
        pytest.param(b"[[], {}, {}]", {"task": "no_such_task", "id": "2"}, id="unknown task"),
        pytest.param(b"{}", {}, id="no task"),
    ],
)
def test_a_message_that_nobody_understands_is_put_aside_and_crawls_go_on(
    crawls: Crawls, rabbit: RabbitMQ, body: bytes, headers: dict[str, str]
) -> None:
    rabbit.take(dead_letter_name(QUEUE))
    content = {"content_type": "application/json", "content_encoding": "utf-8"}
    rabbit.publish(QUEUE, body, application_headers=headers, **content)
    wait_until(lambda: rabbit.depth(dead_letter_name(QUEUE)) == 1, what="the dead letter")
    (dead,) = rabbit.take(dead_letter_name(QUEUE))
    assert bytes(dead.body if isinstance(dead.body, bytes) else dead.body.encode()) == body
    crawls.begin(1)
    crawls.end()


def test_a_queue_that_is_deleted_while_crawls_come_in_is_there_again_and_nothing_is_lost(
    crawls: Crawls, stack: Stack, rabbit: RabbitMQ
) -> None:
    crawls.begin(3)
    told = stack.output.read_text().count("message_unroutable")
    # so that it is not the worker who makes it anew before anybody sends something
    stack.kill("worker", signal.SIGSTOP)
    try:
        rabbit.delete(QUEUE)
        crawls.begin(3)
        wait_until(lambda: rabbit.has(QUEUE), what="a new queue")
        wait_until(lambda: stack.output.read_text().count("message_unroutable") > told, what="a word about it")
    finally:
        stack.kill("worker", signal.SIGCONT)
    rabbit.delete(QUEUE)
    crawls.begin(3)
    crawls.end()


def test_workers_that_are_killed_lose_nothing_and_double_nothing(crawls: Crawls, stack: Stack) -> None:
    for _ in range(2):
        crawls.begin(3)
        killed = stack.ready["pids"]["worker"]
        stack.kill("worker")
        _wait_replaced(stack, "worker", killed)
    crawls.end()


def test_a_broker_that_is_killed_in_the_midst_of_it_loses_nothing_and_doubles_nothing(
    crawls: Crawls, rabbit: RabbitMQ
) -> None:
    time.sleep(SETTLED)
    for _ in range(KILLS):
        crawls.begin(3)
        rabbit.kill()
        crawls.begin(2)
        rabbit.start()
    crawls.end()


def test_who_starts_while_the_broker_is_away_waits_for_it(crawls: Crawls, stack: Stack, rabbit: RabbitMQ) -> None:
    time.sleep(SETTLED)
    rabbit.stop()
    before = stack.ready["pids"]
    for name in ("worker", "beat"):
        stack.kill(name)
    for name in ("worker", "beat"):
        _wait_replaced(stack, name, before[name])
    crawls.begin(3)
    rabbit.start()
    crawls.end()


@contextmanager
def _worker(environment: dict[str, str], home: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "celery", "--quiet", "-A", "poisoned_worker", "worker"]
    with (home / "worker.log").open("ab") as log:
        worker = subprocess.Popen(
            command, cwd=ROOT / "tests", env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield worker
    finally:
        worker.kill()
        worker.wait(10)


def _wait_replaced(stack: Stack, name: str, pid: int) -> None:
    wait_until(lambda: stack.ready["pids"][name] != pid, what=f"another {name}")
