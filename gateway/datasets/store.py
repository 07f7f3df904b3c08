"""The collections of datasets: the datasets themselves, their records, changes and runs.

A change is visible if its number is at most the dataset's `head_seq` and its plan belongs to a published run. Only
`DatasetStore.publish` raises `head_seq`, by a compare-and-set, so a run becomes visible as a whole.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pymongo import ASCENDING, DESCENDING, ReplaceOne, ReturnDocument, UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError, DuplicateKeyError

from gateway.clock import Clock, utc_now
from gateway.crash_points import state_change
from gateway.datasets.dataset import (
    MAX_SCOPES,
    OPTIONS,
    SHOWN,
    Dataset,
    DatasetRun,
    ItemChange,
    Record,
    RunExport,
    RunState,
    change_id,
    record_id,
)
from gateway.errors import ConflictError, DatasetNotFoundError, InvalidRequestError
from gateway.stores.documents import Documents, page, reader
from gateway.stores.mongo import DUPLICATE_KEY, Document, Repeating, refusals

#: Documents deleted in one write.
_BATCH = 1000


class DatasetStore:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._datasets = database["datasets"]
        self._documents = Documents(self._datasets, reader(Dataset))
        self._clock = clock

    def ensure(self, user_id: str, name: str, options: Mapping[str, Any]) -> Dataset:
        """The user's dataset of this name. If it does not exist, it is made with these options."""
        return self.look(user_id, name) or self._insert(user_id, name, options) or self.get(user_id, name)

    def get(self, user_id: str, name: str) -> Dataset:
        """Raises `DatasetNotFoundError`."""
        if (found := self.look(user_id, name)) is None:
            raise DatasetNotFoundError(name)
        return found

    def named(self, name: str, projects: Collection[str] = ()) -> Dataset:
        """The dataset of this name, whichever user has it; `projects`: of those of these projects. Raises
        `DatasetNotFoundError`, and `InvalidRequestError` if several users have one.
        """
        query = {"name": name, "live_name": {"$exists": True}, **_fed_by(projects)}
        read = self._datasets.find(query, limit=0 if projects else 2)
        found = [one for one in self._documents.many(read) if one.is_of(projects)]
        if len(found) > 1:
            raise InvalidRequestError("user_id", f"several users have a dataset {name!r}: name the user")
        if not found:
            raise DatasetNotFoundError(name)
        return found[0]

    def by_id(self, dataset_id: str) -> Dataset | None:
        return self._documents.find_one({"_id": dataset_id})

    def of_user(
        self, user_id: str | None, limit: int, after: str | None = None, projects: Collection[str] = ()
    ) -> tuple[list[Dataset], str | None]:
        """A page as `documents.page` returns it; of all users if `user_id` is `None`. `projects`: only those of these
        projects, so a page can have fewer than `limit` although others follow.
        """
        mine: Document = {"live_name": {"$exists": True}} if user_id is None else {"user_id": user_id}
        found, following = page(self._documents, [{**mine, **_LIVE, **_fed_by(projects)}], limit, after)
        return [one for one in found if one.is_of(projects)], following

    def many(self, dataset_ids: Sequence[str], user_id: str | None) -> list[Dataset]:
        """Those of these datasets that exist and belong to the user (to any user if `user_id` is `None`)."""
        mine: Document = {} if user_id is None else {"user_id": user_id}
        wanted = {"_id": {"$in": list(dataset_ids)}, **_LIVE, **mine}
        return list(self._documents.many(self._datasets.find(wanted)))

    def ids_of(self, user_id: str) -> list[str]:
        """The ids of all datasets of the user."""
        return [one["_id"] for one in self._datasets.find({"user_id": user_id, **_LIVE}, {"_id": 1})]

    def heads(self, dataset_ids: Sequence[str]) -> dict[str, int]:
        """The number of the last visible change of each of these datasets that exist."""
        found = self._datasets.find({"_id": {"$in": list(dataset_ids)}}, {"head_seq": 1})
        return {document["_id"]: document.get("head_seq", 0) for document in found}

    def look(self, user_id: str, name: str) -> Dataset | None:
        """The user's dataset of this name, if there is one."""
        return self._documents.find_one({"live_name": _live_name(user_id, name)})

    @state_change("datasets.insert")
    def _insert(self, user_id: str, name: str, options: Mapping[str, Any]) -> Dataset | None:
        """`None` if another process was first."""
        now = self._clock()
        made = Dataset(
            id=uuid.uuid4().hex, user_id=user_id, name=name, created_at=now, updated_at=now, **(OPTIONS | {**options})
        )
        document = made.model_dump(by_alias=True, exclude_none=True)
        try:
            Repeating(self._datasets).insert_one({**document, "live_name": _live_name(user_id, name)}, ours=["name"])
        except DuplicateKeyError:
            return None
        return made

    @state_change("datasets.change")
    def change(self, dataset: Dataset, options: Mapping[str, Any]) -> Dataset:
        """Change options. Raises `ConflictError` if the dataset has changed since it was read."""
        update = {"$set": {**options, "rev": dataset.rev + 1, "updated_at": self._clock()}}
        query: Document = {"_id": dataset.id, "rev": dataset.rev, **_LIVE}
        if "key" in options:
            # only as long as no run is published: records have the hashes of the old key
            query["head_seq"] = 0
        found = self._datasets.find_one_and_update(query, update, return_document=ReturnDocument.AFTER)
        if found is None:
            raise ConflictError("the dataset has changed meanwhile; read it again")
        return self._documents.one(found)

    @state_change("datasets.note_project")
    def note_project(self, dataset: Dataset, project: str) -> None:
        """Note that runs of this project are taken up, before anything of them can be seen."""
        if project not in dataset.projects:
            Repeating(self._datasets).update_one({"_id": dataset.id}, {"$addToSet": {"projects": project}})

    # --- one fold of a dataset at a time

    @state_change("datasets.claim")
    def claim(self, dataset_id: str, seconds: float) -> Dataset | None:
        """Lease the dataset and return it; `None` if another worker has a lease, or if the dataset is deleted."""
        now = self._clock()
        lease = {"token": secrets.token_hex(8), "until": now + timedelta(seconds=seconds)}
        free = {"_id": dataset_id, **_LIVE, **_unleased(now)}
        found = Repeating(self._datasets).find_one_and_update(
            free, {"$set": {"lease": lease}}, return_document=ReturnDocument.AFTER
        )
        return self._documents.optional(found)

    @state_change("datasets.renew")
    def renew(self, dataset: Dataset, seconds: float) -> bool:
        """Extend the lease to `seconds` from now. False if the lease is lost."""
        until = self._clock() + timedelta(seconds=seconds)
        return self._change(dataset, {}, {"lease.until": until})

    @state_change("datasets.release")
    def release(self, dataset: Dataset) -> None:
        self._datasets.update_one(_leased(dataset), {"$unset": {"lease": ""}})

    @state_change("datasets.publish")
    def publish(self, dataset: Dataset, run: DatasetRun) -> Dataset | None:
        """Make the run visible. `None` if the dataset has changed since it was read, or if the lease is lost."""
        counts = run.counts
        changes: Document = {
            "head_run": run.job_id,
            "head_plan": run.plan,
            "head_seq": run.last_seq,
            "heads": _newest({**dataset.heads, run.scope: run.started_at}),
            "items": dataset.items + counts.new - counts.removed,
            "runs": dataset.runs + 1,
            "noted_runs": dataset.noted_runs + 1,
            "updated_at": self._clock(),
        }
        if run.incomplete is None:
            changes["complete_at"] = run.ended_at
        as_read = {"head_seq": dataset.head_seq, "runs": dataset.runs, "rev": dataset.rev}
        if not self._change(dataset, as_read, changes):
            return None
        return dataset.model_copy(update=changes)

    @state_change("datasets.applied")
    def applied(self, dataset: Dataset) -> bool:
        """Note that all visible changes are in the records. False if the lease is lost."""
        return self._change(dataset, {"head_seq": dataset.head_seq}, {"applied_seq": dataset.head_seq})

    @state_change("datasets.learn_from")
    def learn_from(self, dataset: Dataset, moment: datetime) -> None:
        """From now on, learn what is normal only from runs that started at this moment or later."""
        Repeating(self._datasets).update_one({"_id": dataset.id}, {"$set": {"learn_from": moment}})

    @state_change("datasets.raise_floor")
    def raise_floor(self, dataset: Dataset, seq: int) -> None:
        """Note that the changes up to this number are about to be removed."""
        Repeating(self._datasets).update_one({"_id": dataset.id}, {"$max": {"floor_seq": seq}})

    def _change(self, dataset: Dataset, as_read: Mapping[str, Any], changes: Document) -> bool:
        found = Repeating(self._datasets).update_one({**_leased(dataset), **_LIVE, **as_read}, {"$set": changes})
        return found.matched_count == 1

    # --- deletion: the name is free at once, the data goes batch by batch, the document last

    @state_change("datasets.mark_deleted")
    def mark_deleted(self, dataset: Dataset) -> None:
        update = {"$set": {"deleted_at": self._clock()}, "$unset": {"live_name": ""}}
        Repeating(self._datasets).update_one({"_id": dataset.id}, update)

    def deleted(self, limit: int, but: Collection[str] = ()) -> list[Dataset]:
        """Deleted datasets whose documents are still to be removed, without leased ones and those of `but`."""
        gone: Document = {"deleted_at": {"$exists": True}, "_id": {"$nin": list(but)}, **_unleased(self._clock())}
        return self._documents.find(gone, limit, [("deleted_at", ASCENDING)])

    def was_deleted(self, user_id: str, name: str, since: datetime) -> bool:
        """Whether a dataset of this name was deleted at `since` or later, and is not completely removed yet."""
        gone = {"user_id": user_id, "name": name, "deleted_at": {"$gte": since}}
        return self._datasets.find_one(gone, {"_id": 1}) is not None

    @state_change("datasets.remove")
    def remove(self, dataset: Dataset) -> None:
        Repeating(self._datasets).delete_many({"_id": dataset.id})

    def next_after(self, dataset_id: str, limit: int) -> list[Dataset]:
        """The next datasets in the order of their ids."""
        return self._documents.find({"_id": {"$gt": dataset_id}}, limit, [("_id", ASCENDING)])


def _live_name(user_id: str, name: str) -> str:
    return f"{user_id}:{name}"


#: Datasets that are not deleted.
_LIVE: Document = {"deleted_at": {"$exists": False}}


def _fed_by(projects: Collection[str]) -> Document:
    """A query for all datasets of these projects; it also finds those that other projects feed, too."""
    return {"projects": {"$in": list(projects)}} if projects else {}


def _unleased(now: datetime) -> Document:
    return {"$or": [{"lease": {"$exists": False}}, {"lease.until": {"$lte": now}}]}


def _leased(dataset: Dataset) -> Document:
    return {"_id": dataset.id, "lease.token": dataset.lease.token if dataset.lease else None}


def _newest(heads: Mapping[str, datetime]) -> dict[str, datetime]:
    newest = sorted(heads.items(), key=lambda head: head[1], reverse=True)
    return dict(newest[:MAX_SCOPES])


# --- records, in the order of their keys' hashes

#: The fields of a record with which a run is compared.
_COMPARED = {"hash": 1, "hashed_by": 1, "removed": 1, "scopes": 1, "applied": 1}


class RecordStore:
    def __init__(self, database: Database[Document]) -> None:
        self._records = database["dataset_records"]
        self._documents = Documents(self._records, reader(Record))

    def compared(self, dataset_id: str, after: str, limit: int) -> list[Document]:
        """The next records after this key hash: the fields `_COMPARED`, as they are stored."""
        return list(self._records.find(_of(dataset_id, after), _COMPARED).sort("_id", ASCENDING).limit(limit))

    def page(self, dataset_id: str, after: str, limit: int) -> tuple[list[Record], bool]:
        """The next records after this key hash, including removed ones, and whether the page ended early because the
        records are large.
        """
        return self._documents.answer(_of(dataset_id, after), limit, [("_id", ASCENDING)])

    def of(self, dataset_id: str, key_hashes: Iterable[str]) -> dict[str, Record] | None:
        """The records with these key hashes that exist, by key hash; `None` if they are too large to be read
        together.
        """
        ids = [record_id(dataset_id, one) for one in key_hashes]
        found = self._documents.at_once({"_id": {"$in": ids}}, len(ids)) if ids else []
        return None if found is None else {one.key_hash: one for one in found}

    @state_change("dataset_records.apply")
    def apply(self, changes: Sequence[ItemChange]) -> None:
        """Apply these changes, which are in the order of their numbers. A record that already has the change, or a
        later one, stays as it is.
        """
        if changes:
            self._write([_applying(change) for change in changes])

    @state_change("dataset_records.rehash")
    def rehash(self, hashes: Mapping[str, tuple[int, str, str]]) -> None:
        """Replace hashes. For each record id: the `applied` with which the record was read, the new hash, and its
        `hashed_by`. A record that has changed since stays as it is.
        """
        operations = [
            UpdateOne({"_id": one, "applied": applied}, {"$set": {"hash": made, "hashed_by": by}})
            for one, (applied, made, by) in hashes.items()
        ]
        if operations:
            self._records.bulk_write(operations, ordered=False)

    def _write(self, operations: Sequence[UpdateOne | ReplaceOne[Document]]) -> None:
        try:
            self._records.bulk_write(operations, ordered=False)
        except BulkWriteError as error:
            # the record exists, and the condition did not match: so it has this change, or a later one, already
            refusals(error, {DUPLICATE_KEY})

    @state_change("dataset_records.delete")
    def delete(self, dataset_id: str) -> bool:
        """Delete a batch. Returns whether there may be more."""
        found = [one["_id"] for one in self._records.find(_of(dataset_id), {"_id": 1}, limit=_BATCH)]
        Repeating(self._records).delete_many({"_id": {"$in": found}})
        return len(found) == _BATCH


def _applying(change: ItemChange) -> UpdateOne | ReplaceOne[Document]:
    behind = {"_id": record_id(change.dataset, change.key_hash), "applied": {"$lt": change.seq}}
    if change.type in SHOWN:
        return ReplaceOne(behind, change.to_record(), upsert=True)
    return UpdateOne(behind, {"$set": {"scopes": change.scopes, "applied": change.seq}})


def _of(dataset_id: str, after: str = "") -> Document:
    """A query for the documents with ids `<dataset>:…`, after `<dataset>:<after>`."""
    return {"_id": {"$gt": f"{dataset_id}:{after}", "$lt": f"{dataset_id};"}}


# --- changes, in the order of their numbers


class ChangeStore:
    def __init__(self, database: Database[Document]) -> None:
        self._changes = database["dataset_changes"]
        self._documents = Documents(self._changes, reader(ItemChange))

    @state_change("dataset_changes.write")
    def write(self, changes: Sequence[ItemChange]) -> None:
        """Insert the changes that are not stored yet."""
        documents = [change.model_dump(by_alias=True, exclude_none=True) for change in changes]
        if not documents:
            return
        try:
            self._changes.insert_many(documents, ordered=False)
        except BulkWriteError as error:
            refusals(error, {DUPLICATE_KEY})

    def page(self, dataset_id: str, after: str, until: int, limit: int) -> tuple[list[ItemChange], bool]:
        """The changes of all plans, published or not, with ids above `after` and numbers up to `until`, and whether
        the page ended early because the changes are large.
        """
        query = {"_id": {"$gt": after, "$lt": change_id(dataset_id, until + 1)}}
        return self._documents.answer(query, limit, [("_id", ASCENDING)])

    def of_plan(self, dataset_id: str, plan: str, since: int, until: int, limit: int) -> list[ItemChange]:
        """The changes of one plan with numbers above `since` and up to `until`; fewer than `limit` if large."""
        query = {"_id": {"$gte": change_id(dataset_id, since + 1), "$lt": change_id(dataset_id, until + 1)}}
        return self._documents.page({**query, "plan": plan}, limit, [("_id", ASCENDING)])

    def of_key(self, dataset_id: str, key_hash: str, until: int) -> Iterator[tuple[str, int, str]]:
        """The id, number and plan of each change of one item, without marks, up to this number, the latest first. The
        changes of all plans are listed, published or not.
        """
        query = {"dataset": dataset_id, "key_hash": key_hash, "seq": {"$lte": until}, "type": {"$in": list(SHOWN)}}
        for one in self._changes.find(query, {"seq": 1, "plan": 1}).sort("seq", DESCENDING):
            yield one["_id"], one["seq"], one["plan"]

    def get(self, change_id: str) -> ItemChange | None:
        return self._documents.find_one({"_id": change_id})

    @state_change("dataset_changes.delete_others")
    def delete_others(self, dataset_id: str, plan: str, since: int, until: int) -> None:
        """Delete the changes of all plans except `plan`, with numbers above `since` and up to `until`. The time that
        this takes grows with the number of changes in this range.
        """
        numbers = {"$gte": change_id(dataset_id, since + 1), "$lt": change_id(dataset_id, until + 1)}
        Repeating(self._changes).delete_many({"_id": numbers, "plan": {"$ne": plan}})

    @state_change("dataset_changes.delete")
    def delete(self, dataset_id: str, until: int | None = None) -> bool:
        """Delete a batch of the changes up to this number, or of all changes. Returns whether there may be more."""
        query = _of(dataset_id) if until is None else _of(dataset_id) | {"_id": {
            "$gt": f"{dataset_id}:", "$lt": change_id(dataset_id, until + 1)}}  # fmt: skip
        found = [one["_id"] for one in self._changes.find(query, {"_id": 1}).sort("_id", ASCENDING).limit(_BATCH)]
        Repeating(self._changes).delete_many({"_id": {"$in": found}})
        return len(found) == _BATCH

    def last_before(self, dataset_id: str, moment: datetime, until: int) -> int:
        """The highest number, up to `until`, of a change that was made before `moment`; 0 if there is none."""
        query = {"dataset": dataset_id, "at": {"$lt": moment}, "seq": {"$lte": until}}
        found = self._changes.find_one(query, {"seq": 1}, sort=[("at", DESCENDING), ("seq", DESCENDING)])
        return found["seq"] if found else 0


# --- runs


class RunStore:
    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._runs = database["dataset_runs"]
        self._documents = Documents(self._runs, reader(DatasetRun))
        self._clock = clock

    @state_change("dataset_runs.save")
    def save(self, run: DatasetRun) -> None:
        self._runs.replace_one({"_id": run.job_id}, run.model_dump(by_alias=True, exclude_none=True), upsert=True)

    @state_change("dataset_runs.change")
    def change(self, run: DatasetRun, state: RunState, **facts: Any) -> DatasetRun | None:
        """Move the run to this state. `None` if the state has changed since the run was read."""
        update = {"$set": {"state": state, "at": self._clock(), **facts}}
        found = self._runs.find_one_and_update(
            {"_id": run.job_id, "state": run.state}, update, return_document=ReturnDocument.AFTER
        )
        return self._documents.optional(found)

    @state_change("dataset_runs.ask_exports")
    def ask_exports(self, job_id: str) -> DatasetRun | None:
        """Have the exports of this run written as soon as possible. `None` if it is not published."""
        published = {"_id": job_id, "state": RunState.PUBLISHED}
        update = {"$set": {"exports_due": self._clock(), "exports_failures": 0}}
        found = self._runs.find_one_and_update(published, update, return_document=ReturnDocument.AFTER)
        return self._documents.optional(found)

    @state_change("dataset_runs.claim_exports")
    def claim_exports(self, seconds: float, but: Sequence[str] = ()) -> DatasetRun | None:
        """Claim the exports that have been due for longest, `but` not of these datasets, for this many seconds: then
        they are due again. The claim counts as a failure until `note_exports`, because it may kill the worker.
        """
        now = self._clock()
        found = self._runs.find_one_and_update(
            {"exports_due": {"$lte": now}, **({"dataset": {"$nin": list(but)}} if but else {})},
            {"$set": {"exports_due": now + timedelta(seconds=seconds)}, "$inc": {"exports_failures": 1}},
            sort=[("exports_due", ASCENDING)],
            return_document=ReturnDocument.AFTER,
        )
        return self._documents.optional(found)

    @state_change("dataset_runs.renew_exports")
    def renew_exports(self, job_id: str, time: timedelta) -> None:
        due = {"_id": job_id, "exports_due": {"$exists": True}}
        self._runs.update_one(due, {"$set": {"exports_due": self._clock() + time}})

    @state_change("dataset_runs.note_exports")
    def note_exports(
        self, job_id: str, exports: Sequence[RunExport], due: datetime | None, failures: int = 0
    ) -> None:
        """Store the outcome of the run's exports, and when they are tried again (`None`: not again)."""
        told = {"exports": [one.model_dump(exclude_none=True) for one in exports]}
        update: Document = {"$set": told, "$unset": {"exports_due": "", "exports_failures": ""}}
        if due is not None:
            update = {"$set": {**told, "exports_due": due, "exports_failures": failures}}
        Repeating(self._runs).update_one({"_id": job_id}, update)

    def held_before(self, dataset_id: str, scope: str, moment: datetime) -> list[str]:
        """The jobs of the held runs of this scope that started before `moment`."""
        query = {"dataset": dataset_id, "state": RunState.HELD, "scope": scope, "started_at": {"$lt": moment}}
        return [one["_id"] for one in self._runs.find(query, {"_id": 1})]

    @state_change("dataset_runs.supersede")
    def supersede(self, job_ids: Sequence[str]) -> None:
        """Mark these runs, if they are still held, as replaced by a later run."""
        held = {"_id": {"$in": list(job_ids)}, "state": RunState.HELD}
        Repeating(self._runs).update_many(held, {"$set": {"state": RunState.SUPERSEDED, "at": self._clock()}})

    def get(self, job_id: str) -> DatasetRun | None:
        return self._documents.find_one({"_id": job_id})

    def many(self, job_ids: Sequence[str]) -> list[DatasetRun]:
        """The runs of these jobs, without jobs that are not a run of a dataset."""
        return list(self._documents.many(self._runs.find({"_id": {"$in": list(job_ids)}})))

    def newest_of(self, job_ids: Sequence[str]) -> DatasetRun | None:
        """The run of these jobs that started last; `None` if none of them is a run of a dataset. A skipped run (its
        crawl failed or was cancelled) counts only if there is no other: it has changed nothing.
        """
        return max(
            self.many(job_ids), key=lambda run: (run.state is not RunState.SKIPPED, run.started_at), default=None
        )

    def of_dataset(
        self, dataset_id: str, limit: int, after: str | None = None, states: Collection[RunState] = ()
    ) -> tuple[list[DatasetRun], str | None]:
        """A page, newest start first, as `documents.page` returns it."""
        wanted: Document = {"dataset": dataset_id, **({"state": {"$in": list(states)}} if states else {})}
        return page(self._documents, [wanted], limit, after, field="started_at", identity="job_id")

    def figures(self, dataset: Dataset, limit: int) -> list[dict[str, Any]]:
        """The figures of the newest published complete runs since `learn_from`, the oldest first."""
        query: Document = {"dataset": dataset.id, "state": RunState.PUBLISHED, "incomplete": {"$exists": False}}
        if dataset.learn_from is not None:
            query["started_at"] = {"$gte": dataset.learn_from}
        found = self._runs.find(query, {"figures": 1}).sort([("started_at", DESCENDING), ("_id", DESCENDING)])
        return [one["figures"] for one in found.limit(limit) if one.get("figures")][::-1]

    def plans(self, dataset_id: str, since: int, until: int) -> set[str]:
        """The plans of the published runs that have changes with numbers above `since` and up to `until`."""
        query = {"dataset": dataset_id, "last_seq": {"$gt": since}, "first_seq": {"$lte": until}}
        published = self._runs.find({**query, "state": RunState.PUBLISHED}, {"plan": 1})
        return {one["plan"] for one in published}

    def first_seq(self, dataset_id: str, moment: datetime) -> int | None:
        """The number of the first change of the published runs that have ended at this moment or later."""
        ended = {"dataset": dataset_id, "state": RunState.PUBLISHED, "ended_at": {"$gte": moment}}
        found = self._runs.find({**ended, "first_seq": {"$exists": True}}, {"first_seq": 1})
        return min((one["first_seq"] for one in found), default=None)

    def datasets_with_held(self, limit: int) -> list[str]:
        """The datasets of the `limit` newest held runs, of all users."""
        found = self._runs.find({"state": RunState.HELD}, {"dataset": 1}).sort("started_at", DESCENDING).limit(limit)
        return list(dict.fromkeys(one["dataset"] for one in found))

    def held(self, dataset_ids: Sequence[str] | None) -> dict[str, int]:
        """By dataset: how many held runs there are, without datasets that have none. `None`: of all datasets."""
        of: Document = {} if dataset_ids is None else {"dataset": {"$in": list(dataset_ids)}}
        found = self._runs.find({**of, "state": RunState.HELD}, {"dataset": 1})
        counts: dict[str, int] = {}
        for one in found:
            counts[one["dataset"]] = counts.get(one["dataset"], 0) + 1
        return counts

    @state_change("dataset_runs.drop_figures")
    def drop_figures(self, dataset_id: str, kept: int) -> None:
        """Drop the figures of all runs except the `kept` newest."""
        if (oldest := self._oldest_of(dataset_id, kept)) is not None:
            old = {"dataset": dataset_id, "started_at": {"$lt": oldest}, "figures": {"$exists": True}}
            Repeating(self._runs).update_many(old, {"$unset": {"figures": ""}})

    @state_change("dataset_runs.forget")
    def forget(self, dataset_id: str, floor: int, before: datetime, kept: int) -> None:
        """Remove old runs: those that started before `before`, and whose changes have numbers up to `floor` and are
        removed already. The `kept` newest runs and held runs stay.
        """
        if (oldest := self._oldest_of(dataset_id, kept)) is not None:
            old: Document = {"dataset": dataset_id, "started_at": {"$lt": min(oldest, before)}}
            gone = [{"last_seq": {"$lte": floor}}, {"last_seq": {"$exists": False}}]
            Repeating(self._runs).delete_many({**old, "state": {"$ne": RunState.HELD}, "$or": gone})

    def _oldest_of(self, dataset_id: str, newest: int) -> datetime | None:
        """When the newest run after the `newest` newest ones started; `None` if there are no more runs than that."""
        order = [("started_at", DESCENDING), ("_id", DESCENDING)]
        found = list(self._runs.find({"dataset": dataset_id}, {"started_at": 1}).sort(order).skip(newest).limit(1))
        return found[0]["started_at"] if found else None

    def some_of(self, dataset_id: str) -> list[str]:
        """The jobs of a batch of its runs."""
        return [one["_id"] for one in self._runs.find({"dataset": dataset_id}, {"_id": 1}, limit=_BATCH)]

    @state_change("dataset_runs.delete")
    def delete(self, job_ids: Sequence[str]) -> None:
        Repeating(self._runs).delete_many({"_id": {"$in": list(job_ids)}})
