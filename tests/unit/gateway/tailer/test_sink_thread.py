from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.contract.outbox import AttemptId
from gateway.tailer.outbox import AttemptFolder
from gateway.tailer.tailer_loop import SinkThread


class Away(Exception):  # noqa: N818 - a state, not a mistake
    pass


class StoreDouble:
    """A store that fails as it is told."""

    name = "a store"

    def __init__(self) -> None:
        self.failing: Callable[[AttemptFolder], Exception | None] = lambda _: None
        self.shipped: list[AttemptId] = []
        self.arrived = threading.Condition()

    def ship(self, attempt: AttemptFolder) -> bool:
        if error := self.failing(attempt):
            raise error
        with self.arrived:
            self.shipped.append(attempt.id)
            self.arrived.notify_all()
        return False

    def is_away(self, error: Exception) -> bool:
        return isinstance(error, Away)

    def wait_for(self, attempt: AttemptFolder) -> bool:
        with self.arrived:
            return self.arrived.wait_for(lambda: attempt.id in self.shipped, timeout=60)


@pytest.fixture
def store() -> StoreDouble:
    return StoreDouble()


@pytest.fixture
def thread(store: StoreDouble) -> Iterator[SinkThread]:
    thread = SinkThread(store)
    thread.start()
    yield thread
    thread.stop()
    thread.join(60)
    assert not thread.is_alive()


@pytest.fixture
def attempts(tmp_path: Path) -> list[AttemptFolder]:
    return [AttemptFolder(tmp_path, AttemptId(digit * 32, 1)) for digit in "ab"]


def test_what_changed_while_the_store_was_away_is_shipped_when_it_is_back(
    store: StoreDouble, thread: SinkThread, attempts: list[AttemptFolder]
) -> None:
    failures = iter([Away(), Away()])
    store.failing = lambda _: next(failures, None)
    for attempt in attempts:
        thread.look_at(attempt)
    assert all(store.wait_for(attempt) for attempt in attempts)


def test_an_attempt_that_cannot_be_shipped_is_in_no_other_ones_way(
    store: StoreDouble, thread: SinkThread, attempts: list[AttemptFolder]
) -> None:
    broken, fine = attempts
    store.failing = lambda attempt: ValueError("broken") if attempt is broken else None
    thread.look_at(broken)
    thread.look_at(fine)
    assert store.wait_for(fine)
    assert broken.id not in store.shipped


def test_a_broken_attempt_is_left_alone_for_a_while_and_tried_again(
    store: StoreDouble, thread: SinkThread, attempts: list[AttemptFolder]
) -> None:
    broken = attempts[0]
    tries: list[AttemptId] = []

    def fail_once(attempt: AttemptFolder) -> Exception | None:
        if not store.shipped:
            tries.append(attempt.id)
        return ValueError("broken") if len(tries) == 1 else None

    store.failing = fail_once
    while not store.shipped:
        thread.look_at(broken)
    assert len(tries) == 2
