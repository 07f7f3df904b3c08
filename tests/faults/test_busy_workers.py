"""A worker with no thread free asks its broker for nothing: that it was away is seen when a task is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from busy_worker import BusyWorker
from relay import Relay
from stores import StoreProcess, valkey_server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="module")
def worker(broker: StoreProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BusyWorker]:
    with BusyWorker(broker, "busy", tmp_path_factory.mktemp("worker")).running() as worker:
        yield worker


def test_a_broker_that_was_killed_while_all_threads_were_busy_is_listened_to_again(
    worker: BusyWorker, broker: StoreProcess
) -> None:
    worker.finish_during(broker.away())
    worker.check_works()


def test_a_broker_that_hung_while_all_threads_were_busy_is_listened_to_again(
    worker: BusyWorker, broker: StoreProcess
) -> None:
    worker.finish_during(broker.frozen())
    worker.check_works()


def test_connections_that_went_dead_while_a_worker_was_busy_or_idle_are_made_anew(
    broker: StoreProcess, tmp_path: Path
) -> None:
    with (
        Relay(urlsplit(broker).port or 0).running() as relay,
        BusyWorker(broker, "far", tmp_path, door=f"redis://127.0.0.1:{relay.port}/0").running() as worker,
    ):
        worker.finish_during(relay.forgetting())
        worker.check_works()
        relay.forget()
        worker.check_works()
