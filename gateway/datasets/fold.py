"""Folds a run into its dataset in five steps: plan, guard, write, publish, apply. A worker may die between any two of
these steps; the next fold then repeats the step or goes on.

The order of the steps makes this safe. Nothing is written before the guard has decided. Changes are written before
they are published, and are invisible until then. One compare-and-set publishes all changes of a run. Only published
changes are applied to the records, and the next run is planned only after all of them are applied.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import structlog
from attrs import define

from gateway.clock import Clock, utc_now
from gateway.contract.outbox import STATS_LEFT_OUT
from gateway.contract.reasons import Reason
from gateway.contract.records import Progress
from gateway.contract.seen_pages import SKIPPED_SEEN
from gateway.datasets.dataset import (
    FEW_REMOVED,
    Dataset,
    DatasetRun,
    Incomplete,
    ItemChange,
    RunState,
    StoredFinding,
    digest,
    scope_of,
)
from gateway.datasets.figures import RunFigures
from gateway.datasets.fold_plan import BATCH, Plan, Planner, RunItems, changes_of
from gateway.datasets.fold_queue import LEASE_SECONDS, FoldQueue
from gateway.datasets.item_schema import SchemaCheck
from gateway.datasets.judging import LEARNED_RUNS, FindingCode, Normal, RunFinding, judge, learn
from gateway.datasets.read_ahead import read_ahead
from gateway.datasets.store import ChangeStore, DatasetStore, RecordStore, RunStore
from gateway.items.items import ItemStore
from gateway.jobs.job import GOOD_STATUSES, Job, JobStatus
from gateway.stores.mongo import within

log = structlog.get_logger()

#: Scrapy's finish reason of a crawl that has done all there was to do.
_FINISHED = "finished"
#: The code of the finding that a run would remove too many items.
REMOVALS = "removals"
#: Changes of abandoned plans are deleted in ranges of this many numbers.
_SWEPT = 5000
#: Seconds that one batch of reads or writes may take.
_BATCH_SECONDS = 60.0


class LeaseLostError(Exception):
    """Another worker has the lease of the dataset now, or the dataset's options have changed."""


@define(eq=False, repr=False, slots=False, kw_only=True)
class Fold:
    _items: ItemStore
    _datasets: DatasetStore
    _records: RecordStore
    _changes: ChangeStore
    _runs: RunStore
    _queue: FoldQueue
    #: Seconds.
    _lease: float = LEASE_SECONDS
    _clock: Clock = utc_now

    def fold(self, dataset: Dataset, job: Job) -> DatasetRun:
        """Fold the run of this job, which has ended, into the leased dataset. Returns what became of the run.

        Raises `LeaseLostError`, PyMongo's errors, `OSError`.
        """
        dataset = self.settle(dataset)
        known = self._runs.get(job.id)
        if known is not None and known.state in {RunState.PUBLISHED, RunState.REJECTED, RunState.SUPERSEDED}:
            return known
        run = self._begun(dataset, job, known)
        closed = _why_not(dataset, job, run)
        if closed is not None:
            state, message = closed
            return self._saved(run, state=state, message=message)
        with tempfile.TemporaryDirectory(prefix="dataset-") as folder:
            return self._carry_out(dataset, job, run, Path(folder))

    def settle(self, dataset: Dataset) -> Dataset:
        """Finish the steps after the publication of the last run: its changes are applied to the records. Raises
        `LeaseLostError`.
        """
        if dataset.is_applied or dataset.head_run is None:
            return dataset
        run = self._runs.get(dataset.head_run)
        if run is not None and run.state is RunState.PLANNED:
            run = self._runs.change(run, RunState.PUBLISHED, **self._exports_due(dataset)) or run
        if run is not None:
            self._delete_others(dataset, run)
            self._supersede(dataset, run)
        self._apply(dataset)
        if not self._datasets.applied(dataset):
            raise LeaseLostError(dataset.id)
        return dataset.model_copy(update={"applied_seq": dataset.head_seq})

    def _delete_others(self, dataset: Dataset, run: DatasetRun) -> None:
        """Delete the changes of abandoned plans that have the same numbers as the changes of this published run."""
        until = run.last_seq or 0
        for since in range((run.first_seq or 1) - 1, until, _SWEPT):
            self._renew(dataset)
            self._changes.delete_others(dataset.id, run.plan or "", since, min(since + _SWEPT, until))

    def _supersede(self, dataset: Dataset, run: DatasetRun) -> None:
        """Close the held runs of the same scope that started before this one. Nobody has to decide on them any more,
        and retention may remove their items.
        """
        if held := self._runs.held_before(dataset.id, run.scope, run.started_at):
            # before the next line: once the runs are superseded, `held_before` does not find them again
            self._queue.release(held)
            self._runs.supersede(held)

    def _apply(self, dataset: Dataset) -> None:
        for found in read_ahead(self._to_apply(dataset)):
            self._renew(dataset)
            with within(_BATCH_SECONDS):
                self._records.apply(found)

    def _to_apply(self, dataset: Dataset) -> Iterator[list[ItemChange]]:
        since = dataset.applied_seq
        while found := self._changes.of_plan(dataset.id, dataset.head_plan or "", since, dataset.head_seq, BATCH):
            yield found
            since = found[-1].seq

    def _begun(self, dataset: Dataset, job: Job, known: DatasetRun | None) -> DatasetRun:
        ended = job.finished_at or self._clock()
        excused = excused_pages(dataset, job)
        incomplete = None if excused else why_incomplete(job)
        return DatasetRun.of(
            dataset,
            job.id,
            state=RunState.PLANNED,
            scope=scope_of(job.spec),
            started_at=job.started_at or ended,
            ended_at=ended,
            incomplete=incomplete,
            incomplete_message=job.message if incomplete in _SAID_BY_JOB else None,
            excused=excused,
            accepted=known.accepted if known else False,
            accepted_by=known.accepted_by if known else None,
            at=self._clock(),
        )

    def _carry_out(self, dataset: Dataset, job: Job, run: DatasetRun, folder: Path) -> DatasetRun:
        items, figures = RunItems(self._items, job.id, job.newest), figures_of(dataset, job)
        check = SchemaCheck.of(dataset.pinned_schema)
        planner = Planner(
            dataset=dataset,
            run=run,
            items=items,
            records=self._records,
            folder=folder,
            beat=_Beat(lambda: self._renew(dataset), self._lease / 4),
            look=figures.observe,
            check=check,
        )
        plan = planner.plan()
        findings = [*too_many_removed(dataset, plan), *self._not_normal(dataset, run, figures)]
        run = run.model_copy(
            update={
                "counts": plan.counts,
                "left_out": plan.left_out,
                "schema_breaks": check.breaks if check else [],
                "findings": findings,
                "figures": figures.to_dict(),
            }
        )
        holding = [one.message for one in findings if one.holds]
        if holding and not run.accepted:
            return self._saved(run, state=RunState.HELD, message=holding[0])
        return self._publish(dataset, run, plan, planner)

    def _not_normal(self, dataset: Dataset, run: DatasetRun, figures: RunFigures) -> list[StoredFinding]:
        normal = normal_of(dataset, self._runs)
        found = judge(figures, normal)
        if run.incomplete is not None:
            found = [one for one in found if one.code not in OF_WHOLE_RUNS]
        return to_stored(found, normal)

    def _publish(self, dataset: Dataset, run: DatasetRun, plan: Plan, planner: Planner) -> DatasetRun:
        # the id depends on everything that the plan depends on, so the same plan gets the same id
        name = digest([run.job_id, dataset.head_seq, dataset.rev, dataset.runs, run.accepted])
        first, last = dataset.head_seq + 1, dataset.head_seq + plan.size
        run = self._saved(run, plan=name, first_seq=first, last_seq=last)
        for changes in read_ahead(changes_of(plan, planner, name)):
            with within(_BATCH_SECONDS):
                self._changes.write(changes)
        self._renew(dataset)
        published = self._datasets.publish(dataset, run)
        if published is None:
            raise LeaseLostError(dataset.id)
        log.info("run_published", dataset=dataset.id, job_id=run.job_id, **run.counts.model_dump())
        if plan.size:
            self.settle(published)
        else:
            # a run without changes has nothing to apply, so `settle` would not set its state
            self._runs.change(run, RunState.PUBLISHED, **self._exports_due(dataset))
        return run.model_copy(update={"state": RunState.PUBLISHED})

    def _exports_due(self, dataset: Dataset) -> dict[str, Any]:
        return {"exports_due": self._clock()} if dataset.exports else {}

    def _saved(self, run: DatasetRun, **facts: Any) -> DatasetRun:
        run = run.model_copy(update={**facts, "at": self._clock()})
        self._runs.save(run)
        return run

    def _renew(self, dataset: Dataset) -> None:
        if not self._datasets.renew(dataset, self._lease):
            raise LeaseLostError(dataset.id)


class _Beat:
    """Renews a lease at most once every `seconds`, however often it is called."""

    def __init__(self, renew: Callable[[], None], seconds: float) -> None:
        self._renew = renew
        self._seconds = seconds
        self._next = 0.0

    def __call__(self) -> None:
        if (now := time.monotonic()) >= self._next:
            self._next = now + self._seconds
            self._renew()


# --- which runs are complete, and which are folded


#: The reasons that the job's message explains.
_SAID_BY_JOB = frozenset({Incomplete.NOT_FINISHED, Incomplete.OWN_LIMIT, Incomplete.ENDED_EARLY})


def excused_pages(dataset: Dataset, job: Job) -> list[str]:
    """The pages that failed, if these are all that kept the run from being complete, and all of them may fail."""
    end = job.current.exit if job.current else None
    if not dataset.may_fail or job.status is not JobStatus.PARTIAL or end is None or end.report is None:
        return []
    errors = end.report.errors
    # an error with a kind is none of a page: an exception of `start`, a refused item
    pages = [one.get("url", "") for one in errors if "kind" not in one]
    # only the first errors are in a report
    is_all = len(pages) == len(errors) == end.report.progress.errors_count
    is_expected = job.reason not in {Reason.EXPECTATION_BROKEN, Reason.CLOSED_EARLY}
    if not is_all or not is_expected or not set(pages) <= set(dataset.may_fail):
        return []
    return pages if why_incomplete(job, has_succeeded=True) is None else []


def why_incomplete(job: Job, *, has_succeeded: bool = False) -> Incomplete | None:
    """Why the run may not have seen all items of its scope; `None` if the run is complete. `has_succeeded`: whether
    a partial crawl counts as one that has succeeded.
    """
    end = job.current.exit if job.current else None
    report = end.report if end else None
    if (job.status is not JobStatus.FINISHED and not has_succeeded) or end is None or report is None:
        return Incomplete.NOT_FINISHED
    if end.items_lost is not None:
        return Incomplete.ITEMS_LOST
    if job.reason is Reason.OWN_LIMIT:
        return Incomplete.OWN_LIMIT
    # without its stats, which were too long to be stored, a crawl may have skipped seen pages
    if not {SKIPPED_SEEN, STATS_LEFT_OUT}.isdisjoint(report.stats):
        return Incomplete.SEEN_SKIPPED
    return None if report.finish_reason == _FINISHED and end.stopped_by is None else Incomplete.ENDED_EARLY


def _why_not(dataset: Dataset, job: Job, run: DatasetRun) -> tuple[RunState, str] | None:
    """The state of a run that is not folded, and the reason; `None` if the run can be folded."""
    if job.status not in GOOD_STATUSES:
        return RunState.SKIPPED, f"the crawl is {job.status}: {job.message or job.reason}"
    if job.items_removed_at is not None:
        return RunState.FAILED, "its items were removed before it was taken up"
    head = dataset.heads.get(run.scope)
    if head is not None and run.started_at < head:
        return RunState.SUPERSEDED, "a run that started later is published already"
    return None


def too_many_removed(dataset: Dataset, plan: Plan) -> list[StoredFinding]:
    """One finding if the run misses more items than the dataset's `drop_guard` allows; otherwise empty."""
    gone = plan.counts.removed + plan.counts.missed
    share = gone / plan.known if plan.known else 0.0
    if gone <= FEW_REMOVED or share <= dataset.drop_guard:
        return []
    message = f"{gone} of {plan.known} items are missing: {share:.0%}, and {dataset.drop_guard:.0%} is the limit"
    return [StoredFinding(code=REMOVALS, normal=dataset.drop_guard, here=round(share, 4), message=message)]


# --- what is normal


#: Findings that do not count for an incomplete run: its number of items and its duration cannot be normal.
OF_WHOLE_RUNS = frozenset(
    {FindingCode.ITEMS_DROPPED, FindingCode.ITEMS_RISEN, FindingCode.SLOWER, FindingCode.FAILURES_UP}
)


def figures_of(dataset: Dataset, job: Job) -> RunFigures:
    """The figures of a run before its items are observed: its duration and the counts of its requests."""
    figures = RunFigures(empty_values=frozenset(dataset.empty_values))
    if job.started_at is not None and job.finished_at is not None:
        figures.seconds = max(0.0, (job.finished_at - job.started_at).total_seconds())
    note_progress(figures, job.progress)
    return figures


def note_progress(figures: RunFigures, progress: Progress | None) -> None:
    if progress is not None:
        answered = [getattr(progress, f"answered_{kind}xx") for kind in (2, 3, 4, 5)]
        figures.answered(
            pages=progress.completed_pages,
            failed=progress.errors_count,
            responses=sum(answered),
            refused=sum(answered[2:]),
        )


def to_stored(findings: Sequence[RunFinding], normal: Normal) -> list[StoredFinding]:
    return [
        StoredFinding(
            code=one.code,
            field=one.field,
            type=one.type,
            normal=round(one.normal, 6),
            here=round(one.value, 6),
            holds=normal.holds([one]),
            message=one.sentence,
        )
        for one in findings
    ]


def normal_of(dataset: Dataset, runs: RunStore) -> Normal:
    """What is normal for the dataset, learned from its runs so far."""
    return learn(known_figures(dataset, runs))


def known_figures(dataset: Dataset, runs: RunStore) -> list[RunFigures]:
    """The figures of the runs from which is learned what is normal, the oldest first."""
    known = runs.figures(dataset, LEARNED_RUNS)
    return [RunFigures.from_dict(one, dataset.empty_values) for one in known]
