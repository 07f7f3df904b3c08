"""Turns: what fails, fails as a whole and before it was acknowledged; the next one works."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bson
import pytest

from embedded.mongo.commands import Commands
from embedded.mongo.server import _SLICE, Executor
from embedded.mongo.store import Store

Document = dict[str, Any]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "mongo.sqlite")
    yield store
    store.close()


async def ask(executor: Executor, *commands: Document) -> list[Document]:
    """All at once, in one turn."""
    answers = []
    for command in commands:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        executor.submit({**command, "$db": "test"}, bson.encode, answer.set_result)
        answers.append(answer)
    return [bson.decode(answer) for answer in await asyncio.wait_for(asyncio.gather(*answers), 60)]


def insert(identity: int, size: int = 10) -> Document:
    return {"insert": "c", "documents": [{"_id": identity, "text": "x" * size}]}


async def test_a_full_disk_refuses_what_does_not_fit_and_keeps_what_was_there(store: Store) -> None:
    executor = Executor(store, Commands(store))
    await ask(executor, insert(1))
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages + 5}").close()

    failed = await ask(executor, insert(2), insert(3, 1_000_000))

    assert [answer["code"] for answer in failed] == [14031, 14031]
    store.connection.execute(f"PRAGMA max_page_count = {pages + 5000}").close()
    assert (await ask(executor, {"count": "c"}))[0]["n"] == 1
    assert [answer["n"] for answer in await ask(executor, insert(2), insert(3, 1_000_000))] == [1, 1]


async def test_an_error_of_one_command_is_its_own(store: Store) -> None:
    executor = Executor(store, Commands(store))
    answers = await ask(executor, insert(1), insert(1), {"nonsense": 1}, insert(2), {"count": "c"})
    assert [answer["ok"] for answer in answers] == [1.0, 1.0, 0.0, 1.0, 1.0]
    assert answers[1]["writeErrors"][0]["code"] == 11000
    assert answers[4]["n"] == 2


def insert_nested(depth: int) -> Document:
    """More levels than Python's stack has room for."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return {"insert": "c", "documents": [{"_id": "before"}, {"_id": "nested", "k": value}]}


async def test_a_command_that_breaks_is_undone_alone(store: Store) -> None:
    executor = Executor(store, Commands(store))
    await ask(executor, {"createIndexes": "c", "indexes": [{"key": {"k": 1}, "name": "k"}]})
    multikey = {"insert": "c", "documents": [{"_id": "array", "k": [1, 2]}]}

    answers = await ask(executor, insert(1), insert_nested(2000), multikey, insert_nested(2000), insert(2))

    assert [answer["ok"] for answer in answers] == [1.0, 0.0, 1.0, 0.0, 1.0]
    assert [answers[1]["code"], answers[1]["codeName"]] == [1, "InternalError"]
    assert await found(executor, {}) == [1, "array", 2]
    # what the neighbour has made known of the index is still known
    assert await found(executor, {"k": {"$gt": 1}}) == ["array"]
    assert store.collections["test", "c"].indexes["k"].multikey


async def test_a_collection_made_by_a_command_that_breaks_was_never_there(store: Store) -> None:
    executor = Executor(store, Commands(store))
    index = {"createIndexes": "c", "indexes": [{"key": {"k": 1}, "name": "k"}]}
    broken = {"createIndexes": "c", "indexes": [{"key": {"k": 1}, "name": "k"}, {"key": {"a": 1}, "name": "\ud800"}]}
    answers = await ask(executor, broken, index, insert(1))
    assert [answer["ok"] for answer in answers] == [0.0, 1.0, 1.0]
    assert list(store.collections["test", "c"].indexes) == ["_id_", "k"]
    assert await found(executor, {}) == [1]


async def test_an_answer_that_cannot_be_encoded_is_an_error_and_nothing_of_its_command_is_kept(store: Store) -> None:
    executor = Executor(store, Commands(store))
    answers: list[bytes] = []
    done = asyncio.Event()

    def encode(reply: Document) -> bytes:
        return bson.encode(reply | ({} if "errmsg" in reply else {"no BSON": object()}))

    def answered(answer: bytes) -> None:
        answers.append(answer)
        done.set()

    executor.submit({**insert(1), "$db": "test"}, encode, answered)
    assert (await ask(executor, insert(2)))[0]["ok"] == 1.0
    await asyncio.wait_for(done.wait(), 60)
    assert bson.decode(answers[0])["code"] == 1
    assert await found(executor, {}) == [2]


async def found(executor: Executor, query: Document) -> list[Any]:
    (answer,) = await ask(executor, {"find": "c", "filter": query})
    return [document["_id"] for document in answer["cursor"]["firstBatch"]]


async def test_a_long_command_gives_way_and_comes_to_its_end(store: Store) -> None:
    executor = Executor(store, Commands(store))
    documents = [{"_id": number, "n": number} for number in range(20_000)]
    await ask(executor, {"insert": "c", "documents": documents})
    order: list[str] = []
    done = asyncio.Event()

    def finished(answer: bytes) -> None:
        assert bson.decode(answer)["nModified"] == 20_000
        order.append("long")
        done.set()

    change = {
        "update": "c",
        "updates": [{"q": {"n": {"$gte": 0}}, "u": {"$inc": {"n": 1}}, "multi": True}],
        "$db": "test",
    }
    executor.submit(change, bson.encode, finished)
    executor.submit({"ping": 1, "$db": "test"}, bson.encode, lambda _: order.append("short"))
    await done.wait()
    assert order == ["short", "long"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("embedded.mongo.server.monotonic", clock)
    return clock


class Walks(Commands):
    """Has a command that is not ready before all of them together have made 100 steps, each longer than a slice."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store)
        self.steps: list[int] = []
        self.under_way = asyncio.Event()
        self._clock = clock

    def run(self, command: Document) -> Any:
        return self._walk(command["walk"]) if "walk" in command else super().run(command)

    def _walk(self, number: int) -> Any:
        while len(self.steps) < 100:
            self.steps.append(number)
            if len(self.steps) == 40:
                self.under_way.set()
            self._clock.now += 1.5 * _SLICE
            yield
        return {"n": len(self.steps)}


async def test_a_short_command_waits_for_few_slices_however_many_long_commands_there_are(
    store: Store, clock: Clock
) -> None:
    commands = Walks(store, clock)
    executor = Executor(store, commands)
    walks = asyncio.ensure_future(ask(executor, *({"walk": number} for number in range(20))))
    await commands.under_way.wait()
    before = len(commands.steps)
    await ask(executor, {"ping": 1})
    # those of the turn that was scheduled already, and of the command's own
    assert len(commands.steps) - before <= 4
    assert len(await walks) == 20
    assert {*commands.steps} == {*range(20)}


async def test_long_commands_get_half_of_the_time_when_commits_are_slow(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = Walks(store, clock)
    executor = Executor(store, commands)
    commits: list[float] = []
    real = store.commit

    def slow() -> None:
        clock.now += 6 * _SLICE
        commits.append(6 * _SLICE)
        real()

    monkeypatch.setattr(store, "commit", slow)
    assert len(await ask(executor, *({"walk": number} for number in range(20)))) == 20
    assert clock.now - sum(commits) >= 0.45 * clock.now
