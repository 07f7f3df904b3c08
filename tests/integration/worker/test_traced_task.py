"""The id of a request crosses the broker, and binds what a worker logs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.exceptions import DuplicateTaskNameWarning
from jobs import make_job
from stack import wait_until
from structlog.contextvars import bound_contextvars, clear_contextvars, get_contextvars

from gateway.jobs import messages
from gateway.jobs.messages import CeleryWaker
from gateway.worker.app import TracedTask

Bound = dict[str, Any]


@pytest.fixture(scope="module")
def all_seen() -> list[Bound]:
    return []


@pytest.fixture
def seen(all_seen: list[Bound]) -> list[Bound]:
    """What was bound while each task ran."""
    all_seen.clear()
    return all_seen


@pytest.fixture(scope="module")
def sender(all_seen: list[Bound]) -> Iterator[CeleryWaker]:
    """To a worker of this process: its tasks only note what is bound."""
    app = Celery("traced", broker="memory://", task_cls=TracedTask, set_as_current=False)
    app.conf.update(task_ignore_result=True, worker_enable_remote_control=False)

    def note(*_: Any, **__: Any) -> None:
        all_seen.append(get_contextvars())

    with warnings.catch_warnings():
        # Celery hands each app the tasks that other tests of this process have registered with theirs
        warnings.simplefilter("ignore", DuplicateTaskNameWarning)
        app.finalize()
    for name in (messages.FINISH_CRAWL, messages.ENQUEUE_CRAWL, messages.OF_OLDER_BEATS[0]):
        app.tasks.pop(name, None)
        app.task(name=name, shared=False)(note)
    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=20):
        sender = CeleryWaker(app)
        yield sender
        sender.close()
    clear_contextvars()


def after(seen: list[Bound], count: int) -> list[Bound]:
    wait_until(lambda: len(seen) >= count, timeout=20, what=f"{count} tasks")
    return seen


def test_a_message_carries_the_id_of_the_job_that_it_is_about(sender: CeleryWaker, seen: list[Bound]) -> None:
    job = make_job(correlation_id="asked-for-it")
    sender.wake_job(job)
    (bound,) = after(seen, 1)
    assert bound == {"job_id": job.id, "task_id": job.id, "correlation_id": "asked-for-it"}


def test_a_message_carries_the_id_of_whatever_its_sender_was_at(sender: CeleryWaker, seen: list[Bound]) -> None:
    job_id = "0" * 32
    with bound_contextvars(correlation_id="the-request"):
        sender.wake(messages.FINISH_CRAWL, job_id)
    (bound,) = after(seen, 1)
    assert bound == {"job_id": job_id, "task_id": job_id, "correlation_id": "the-request"}


def test_what_is_about_no_job_names_none_and_nothing_is_left_for_the_next_task(
    sender: CeleryWaker, seen: list[Bound]
) -> None:
    with bound_contextvars(correlation_id="the-request"):
        sender.wake(messages.FINISH_CRAWL, "0" * 32)
    after(seen, 1)
    sender.wake(messages.OF_OLDER_BEATS[0], "n1")
    assert after(seen, 2)[1] == {}
