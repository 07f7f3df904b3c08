"""Runs of a crawl that are folded into datasets, held, accepted and superseded; and a dataset that is deleted."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

from dataset_runs import BEGAN, DatasetRuns
from pymongo.database import Database

import gateway.datasets.upkeep
from gateway.container import Container
from gateway.datasets.dataset import RunState, change_id
from gateway.datasets.fold import Fold
from gateway.datasets.fold_queue import FoldQueue
from gateway.datasets.fold_threads import Folding
from gateway.datasets.service import Datasets
from gateway.datasets.store import ChangeStore, DatasetStore, RunStore
from gateway.datasets.upkeep import DatasetUpkeep
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import Document, connect

HOUR = timedelta(hours=1)
USER = "anne"
MANY = [f"s{number:02}" for number in range(20)]
#: The items of the dataset `prices` in the end.
LEFT = {sku: {"sku": sku, "price": 3} for sku in MANY[:10]}


def prepare(database: Database[Document]) -> None:
    ensure_indexes(database)
    for one in ("datasets", "dataset_records", "dataset_changes", "dataset_runs"):
        database[one].delete_many({})
    runs = DatasetRuns(database, USER)
    assert runs.run([_offer(sku, 1) for sku in MANY]) is RunState.PUBLISHED
    # a dataset whose changes are so old that they are not kept any more
    for hours in (4, 3, 2):
        runs.run([_offer("y", hours)], dataset={"name": "aged", "key": ["sku"]}, started_at=BEGAN - hours * HOUR)
    # from now on records have hashes of another form
    runs.parts[DatasetStore].change(runs.dataset, {"ignore": ["seen"]})
    # a run that is held, and superseded by the next one
    runs.crawl([_offer(sku, 2) for sku in MANY[:5]])
    runs.crawl([_offer(sku, 2) for sku in MANY])
    # a run that is held, and accepted later
    runs.crawl([_offer(sku, 3) for sku in MANY[:10]])
    runs.crawl([_offer("x", 1)], dataset={"name": "others", "key": ["sku"]})
    runs.parts[DatasetStore].ensure(USER, "old", {})


def _offer(sku: str, price: int) -> dict[str, Any]:
    return {"sku": sku, "price": price}


def parts_of(uri: str, lease: float = 0.0) -> Container:
    """The parts of a worker that need not wait long for the lease of one that was killed."""
    parts = Container()
    parts.database = connect(uri)
    parts[Fold] = parts.build(Fold, lease=lease)
    parts[Folding] = parts.build(Folding, lease=lease)
    return parts


def main() -> None:
    """A worker that folds until nothing is due."""
    parts = parts_of(sys.argv[1], lease=1.0)
    while due := parts[FoldQueue].next_due():
        if parts[Folding].fold_next(due) is None:
            # another worker folds this run
            time.sleep(0.02)
    parts.database.client.close()


def tell(uri: str) -> None:
    parts = parts_of(uri)
    if due := parts[FoldQueue].next_due():
        # wait for a moment, as after a fold that has failed
        parts[FoldQueue].wait(due, due.due + timedelta(milliseconds=1))
    _fold(parts)
    service, store = parts[Datasets], parts[DatasetStore]
    dataset = service.find("prices", USER)
    held, _ = parts[RunStore].of_dataset(dataset.id, 10, states=[RunState.HELD])
    for run in held:
        if run.accepted:
            parts[FoldQueue].again(run.job_id)
        else:
            service.accept(dataset, run.job_id, "anne", is_normal=True)
    _fold(parts)
    service.change(service.find("prices", USER), {"empty_values": ("N/A",)})
    gateway.datasets.upkeep.KEPT_FIGURES = 1
    parts[DatasetUpkeep].run(BEGAN - timedelta(hours=1), lambda: False)
    if (old := store.look(USER, "old")) is not None:
        service.delete(old)
    while store.deleted(1):
        parts[Folding].look()
    parts.database.client.close()


def _fold(parts: Container) -> None:
    while due := parts[FoldQueue].next_due():
        parts[Folding].fold_next(due)


def check(database: Database[Document]) -> None:
    runs = DatasetRuns(database, USER)
    assert runs.snapshot() == LEFT
    assert runs.replayed() == LEFT
    assert sorted({(change.type.value, change.run) for change in runs.changes()}) != []
    counts = [change.type.value for change in runs.changes()]
    assert (counts.count("new"), counts.count("changed"), counts.count("removed")) == (20, 30, 10)
    assert runs.dataset.items == 10
    assert database["jobs"].count_documents({"dataset_due": {"$exists": True}}) == 0
    assert database["jobs"].count_documents({"dataset_held": {"$exists": True}}) == 0
    assert database["datasets"].count_documents({}) == 3
    aged = runs.parts[DatasetStore].get(USER, "aged")
    assert (aged.floor_seq, aged.head_seq, aged.items) == (3, 3, 1)
    assert runs.parts[ChangeStore].page(aged.id, change_id(aged.id, 1), 9, 9) == ([], False)
