"""Runs of a dataset whose exports are due, written by one worker after another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dataset_runs import DatasetRuns, exporting_parts
from export_story import check_no_success_is_early
from pymongo.database import Database

from gateway.datasets.dataset import RunState
from gateway.datasets.run_exports import Exporting
from gateway.datasets.store import DatasetStore, RunStore
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import Document, connect

USER = "eve"
EXPORTS = [
    {"to": "prices", "format": "jsonl", "what": "snapshot"},
    {"to": "prices", "format": "csv", "what": "changes"},
]
SKUS = ("a", "b", "c")


def prepare(database: Database[Document]) -> None:
    ensure_indexes(database)
    runs = DatasetRuns(database, USER)
    runs.parts[DatasetStore].ensure(USER, "prices", {"key": ["sku"], "exports": EXPORTS})
    for price in (1, 2):
        assert runs.run([{"sku": sku, "price": price} for sku in SKUS]) is RunState.PUBLISHED


def tell(uri: str, folder: str) -> None:
    database = connect(uri)
    parts = exporting_parts(database, Path(folder))
    # somebody asks for exports that are due already, or were written
    parts[RunStore].ask_exports(next(database["dataset_runs"].find())["_id"])
    while database["dataset_runs"].count_documents({"exports_due": {"$exists": True}}):
        check_no_success_is_early(Path(folder))
        if run := parts[RunStore].claim_exports(0.0):
            parts[Exporting].export(run)
    database.client.close()


def check(database: Database[Document], folder: Path) -> None:
    runs, _ = RunStore(database).of_dataset(DatasetStore(database).get(USER, "prices").id, 9)
    assert [run.exports_due for run in runs] == [None, None]
    assert [[(one.what.value, one.rows, one.problem) for one in run.exports] for run in runs] == [
        [("snapshot", 3, None), ("changes", 3, None)]
    ] * 2
    check_no_success_is_early(folder)
    files = sorted(path.name for path in (folder / "out").rglob("*") if path.is_file())
    assert files == sorted(["_SUCCESS", "snapshot.jsonl", "_SUCCESS", "changes.csv"] * 2)
    written: list[dict[str, Any]] = []
    for path in sorted((folder / "out").rglob("snapshot.jsonl")):
        written += map(json.loads, path.read_text().splitlines())
    assert sorted((row["sku"], row["price"]) for row in written) == sorted(
        (sku, price) for sku in SKUS for price in (1, 2)
    )
