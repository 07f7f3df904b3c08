from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, closing
from datetime import UTC, datetime, timedelta
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
from pymongo.errors import AutoReconnect
from unit.house.sources import ROOT, python_files

from gateway.container import Builder, Container, part, value
from gateway.dispatch.dispatcher import Dispatch
from gateway.dispatch.fair_queue import FairQueue
from gateway.dispatch.sweeping import Sweeper
from gateway.jobs.admission import Admission, Quotas
from gateway.jobs.completion import Completion
from gateway.jobs.store import JobStore
from gateway.nodes.store import NodeStore
from gateway.schedules.edits import ScheduleEdits
from gateway.settings import Settings
from gateway.stores.mongo import ServerClock, connect
from gateway.tailer.__main__ import TailerParts
from gateway.web.container import GatewayParts
from gateway.worker.app import WorkerParts

THREADS = 16
#: Nobody answers there. Nothing that is built here asks.
NOWHERE = "mongodb://127.0.0.1:1/test"
ASKED_FOR = re.compile(r"\bparts\[(\w+)\]")


class Parts(Builder):
    def __init__(self) -> None:
        super().__init__()
        self.built: list[str] = []
        self.closed: list[str] = []

    @value
    def pool(self) -> object:
        # gives every other thread its turn in the middle
        time.sleep(0.01)
        self.built.append("pool")
        return object()

    @value
    def service(self) -> tuple[str, object]:
        self.built.append("service")
        return ("service", self.pool)


class Speaks(Protocol):
    def speak(self) -> str: ...


class NeedsNoise:
    def __init__(self, noise: bytes) -> None:
        self.noise = noise


class Closing:
    def __init__(self, name: str, closed: list[str]) -> None:
        self._name, self._closed = name, closed

    def close(self) -> None:
        self._closed.append(self._name)


@pytest.fixture
def parts() -> Iterator[Container]:
    with closing(Container(Settings(mongo_uri=NOWHERE, crawl_user_running_max=3, node_dead_after=77))) as made:
        yield made


def of_all_threads(ask: Callable[[], object]) -> list[object]:
    """What each of many threads is given that ask at the same moment."""
    barrier = threading.Barrier(THREADS)

    def one() -> object:
        barrier.wait()
        return ask()

    with ThreadPoolExecutor(THREADS) as executor:
        return [asked.result() for asked in [executor.submit(one) for _ in range(THREADS)]]


def test_threads_that_ask_at_once_are_given_the_same_part() -> None:
    parts = Parts()
    given = of_all_threads(lambda: parts.service)
    assert all(one is given[0] for one in given)
    assert parts.built == ["service", "pool"]
    assert Parts().pool is not parts.pool


def test_threads_that_ask_for_a_class_at_once_are_given_the_same_part(parts: Container) -> None:
    assert len({id(one) for one in of_all_threads(lambda: parts[Dispatch])}) == 1
    assert len({id(one) for one in of_all_threads(lambda: parts.redis)}) == 1


@pytest.mark.parametrize("process", [Container, GatewayParts, WorkerParts, TailerParts])
def test_no_attribute_can_be_built_twice(process: type[Container]) -> None:
    attributes = [one for base in process.__mro__ for one in vars(base).values()]
    assert not [one for one in attributes if isinstance(one, cached_property)]


def test_all_that_need_a_part_are_given_the_same_one(parts: Container) -> None:
    assert parts[Dispatch]._jobs is parts[Sweeper]._jobs is parts[Completion]._jobs is parts[JobStore]
    assert parts[Dispatch]._completion is parts[Sweeper]._completion is parts[Completion]
    assert parts[Dispatch]._clock is parts[JobStore]._clock is parts[NodeStore]._clock is parts[ServerClock]


def test_what_depends_on_a_setting_gets_it(parts: Container) -> None:
    assert parts[FairQueue].most == parts[Dispatch]._fair.most == 3
    assert parts[Dispatch]._dead_after == timedelta(seconds=77)
    assert parts[Quotas].schedules == Settings().crawl_user_schedules_max


def test_what_is_optional_is_given_if_it_can_be_had(parts: Container) -> None:
    assert parts[ScheduleEdits]._admission is parts[Admission]


def test_a_part_that_was_set_by_its_class_is_taken(parts: Container) -> None:
    jobs, quotas = object(), Quotas(schedules=5)
    parts[JobStore], parts[Quotas] = jobs, quotas
    assert parts[Completion]._jobs is jobs
    assert parts[Admission]._quotas is parts.quotas is quotas


def test_an_attribute_that_was_set_is_taken(parts: Container) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    parts.clock = lambda: noon
    parts.fair_queue = parts.build(FairQueue, most=1)
    assert parts[JobStore]._clock() == noon
    assert parts[FairQueue].most == parts[Dispatch]._fair.most == 1


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(TypeError, match="NeedsNoise: nothing is known for noise"):
        Parts()[NeedsNoise]


def test_a_protocol_stands_for_the_part_that_is_annotated_with_it() -> None:
    class Speaker(Parts):
        @part
        def voice(self) -> Speaks:
            return self[Cat]

    class Cat:
        def speak(self) -> str:
            return "meow"

    class Circus:
        def __init__(self, star: Speaks) -> None:
            self.star = star

    Circus.__init__.__annotations__["star"] = Speaks
    assert Speaker()[Circus].star.speak() == "meow"


def test_what_was_opened_last_is_closed_first() -> None:
    parts = Parts()
    for name in ("database", "waker", "threads"):
        parts.opened(Closing(name, parts.closed))
    parts.close()
    assert parts.closed == ["threads", "waker", "database"]


def test_what_was_never_asked_for_is_never_built(parts: Container) -> None:
    assert parts[NodeStore]
    assert JobStore not in parts
    assert not {"redis", "celery", "waker"} & vars(parts).keys()


def test_a_worker_that_tries_again_leaves_no_connection_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Closing] = []
    closed: list[str] = []

    def connect_nowhere(_: str) -> Any:
        opened.append(Closing(f"connection {len(opened) + 1}", closed))
        return SimpleNamespace(client=opened[-1])

    def fail(_: object) -> None:
        raise AutoReconnect

    monkeypatch.setattr("gateway.worker.app.connect", connect_nowhere)
    monkeypatch.setattr("gateway.worker.app.enter", fail)
    parts = WorkerParts(Settings())
    for _ in range(2):
        with pytest.raises(AutoReconnect):
            _ = parts.database
    assert closed == ["connection 1", "connection 2"]


async def test_every_part_that_a_process_asks_for_can_be_built(tmp_path: Path) -> None:
    settings = Settings(mongo_uri=NOWHERE, discoverybot_home=tmp_path)
    async with AsyncExitStack() as end:
        processes: dict[str, Container] = {
            "web": GatewayParts(settings, end),
            "worker": WorkerParts(settings),
            "tailer": TailerParts(settings),
            "cli": Container(settings),
        }
        for name, parts in processes.items():
            end.callback(parts.close)
            # a worker's would wait for the server
            parts.database = parts.connected(connect(NOWHERE))
            asked_for = set(_asked_for(name))
            assert asked_for or name == "tailer"
            assert all(isinstance(parts[kind], kind) for kind in asked_for)
            assert all(getattr(parts, attribute) is not None for attribute in _attributes(type(parts)))


def _attributes(process: type[Container]) -> list[str]:
    return [name for base in process.__mro__ for name, one in vars(base).items() if isinstance(one, value)]


def _asked_for(process: str) -> Iterator[type[Any]]:
    for path in python_files(f"gateway/{process}"):
        names = ASKED_FOR.findall(path.read_text(encoding="utf-8"))
        module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        yield from (getattr(module, name) for name in names if isinstance(getattr(module, name, None), type))
