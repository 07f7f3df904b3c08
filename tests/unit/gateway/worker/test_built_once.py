from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

from celery import Celery

from gateway.settings import Settings
from gateway.worker.built_once import built_once
from gateway.worker.wiring import Wiring

THREADS = 16


def of_all_threads(ask: Callable[[], object]) -> list[object]:
    """What each of many threads is given that ask at the same moment."""
    barrier = threading.Barrier(THREADS)

    def one() -> object:
        barrier.wait()
        return ask()

    with ThreadPoolExecutor(THREADS) as executor:
        return [asked.result() for asked in [executor.submit(one) for _ in range(THREADS)]]


class Parts:
    def __init__(self) -> None:
        self.built: list[str] = []

    @built_once
    def pool(self) -> object:
        # gives every other thread its turn in the middle
        time.sleep(0.01)
        self.built.append("pool")
        return object()

    @built_once
    def service(self) -> tuple[str, object]:
        self.built.append("service")
        return ("service", self.pool)


def test_threads_that_ask_at_once_are_given_the_same_part() -> None:
    parts = Parts()
    given = of_all_threads(lambda: parts.service)
    assert all(one is given[0] for one in given)
    assert parts.built == ["service", "pool"]
    assert Parts().pool is not parts.pool


def test_a_worker_has_one_pool_of_redis_connections() -> None:
    wiring = Wiring(Settings(), Celery())
    assert len({id(one) for one in of_all_threads(lambda: wiring._redis)}) == 1
    assert not [name for name, part in vars(Wiring).items() if isinstance(part, cached_property)]
