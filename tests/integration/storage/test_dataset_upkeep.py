"""What is kept of a dataset: changes for a time, and what they have led to for ever."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from dataset_runs import BEGAN, DatasetRuns
from pymongo.errors import OperationFailure

from gateway.clock import utc_now
from gateway.datasets.dataset import Dataset, DatasetRun, RunState
from gateway.datasets.feed import DatasetFeed
from gateway.datasets.fold_threads import AT_ONCE, Folding
from gateway.datasets.store import DatasetStore, RunStore
from gateway.datasets.upkeep import DatasetUpkeep
from gateway.errors import CursorExpiredError, InvalidRequestError
from gateway.retention.windows import Window, Windows
from gateway.stores.indexes import ensure_indexes


@pytest.fixture
def runs(served: Any) -> DatasetRuns:
    ensure_indexes(served)
    return DatasetRuns(served)


def offers(*skus: str, price: int = 1) -> list[dict[str, Any]]:
    return [{"sku": sku, "price": price} for sku in skus]


def test_changes_go_and_what_they_have_led_to_stays(runs: DatasetRuns) -> None:
    for price in range(1, 5):
        runs.run(offers("a", "b", price=price))
    feed = runs.parts[DatasetFeed]
    assert feed.items(runs.dataset, "", 9, as_of=2).records[0].item == {"sku": "a", "price": 1} | {
        "sku": feed.items(runs.dataset, "", 9, as_of=2).records[0].key["sku"]
    }
    # the first two runs ended before
    runs.parts[DatasetUpkeep].run(BEGAN + timedelta(hours=2, minutes=30), lambda: False)
    dataset = runs.dataset
    assert (dataset.floor_seq, dataset.head_seq) == (4, 8)
    assert [change.seq for change in feed.changes(dataset, 4, 9).changes] == [5, 6, 7, 8]
    with pytest.raises(CursorExpiredError) as expired:
        feed.changes(dataset, 3, 9)
    assert expired.value.detail == {"snapshot": "/datasets/prices/items", "since": 8}
    with pytest.raises(CursorExpiredError):
        feed.items(dataset, "", 9, as_of=2)
    assert runs.snapshot() == {one["sku"]: one for one in offers("a", "b", price=4)}


def test_a_cursor_from_nowhere_is_refused(runs: DatasetRuns) -> None:
    runs.run(offers("a"))
    with pytest.raises(InvalidRequestError, match="beyond the last change"):
        runs.parts[DatasetFeed].changes(runs.dataset, 2, 9)


def test_the_newest_runs_stay_with_their_figures(runs: DatasetRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.datasets.upkeep.KEPT_FIGURES", 2)
    for price in range(1, 6):
        runs.run(offers("a", price=price))
    runs.parts[DatasetUpkeep].run(BEGAN + timedelta(hours=2, minutes=30), lambda: False)
    found, _ = runs.parts[RunStore].of_dataset(runs.dataset.id, 9)
    assert [bool(run.figures) for run in found] == [True, True, True]


def test_items_that_a_dataset_needs_are_marked_for_retention(runs: DatasetRuns) -> None:
    many = [f"s{number}" for number in range(20)]
    runs.run(offers(*many))
    held = runs.crawl(offers(*many[:5]))
    runs.fold()
    due = runs.crawl(offers(*many))
    windows = Windows(runs.database)
    for hour in (2, 3):
        (batch,) = windows.batches(Window.around("items", BEGAN + timedelta(hours=hour, minutes=5)))
        assert [(one.job_id, one.is_needed) for one in batch] == [({2: held, 3: due}[hour], True)]


def test_a_skipped_run_does_not_hide_the_last_changes(served: Any) -> None:
    runs, now = RunStore(served), utc_now()
    published, skipped = uuid4().hex, uuid4().hex
    for age, job_id, state in ((2, published, RunState.PUBLISHED), (1, skipped, RunState.SKIPPED)):
        times = {"started_at": now - timedelta(hours=age), "ended_at": now, "at": now}
        runs.save(DatasetRun(job_id=job_id, dataset="d", scope="s", state=state, **times))
    for ids, newest in (([skipped, published], published), ([skipped], skipped)):
        run = runs.newest_of(ids)
        assert run is not None
        assert run.job_id == newest
    assert runs.newest_of([]) is None


def test_a_dataset_that_cannot_be_kept_up_delays_no_other(runs: DatasetRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.datasets.upkeep.KEPT_FIGURES", 1)
    names = ("first", "second", "third")
    for name in names:
        for price in range(1, 4):
            runs.run(offers("a", price=price), dataset={"name": name, "key": ["sku"]})
    broken, *others = sorted(runs.parts[DatasetStore].get(runs.user, name).id for name in names)
    # in the order of their ids, the broken one comes first
    runs.database["dataset_runs"].update_many({"dataset": broken}, {"$unset": {"started_at": ""}})
    runs.parts[DatasetUpkeep].run(BEGAN + timedelta(days=1), lambda: False)
    floors = {one["_id"]: one["floor_seq"] for one in runs.database["datasets"].find()}
    assert [floors[one] for one in (broken, *others)] == [0, 3, 3]


def test_a_round_goes_on_after_the_dataset_that_took_all_of_the_time(runs: DatasetRuns) -> None:
    for name in ("first", "second", "third"):
        runs.run(offers("a"), dataset={"name": name, "key": ["sku"]})
    upkeep = runs.parts[DatasetUpkeep]
    for _ in range(3):
        asked = iter((False,))
        upkeep.run(BEGAN + timedelta(days=1), lambda asked=asked: next(asked, True))
    floors = [one["floor_seq"] for one in runs.database["datasets"].find({"user_id": runs.user})]
    assert floors == [1, 1, 1]


def test_a_deleted_dataset_that_cannot_be_removed_keeps_no_other(
    runs: DatasetRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = runs.parts[DatasetStore]
    made = [store.ensure(runs.user, f"gone{number}", {}) for number in range(2 * AT_ONCE + 1)]
    for one in made:
        store.mark_deleted(one)
    unreadable, refused = {one.id for one in made[:AT_ONCE]}, {one.id for one in made[AT_ONCE : 2 * AT_ONCE]}
    runs.database["datasets"].update_many({"_id": {"$in": [*unreadable]}}, {"$set": {"rev": "none"}})
    remove = store.remove

    def refuse(dataset: Dataset) -> None:
        if dataset.id in refused:
            raise OperationFailure("refused", 2)
        remove(dataset)

    monkeypatch.setattr(store, "remove", refuse)
    for _ in range(2):
        runs.parts[Folding].look()
    assert {one["_id"] for one in runs.database["datasets"].find({"user_id": runs.user})} == unreadable | refused
