"""Ended crawls of one user, and their effect on a dataset."""

from __future__ import annotations

import itertools
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gateway.clock import Clock
from gateway.container import Container
from gateway.contract.crawl import CrawlSpec
from gateway.contract.reasons import Reason
from gateway.datasets.dataset import SHOWN, ChangeType, ItemChange, RunState, change_id
from gateway.datasets.fold_queue import FoldQueue
from gateway.datasets.fold_threads import Folding
from gateway.datasets.run_exports import Exporting
from gateway.datasets.store import ChangeStore, DatasetStore, RecordStore, RunStore
from gateway.exports.export import ExportPlaces
from gateway.items.items import Item, ItemStore
from gateway.items.table_files import TableSpace
from gateway.jobs.job import CrawlOrder, Job, JobStatus

BEGAN = datetime(2026, 6, 1, 9, tzinfo=UTC)


class DatasetRuns:
    """Makes ended crawls of one user, and folds them into the dataset."""

    def __init__(self, database: Any, user: str | None = None) -> None:
        self.parts = Container()
        self.parts.database = database
        self.parts.clock = lambda: BEGAN + timedelta(days=365)
        self.database = database
        self.user = user or f"user-{uuid.uuid4().hex[:8]}"
        self.hours = 0

    def crawl(self, rows: list[dict[str, Any]], **facts: Any) -> str:
        """Make a crawl with these items that is due to be folded."""
        options = facts.pop("dataset", {"name": "prices", "key": ["sku"]})
        urls = facts.pop("start_urls", ("https://shop.test/",))
        settings = facts.pop("settings", {})
        spec = CrawlSpec(spider="offers", start_urls=urls, dataset=options, settings=settings)
        errors = facts.pop("errors", [])
        self.hours += 1
        started = facts.pop("started_at", BEGAN + timedelta(hours=self.hours))
        ended = started + timedelta(minutes=5)
        report = {
            "finish_reason": facts.pop("finish_reason", "finished"),
            "progress": {"items_count": len(rows), "errors_count": len(errors)},
            "errors": errors,
            "stats": facts.pop("stats", {}),
            "ended_at": ended,
        }
        attempt = {
            "attempt": 1,
            "node": "n1",
            "dispatched_at": started,
            "started_at": started,
            "ended_at": ended,
            "exit": {"attempt": 1, "ended_at": ended, "exit_code": 0, "report": report},
        }
        origin = {
            "status": JobStatus.FINISHED,
            "reason": Reason.COMPLETED,
            "started_at": started,
            "finished_at": ended,
            "attempt": 1,
            "attempts": {"1": attempt},
            "settled": True,
            "dataset_due": ended,
        }
        job = Job.new(self.user, CrawlOrder(spec=spec), uuid.uuid4().hex, started, **{**origin, **facts})
        self.database["jobs"].insert_one(job.to_document())
        self.parts[ItemStore].insert([Item(job.id, 1, (n + 1) * 100, row) for n, row in enumerate(rows)])
        return job.id

    def fold(self) -> list[RunState]:
        """Fold all runs that are due."""
        states = []
        while due := self.parts[FoldQueue].next_due():
            run = self.parts[Folding].fold_next(due)
            assert run is not None
            states.append(run.state)
        return states

    def run(self, rows: list[dict[str, Any]], **facts: Any) -> RunState:
        self.crawl(rows, **facts)
        (state,) = self.fold()
        return state

    @property
    def dataset(self) -> Any:
        return self.parts[DatasetStore].get(self.user, "prices")

    def changes(self) -> list[ItemChange]:
        """All changes that readers see."""
        head = self.dataset.head_seq
        plans = self.parts[RunStore].plans(self.dataset.id, 0, head)
        place, found = change_id(self.dataset.id, 1), list[ItemChange]()
        while read := self.parts[ChangeStore].page(self.dataset.id, place, head, 100_000)[0]:
            place = read[-1].id
            found += [change for change in read if change.plan in plans and change.type in SHOWN]
        return found

    def told(self) -> list[tuple[str, Any]]:
        return sorted((change.type.value, change.key["sku"]) for change in self.changes())

    def snapshot(self) -> dict[str, Any]:
        after, found = "", dict[str, Any]()
        while records := self.parts[RecordStore].page(self.dataset.id, after, 100_000)[0]:
            after = records[-1].key_hash
            found |= {one.key["sku"]: one.item for one in records if not one.removed}
        return found

    def replayed(self) -> dict[str, Any]:
        """The items as they follow from the feed alone."""
        items: dict[str, Any] = {}
        for change in self.changes():
            if change.type is ChangeType.REMOVED:
                del items[change.key["sku"]]
            else:
                items[change.key["sku"]] = change.item
        return items


def exporting_parts(database: Any, folder: Path, clock: Clock | None = None) -> Container:
    """The services of a worker that writes exports below the folder. Without a clock it waits for no lease."""
    parts = Container()
    hours = itertools.count(366 * 24)
    # the default clock advances so fast that anything postponed is due again at the next check
    parts.database, parts.clock = database, clock or (lambda: BEGAN + timedelta(hours=next(hours)))
    parts[ExportPlaces] = ExportPlaces(((folder / "out").as_uri(),))
    parts[TableSpace] = TableSpace(folder / "space", 1 << 30)
    parts[Exporting] = parts.build(Exporting, lease=0.02)
    return parts
