"""Two workers fold the runs of several datasets and are killed again and again. What readers see is what a model
says, which folds the same runs in memory: no change is lost, none told twice, and no incomplete run removes anything.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from dataset_runs import DatasetRuns
from fault_table import record
from forms import full_or_short
from kill_loop import KillLoop
from pymongo.errors import AutoReconnect
from stores import embedded_mongo

import gateway.datasets.fold
from gateway.crash_points import STATE_CHANGES
from gateway.datasets.dataset import ChangeType, ItemChange, RunState
from gateway.datasets.feed import DatasetFeed
from gateway.datasets.store import ChangeStore, RecordStore
from gateway.jobs.job import JobStatus
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import connect

DATASETS = full_or_short(5, 2)
RUNS = full_or_short(240, 8)
KILLS = full_or_short(100, 5)
CURSORS = 20
SEED = 20261127
#: Items of a run, at most, out of twice as many that there are.
ITEMS = 30


class Model:
    """One dataset, folded in memory."""

    def __init__(self, confirm: int) -> None:
        self.confirm = confirm
        self.items: dict[str, dict[str, Any]] = {}
        self.missed: dict[str, dict[str, int]] = {}
        self.told: list[tuple[str, str]] = []

    def fold(self, rows: list[dict[str, Any]], scope: str, *, complete: bool) -> RunState:
        seen = {row["sku"]: row for row in rows}
        known = [sku for sku in self.items if scope in self.missed[sku]]
        gone = [sku for sku in known if sku not in seen] if complete else []
        if len(gone) > 3 and len(gone) / len(known) > 0.2:
            return RunState.HELD
        for sku, row in seen.items():
            if sku not in self.items or self.items[sku] != row:
                self.told.append(("changed" if sku in self.items else "new", sku))
            self.items[sku] = row
            self.missed.setdefault(sku, {})[scope] = 0
        for sku in gone:
            self.missed[sku][scope] += 1
            if self.missed[sku][scope] >= self.confirm:
                del self.missed[sku][scope]
            if not self.missed[sku]:
                del self.items[sku], self.missed[sku]
                self.told.append(("removed", sku))
        return RunState.PUBLISHED


class Story:
    """One dataset: its made-up runs, what the model makes of them, and what the platform has."""

    def __init__(self, database: Any, number: int, chance: random.Random) -> None:
        self.confirm = chance.choice([1, 1, 2, 3])
        self.runs = DatasetRuns(database, f"user-{number}")
        self.model = Model(self.confirm)
        self.chance = chance
        self.expected: dict[str, RunState] = {}
        self.world = {f"s{n:03}": 1 for n in range(ITEMS)}

    def crawl(self) -> None:
        """One more run, and what comes of it."""
        for sku in self.chance.sample([f"s{n:03}" for n in range(2 * ITEMS)], self.chance.randint(0, 4)):
            if sku in self.world and self.chance.random() < 0.4:
                del self.world[sku]
            else:
                self.world[sku] = self.chance.randint(1, 9)
        scope = self.chance.choice(["a", "a", "a", "b"])
        rows = [{"sku": sku, "price": price} for sku, price in self.world.items()]
        self.chance.shuffle(rows)
        kind = self.chance.choice(["whole", "whole", "whole", "whole", "partial", "limit", "broken", "failed"])
        facts: dict[str, Any] = {}
        if kind == "partial":
            rows, facts = rows[: self.chance.randint(0, len(rows))], {"status": JobStatus.PARTIAL}
        elif kind == "limit":
            rows, facts = rows[:5], {"finish_reason": "closespider_itemcount"}
        elif kind == "broken":
            rows = rows[: len(rows) // 2]
        elif kind == "failed":
            rows, facts = rows[:3], {"status": JobStatus.ERROR}
        options = {"name": "prices", "key": ["sku"], "confirm_removed": self.confirm}
        job_id = self.runs.crawl(rows, dataset=options, start_urls=(f"https://shop.test/{scope}",), **facts)
        complete = kind in {"whole", "broken"}
        self.expected[job_id] = (
            RunState.SKIPPED if kind == "failed" else self.model.fold(rows, scope, complete=complete)
        )

    def lost_and_doubled(self) -> tuple[int, int]:
        """Changes that are missing, and that are told twice."""
        told = [(change.type.value, change.key["sku"]) for change in self.runs.changes()]
        ids = [change.change_id for change in self.runs.changes()]
        lost = sum(max(0, self.model.told.count(one) - told.count(one)) for one in set(self.model.told))
        more = sum(max(0, told.count(one) - self.model.told.count(one)) for one in set(told))
        return lost, more + len(ids) - len(set(ids))

    def check(self) -> None:
        found = self.runs.database["dataset_runs"].find({"dataset": self.runs.dataset.id})
        states = {one["_id"]: one["state"] for one in found}
        for job_id, expected in self.expected.items():
            # a good run after a held one makes it superseded
            allowed = {expected, RunState.SUPERSEDED} if expected is RunState.HELD else {expected}
            assert states[job_id] in allowed, (job_id, states[job_id], expected)
        assert self.runs.snapshot() == self.model.items
        assert self.runs.dataset.items == len(self.model.items)

    def check_replays(self, chance: random.Random) -> None:
        """From any cursor on, the changes lead from the items as they were then to those that there are."""
        feed, dataset = self.runs.parts[DatasetFeed], self.runs.dataset
        for _ in range(CURSORS):
            cursor = chance.randint(0, dataset.head_seq)
            then = feed.items(dataset, "", 10_000, as_of=cursor).records
            items = {one.key["sku"]: one.item for one in then}
            since = cursor
            while (page := feed.changes(dataset, since, 7)).changes or page.next < page.last:
                for change in page.changes:
                    if change.type is ChangeType.REMOVED:
                        del items[change.key["sku"]]
                    else:
                        items[change.key["sku"]] = change.item
                since = page.next
            assert items == self.runs.snapshot(), f"from cursor {cursor}"


@pytest.fixture
def uri(tmp_path: Path) -> Iterator[str]:
    with embedded_mongo(tmp_path / "mongo") as uri:
        yield uri


def test_killed_workers_lose_no_change_and_tell_none_twice(uri: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    database = connect(uri)
    ensure_indexes(database)
    stories = [Story(database, number, chance) for number in range(DATASETS)]
    for _ in range(RUNS):
        for story in stories:
            story.crawl()
    (plan := tmp_path / "plan").mkdir()
    points = sorted(name for name in STATE_CHANGES if name.startswith(("dataset", "folds.")))
    loop = KillLoop("dataset_story", uri, plan, points=points, kills=KILLS, chance=chance)
    due = {"dataset_due": {"$exists": True}}
    loop.run(lambda: not (loop.is_running or database["jobs"].find_one(due)), full_or_short(3000, 240))
    killed = loop.killed
    assert killed >= full_or_short(KILLS, 1), "too few kills to show anything"
    lost = doubled = 0
    for story in stories:
        story.check()
        missing, more = story.lost_and_doubled()
        lost, doubled = lost + missing, doubled + more
        story.check_replays(chance)
    database.client.close()
    injected = f"{killed} kills of two workers at writes of folds, {DATASETS * RUNS} runs of {DATASETS} datasets"
    record("Killed while folding", injected, lost=lost, doubled=doubled, recovered=None)


def test_the_model_notices_removals_by_incomplete_runs(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: a fold that takes every run for a complete one."""
    monkeypatch.setattr(gateway.datasets.fold, "why_incomplete", lambda _job: None)
    database = connect(uri)
    ensure_indexes(database)
    story = Story(database, 0, random.Random(SEED))
    for _ in range(12):
        story.crawl()
    story.runs.fold()
    with pytest.raises(AssertionError):
        story.check()
    database.client.close()


def test_the_model_notices_records_that_change_before_their_run_is_published(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other negative control: a fold that dies once in each run, between its changes and their publication."""
    database, write, died = connect(uri), ChangeStore.write, set[str]()
    ensure_indexes(database)

    def dies(store: ChangeStore, changes: list[ItemChange], *, has_applied: bool) -> None:
        write(store, changes)
        if has_applied:
            RecordStore(database).apply(changes)
        if changes[0].run not in died:
            died.add(changes[0].run)
            raise AutoReconnect("it is killed")

    for has_applied in (False, True):
        monkeypatch.setattr(ChangeStore, "write", partialmethod(dies, has_applied=has_applied))
        story = Story(database, int(has_applied), random.Random(SEED))
        for _ in range(12):
            story.crawl()
        while database["jobs"].find_one({"dataset_due": {"$exists": True}}):
            with suppress(AutoReconnect):
                story.runs.fold()
        lost, _ = story.lost_and_doubled()
        assert bool(lost) is has_applied
    database.client.close()
