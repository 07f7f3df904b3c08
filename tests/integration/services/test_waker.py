from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from jobs import make_job
from stack import wait_until
from stores import free_port

from gateway.jobs.job import TargetRun
from gateway.jobs.messages import ENQUEUE_CRAWL, FINISH_CRAWL, CeleryWaker, WithinWorker, create_producer

ABOUT = TargetRun(
    target_id=7,
    website_id=3,
    website_name="board",
    search_url="http://board.example/?q=cook&l=Oslo&p={page}",
    requires_playwright=False,
    pagination_type="page_param",
    keywords_used="cook",
    location_used="Oslo",
)


@pytest.fixture
def broker(redis_url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(redis_url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def waker(redis_url: str, broker: redis.Redis) -> Iterator[CeleryWaker]:
    producer = create_producer(redis_url, "scraping")
    waker = CeleryWaker(producer)
    yield waker
    waker.close()
    producer.close()


def messages(broker: redis.Redis, count: int) -> list[tuple[list[Any], dict[str, Any]]]:
    """What a worker would get: the arguments of each task, the latest first."""
    wait_until(lambda: broker.llen("scraping") >= count, what=f"{count} messages")
    bodies = (json.loads(entry)["body"] for entry in broker.lrange("scraping", 0, -1))
    return [tuple(json.loads(b64decode(body))[:2]) for body in bodies]


def test_a_targets_run_is_announced_with_what_is_searched_and_how_often_it_was_tried(
    waker: CeleryWaker, broker: redis.Redis
) -> None:
    job = make_job(target=ABOUT)
    waker.wake_job(job)
    waker.wake_job(job.model_copy(update={"attempt": 2}))
    told = sorted((fields for _, fields in messages(broker, 2)), key=lambda fields: int(fields["attempt_count"]))
    expected = {"job_id": job.id, **ABOUT.model_dump()}
    assert told == [{**expected, "attempt_count": 0}, {**expected, "attempt_count": 2}]


def test_any_other_job_is_announced_by_its_id_alone(waker: CeleryWaker, broker: redis.Redis) -> None:
    job = make_job()
    waker.wake_job(job)
    assert messages(broker, 1) == [([], {"job_id": job.id})]


def test_a_thousand_jobs_that_are_due_at_once_are_all_with_the_broker_and_nobody_waited_for_it(
    waker: CeleryWaker, broker: redis.Redis
) -> None:
    jobs = [make_job() for _ in range(1_000)]
    began = time.monotonic()
    for job in jobs:
        waker.wake_job(job)
    # one that waited for each answer would take far longer, on a busy machine, too
    assert time.monotonic() - began < 2
    wait_until(lambda: waker.unsent == 0, timeout=20, what="the end of it")
    announced = [name for args, fields in messages(broker, 1) for name in named(args, fields)]
    assert sorted(announced) == sorted(job.id for job in jobs)
    assert time.monotonic() - began < 15


def test_looks_that_are_asked_for_at_once_share_a_message_which_workers_before_it_can_read(
    waker: CeleryWaker, broker: redis.Redis
) -> None:
    ids = [make_job().id for _ in range(5)]
    assert shared(waker, broker, *((job_id,) for job_id in ids)) == [
        ([ids[0]], {}),
        ([ids[1]], {"others": ids[2:]}),
    ]


def test_a_look_at_no_job_keeps_none_of_the_others_back_and_no_message_asks_for_more_than_the_most(
    waker: CeleryWaker, broker: redis.Redis
) -> None:
    waker.MOST_TOGETHER = 3
    ids = [make_job().id for _ in range(4)]
    asked = [(ids[0],), (), (ids[1],), (ids[2],), (ids[3],), ()]
    assert shared(waker, broker, *asked) == [([ids[0]], {}), ([ids[1]], {"others": [ids[2]]}), ([ids[3]], {})]


def test_attempts_that_end_at_once_share_a_message(waker: CeleryWaker, broker: redis.Redis) -> None:
    ids = [make_job().id for _ in range(4)]
    assert shared(waker, broker, *((job_id,) for job_id in ids), task=FINISH_CRAWL) == [
        ([ids[0]], {}),
        ([ids[1]], {"others": ids[2:]}),
    ]


def test_what_a_worker_can_do_itself_needs_no_message(waker: CeleryWaker, broker: redis.Redis) -> None:
    looks: list[tuple[str, ...]] = []
    within = WithinWorker(waker, {ENQUEUE_CRAWL: lambda *job_ids: looks.append(job_ids)})
    job, of_target = make_job(), make_job(target=ABOUT)
    within.wake_job(job)
    within.wake(ENQUEUE_CRAWL)
    assert looks == [(job.id,), ()]
    within.wake(FINISH_CRAWL, job.id)
    within.wake_job(of_target)
    assert {tuple(named(*message)) for message in messages(broker, 2)} == {(job.id,), (of_target.id,)}


def shared(
    waker: CeleryWaker, broker: redis.Redis, *looks: tuple[str, ...], task: str = ENQUEUE_CRAWL
) -> list[tuple[list[Any], dict[str, Any]]]:
    """All messages, in order, if the other looks are requested during the pause after the first one."""
    waker.PAUSE = 3600
    waker.wake(task, *looks[0])
    wait_until(lambda: waker.unsent == 0, timeout=20, what="the first message")
    for look in looks[1:]:
        waker.wake(task, *look)
    # the end of the process ends the pause, and loses no message
    waker.close()
    return messages(broker, 1)[::-1]


def named(args: list[Any], fields: dict[str, Any]) -> list[str]:
    """The jobs that a message names."""
    return [*args, *filter(None, [fields.get("job_id")]), *fields.get("others", ())]


def test_a_broker_that_is_away_keeps_nobody_and_what_waited_for_it_in_vain_is_let_go() -> None:
    producer = create_producer(f"redis://127.0.0.1:{free_port()}/0", "scraping")
    waker = CeleryWaker(producer)
    waker.PATIENCE = 0.0
    began = time.monotonic()
    for _ in range(500):
        waker.wake_job(make_job())
    # not 500 tries: each takes two seconds
    assert time.monotonic() - began < 30
    wait_until(lambda: waker.unsent == 0, what="the end of it")
    waker.close()
    producer.close()
