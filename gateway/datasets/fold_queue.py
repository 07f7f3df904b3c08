"""The queue of runs that are to be folded. It consists of two fields of the jobs: `dataset_due` is the time at which
a run is due, and is absent once nothing is left to do. `dataset_held` keeps retention from removing the items of a
held run.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pymongo import ASCENDING
from pymongo.database import Database

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import DatasetOrder
from gateway.crash_points import state_change
from gateway.jobs.job import JobSignal, JobStatus
from gateway.jobs.queue import JobDocuments, change
from gateway.stores.documents import SET_ASIDE
from gateway.stores.mongo import Document, Repeating

#: Seconds for which a worker leases a dataset; it renews the lease while it works.
LEASE_SECONDS = 60.0


class DueRun(NamedTuple):
    job_id: str
    user_id: str
    dataset: DatasetOrder
    due: datetime
    ended: datetime
    #: How often its fold has failed.
    failures: int


class FoldQueue:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        self._clock = clock

    def next_due(self, datasets: Collection[tuple[str, str]] = (), users: Collection[str] = ()) -> DueRun | None:
        """The run that has been due for longest, except runs of these datasets (user and name) and of these users."""
        query: Document = {"dataset_due": {"$lte": self._clock()}, SET_ASIDE: {"$exists": False}}
        if datasets:
            query["$nor"] = [{"user_id": user, "spec.dataset.name": name} for user, name in datasets]
        if users:
            query["user_id"] = {"$nin": list(users)}
        return self._first(query, "dataset_due")

    def going_on(self) -> list[str]:
        """The jobs whose crawls are going on, of all datasets, the oldest first."""
        query: Document = {"status": JobStatus.RUNNING, "spec.dataset": {"$exists": True}}
        return [one["_id"] for one in self._jobs.find(query, {"_id": 1}, sort=[("created_at", ASCENDING)])]

    def first_of(self, run: DueRun) -> DueRun | None:
        """The run that started first among the runs of the same dataset that are not folded yet. If it is not due,
        because its fold has failed, the later runs wait for it.
        """
        query: Document = {"dataset_due": {"$exists": True}, SET_ASIDE: {"$exists": False}}
        return self._first({**query, "user_id": run.user_id, "spec.dataset.name": run.dataset.name}, "started_at")

    @state_change("folds.wait")
    def wait(self, run: DueRun, until: datetime) -> None:
        """Postpone all due runs of this run's dataset to `until`, so that runs of other datasets come first."""
        of_dataset = {"user_id": run.user_id, "spec.dataset.name": run.dataset.name}
        earlier: Document = {"dataset_due": {"$lt": until}, **of_dataset}
        Repeating(self._jobs).update_many(earlier, {"$set": {"dataset_due": until}})

    def waiting(self, user_id: str, names: Sequence[str], projects: Collection[str] = ()) -> dict[str, int]:
        """How many runs of these datasets wait to be folded; `projects`: only runs of these projects."""
        query: Document = {"dataset_due": {"$exists": True}, "user_id": user_id}
        query["spec.dataset.name"] = {"$in": list(names)}
        if projects:
            query["spec.project"] = {"$in": list(projects)}
        counts: dict[str, int] = {}
        for one in self._jobs.find(query, {"spec.dataset.name": 1}):
            name = one["spec"]["dataset"]["name"]
            counts[name] = counts.get(name, 0) + 1
        return counts

    def _first(self, query: Document, order: str) -> DueRun | None:
        fields = {"user_id": 1, "spec.dataset": 1, "dataset_due": 1, "dataset_failures": 1, "finished_at": 1}
        for found in self._jobs.find(query, fields, sort=[(order, ASCENDING)]):
            try:
                dataset = DatasetOrder.model_validate(found["spec"]["dataset"])
                return DueRun(
                    job_id=found["_id"],
                    user_id=found["user_id"],
                    dataset=dataset,
                    due=found["dataset_due"],
                    ended=found["finished_at"],
                    failures=found.get("dataset_failures", 0),
                )
            except (ValueError, KeyError, TypeError):
                # `optional` sets a job aside that cannot be read, so it is not found again
                self._documents.optional(self._jobs.find_one({"_id": found["_id"]}))
        return None

    @state_change("folds.done")
    def done(self, job_id: str, *, held: bool = False, signal: JobSignal | None = None) -> None:
        """Remove the run from the queue. `held`: retention must keep its items. `signal` announces the outcome."""
        gone = ["dataset_due", "dataset_failures", *([] if held else ["dataset_held"])]
        update = change(self._clock(), {"dataset_held": True} if held else {}, unset=gone, signal=signal)
        Repeating(self._jobs).update_one({"_id": job_id}, update)

    @state_change("folds.again")
    def again(self, job_id: str, after: timedelta = timedelta(), *, failures: int = 0) -> None:
        """Make the run due again after this time. If its fold has failed, only if the run is still in the queue."""
        due = {"dataset_due": self._clock() + after, "dataset_failures": failures}
        still = {"dataset_due": {"$exists": True}} if failures else {}
        Repeating(self._jobs).update_one({"_id": job_id, **still}, {"$set": due})

    @state_change("folds.release")
    def release(self, job_ids: Sequence[str]) -> None:
        """These runs are not held any more, so retention may remove their items."""
        Repeating(self._jobs).update_many({"_id": {"$in": list(job_ids)}}, {"$unset": {"dataset_held": ""}})

    @state_change("folds.forget")
    def forget(self, user_id: str, name: str, until: datetime) -> None:
        """Remove the runs of this dataset that ended at `until` or earlier from the queue."""
        due: Document = {"dataset_due": {"$exists": True}, "finished_at": {"$lte": until}}
        gone = {"dataset_due": "", "dataset_failures": ""}
        Repeating(self._jobs).update_many({**due, "user_id": user_id, "spec.dataset.name": name}, {"$unset": gone})
