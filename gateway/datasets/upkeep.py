"""Removes old changes of datasets once their retention is over, and, of old runs, first the figures and later the
whole run.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from attrs import define, field

from gateway.datasets.dataset import Dataset
from gateway.datasets.judging import LEARNED_RUNS
from gateway.datasets.store import ChangeStore, DatasetStore, RunStore
from gateway.repeated_work import Isolation

#: Datasets that one round cleans up; the next round goes on with the others.
_ROUND = 200
#: The number of runs whose figures are kept. It is larger than `LEARNED_RUNS`, because only complete runs are learned
#: from.
KEPT_FIGURES = 3 * LEARNED_RUNS


@define(eq=False, repr=False, slots=False, kw_only=True)
class DatasetUpkeep:
    _datasets: DatasetStore
    _changes: ChangeStore
    _runs: RunStore
    #: The dataset after which the next round goes on.
    _after: str = field(init=False, default="")
    _apart: Isolation = field(init=False, factory=lambda: Isolation("dataset_upkeep"))

    def run(self, before: datetime | None, is_over: Callable[[], bool]) -> None:
        """Remove changes and runs that are older than `before`; `None`: keep all of them. A dataset that fails is
        left alone for a while. Raises an error only if MongoDB cannot be reached.
        """
        found = self._datasets.next_after(self._after, _ROUND)
        for dataset in found:
            if is_over():
                return
            # before its turn, so that the next round begins with the others even if this one takes all of the time
            self._after = dataset.id
            self._apart.each([(dataset.id, dataset)], lambda one: self._keep_up(one, before, is_over))
        if len(found) < _ROUND:
            self._after = ""

    def _keep_up(self, dataset: Dataset, before: datetime | None, is_over: Callable[[], bool]) -> None:
        self._runs.drop_figures(dataset.id, KEPT_FIGURES)
        if before is not None:
            self._forget(dataset, before, is_over)

    def _forget(self, dataset: Dataset, before: datetime, is_over: Callable[[], bool]) -> None:
        floor = max(dataset.floor_seq, self._changes.last_before(dataset.id, before, dataset.applied_seq))
        if floor > dataset.floor_seq:
            # before the changes are removed, so that no reader misses changes without an error
            self._datasets.raise_floor(dataset, floor)
        while floor and self._changes.delete(dataset.id, floor) and not is_over():
            pass
        self._runs.forget(dataset.id, floor, before, KEPT_FIGURES)
