"""The actions of users on datasets: make, change and delete them, and decide on held runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from attrs import define
from pydantic_core import to_json, to_jsonable_python

from gateway.contract.crawl import DatasetOrder
from gateway.datasets.dataset import OPTIONS, Dataset, DatasetRun, RunState
from gateway.datasets.fold_queue import FoldQueue
from gateway.datasets.item_schema import schema_text
from gateway.datasets.store import DatasetStore, RunStore
from gateway.errors import ConflictError, DatasetNotFoundError, DatasetRunNotFoundError, InvalidRequestError
from gateway.stores.mongo import mongo_errors


@define(eq=False, repr=False, slots=False, kw_only=True)
class Datasets:
    _datasets: DatasetStore
    _runs: RunStore
    _queue: FoldQueue

    def find(self, name: str, user_id: str | None, projects: Collection[str] = ()) -> Dataset:
        """The user's dataset of this name. Without a user: the only dataset of this name. `projects`: one that other
        projects feed, too, is as if it did not exist. Raises `DatasetNotFoundError`, and `InvalidRequestError` if
        several users have one.
        """
        with mongo_errors():
            if user_id is None:
                return self._datasets.named(name, projects)
            found = self._datasets.get(user_id, name)
        if not found.is_of(projects):
            raise DatasetNotFoundError(name)
        return found

    def again(self, dataset: Dataset, projects: Collection[str] = ()) -> Dataset:
        """The dataset as it is now. Raises `DatasetNotFoundError` if it was deleted, or if other projects feed it by
        now.
        """
        with mongo_errors():
            found = self._datasets.by_id(dataset.id)
        if found is None or found.deleted_at is not None or not found.is_of(projects):
            raise DatasetNotFoundError(dataset.name)
        return found

    def check(self, user_id: str, order: DatasetOrder) -> None:
        """Raises `InvalidRequestError` if the user's dataset exists and has other options than the order has."""
        with mongo_errors():
            known = self._datasets.look(user_id, order.name)
        for name, value in order.options.items() if known else ():
            if getattr(known, name) != value:
                has = to_json(getattr(known, name)).decode()
                raise InvalidRequestError(
                    f"dataset.{name}",
                    f"the dataset has {has}: leave it out here, or change it with PATCH /datasets/{order.name}",
                )

    def ensure(self, user_id: str, order: DatasetOrder) -> Dataset:
        """The dataset of the order's name. If it does not exist, it is made."""
        with mongo_errors():
            return self._datasets.ensure(user_id, order.name, order.options)

    def put(self, user_id: str, name: str, options: Mapping[str, Any]) -> tuple[Dataset, bool]:
        """Make the dataset, or set exactly these options. Returns the dataset, and whether it is new. Raises the
        errors of `change`.
        """
        options = _stored(options)
        with mongo_errors():
            is_new = self._datasets.look(user_id, name) is None
            before = self._datasets.ensure(user_id, name, options)
            if not _different(before, {**OPTIONS, **options}):
                return before, is_new
            return self._change(before, {**OPTIONS, **options}), False

    def change(self, dataset: Dataset, options: Mapping[str, Any]) -> Dataset:
        """Change options. Raises `InvalidRequestError` for a new key if the dataset has items already, and for a
        schema that cannot be used; `ConflictError` if the dataset has changed meanwhile.
        """
        return self._change(dataset, _stored(options))

    def _change(self, dataset: Dataset, options: Mapping[str, Any]) -> Dataset:
        changes = _different(dataset, options)
        if "key" in changes and dataset.head_seq:
            raise InvalidRequestError(
                "key", "cannot be changed: the dataset has items, and each is known by its key. Make another dataset"
            )
        with mongo_errors():
            return self._datasets.change(dataset, changes) if changes else dataset

    def delete(self, dataset: Dataset) -> None:
        """The name is free at once; records, changes and runs are removed soon after."""
        with mongo_errors():
            self._datasets.mark_deleted(dataset)

    def run(self, dataset: Dataset, job_id: str) -> DatasetRun:
        """Raises `DatasetRunNotFoundError`."""
        with mongo_errors():
            run = self._runs.get(job_id)
        if run is None or run.dataset != dataset.id:
            raise DatasetRunNotFoundError(job_id)
        return run

    def accept(self, dataset: Dataset, job_id: str, by: str | None = None, *, is_normal: bool = False) -> DatasetRun:
        """Accept a held run, so that it is published. Repeated calls are harmless. `is_normal`: learn anew what is
        normal, from this run on. Raises `DatasetRunNotFoundError`, `ConflictError`.
        """
        run = self.run(dataset, job_id)
        if is_normal and run.state is RunState.HELD:
            with mongo_errors():
                self._datasets.learn_from(dataset, run.started_at)
        if not (run.accepted and run.state is RunState.HELD):
            run = self._decide(run, RunState.HELD, accepted=True, accepted_by=by)
        with mongo_errors():
            self._queue.again(job_id)
        return run

    def reject(self, dataset: Dataset, job_id: str, by: str | None = None) -> DatasetRun:
        """Reject a held run: it is never published. Repeated calls are harmless. Raises `DatasetRunNotFoundError`,
        `ConflictError`.
        """
        run = self.run(dataset, job_id)
        if run.state is not RunState.REJECTED:
            run = self._decide(run, RunState.REJECTED, rejected_by=by)
        with mongo_errors():
            self._queue.done(job_id)
        return run

    def export(self, dataset: Dataset, job_id: str) -> DatasetRun:
        """Have the missing exports of a published run written. Repeated calls are harmless. Raises
        `DatasetRunNotFoundError`, `ConflictError`.
        """
        if not dataset.exports:
            raise ConflictError("the dataset has no exports: set some with PATCH first")
        run = self.run(dataset, job_id)
        with mongo_errors():
            asked = self._runs.ask_exports(job_id)
        if asked is None:
            raise ConflictError(f"only a published run is exported (it is {run.state})")
        return asked

    def _decide(self, run: DatasetRun, state: RunState, **facts: Any) -> DatasetRun:
        if run.state is not RunState.HELD:
            raise ConflictError(f"only a held run is decided on (it is {run.state})")
        with mongo_errors():
            decided = self._runs.change(run, state, **facts)
        if decided is None:
            raise ConflictError("the run has changed meanwhile; look at it again")
        return decided


def _stored(options: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(options)
    if (schema := given.get("item_schema")) is not None:
        given["item_schema"] = schema_text(schema)
    return given


def _different(dataset: Dataset, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options whose values differ from the dataset's, as they are stored."""
    plain = to_jsonable_python(dict(options))
    return {name: value for name, value in plain.items() if to_jsonable_python(getattr(dataset, name)) != value}
