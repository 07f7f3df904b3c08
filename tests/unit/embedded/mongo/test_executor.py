"""Turns: what fails, fails as a whole and before it was acknowledged; the next one works."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embedded.mongo.commands import Commands
from embedded.mongo.executor import Executor
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
        answer: asyncio.Future[Document] = asyncio.get_running_loop().create_future()
        executor.submit({**command, "$db": "test"}, answer.set_result)
        answers.append(answer)
    return await asyncio.gather(*answers)


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


async def test_a_long_command_gives_way_and_comes_to_its_end(store: Store) -> None:
    executor = Executor(store, Commands(store))
    documents = [{"_id": number, "n": number} for number in range(20_000)]
    await ask(executor, {"insert": "c", "documents": documents})
    order: list[str] = []
    done = asyncio.Event()

    def finished(answer: Document) -> None:
        assert answer["nModified"] == 20_000
        order.append("long")
        done.set()

    change = {
        "update": "c",
        "updates": [{"q": {"n": {"$gte": 0}}, "u": {"$inc": {"n": 1}}, "multi": True}],
        "$db": "test",
    }
    executor.submit(change, finished)
    executor.submit({"ping": 1, "$db": "test"}, lambda _: order.append("short"))
    await done.wait()
    assert order == ["short", "long"]
