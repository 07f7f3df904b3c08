"""Watches runs while they go on, and pauses a run that has collapsed: its items so far are kept, and it fetches no
more pages in vain.

Each worker computes from the names of the living workers which runs it watches, so nothing is written to divide the
runs. If two workers watch the same run for a moment, both come to the same result, and the second pause is refused.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from datetime import timedelta

import structlog
from attrs import Factory, define, field

from gateway.clock import Clock, utc_now
from gateway.datasets.dataset import Dataset, DatasetRun, RunState, StoredFinding, digest, scope_of
from gateway.datasets.figures import RunFigures
from gateway.datasets.fold import normal_of, note_progress, to_stored
from gateway.datasets.fold_plan import BATCH
from gateway.datasets.fold_queue import FoldQueue
from gateway.datasets.judging import Normal, Stage, judge_running
from gateway.datasets.store import DatasetStore, RunStore
from gateway.errors import ConflictError
from gateway.items.items import ItemStore
from gateway.jobs.completion import Pausing
from gateway.jobs.job import Job
from gateway.jobs.messages import about
from gateway.jobs.queries import JobSweeps
from gateway.nodes.health import WORKER, HeartbeatStore, process_name
from gateway.repeated_work import Isolation

log = structlog.get_logger()

#: One worker watches at most this many runs at the same time, the oldest first.
MOST_WATCHED = 100
#: One round reads at most this many batches of items of each run, so that a round does not take long.
_BATCHES = 10
#: A worker without a heartbeat for this long is taken for dead, and the others watch its runs.
_AWAY = timedelta(seconds=60)


@define
class _Watched:
    attempt: int
    #: The dataset of the run; `None` if the run must not be paused, or was paused already.
    dataset: Dataset | None = None
    normal: Normal = Factory(Normal)
    figures: RunFigures = Factory(RunFigures)
    #: The id of the item that was read last.
    after: str | None = None


@define(eq=False, repr=False, slots=False, kw_only=True)
class RunWatch:
    _jobs: JobSweeps
    _queue: FoldQueue
    _items: ItemStore
    _datasets: DatasetStore
    _runs: RunStore
    _pausing: Pausing
    _heartbeats: HeartbeatStore
    _clock: Clock = utc_now
    #: The name of this worker.
    _name: str = field(init=False, factory=lambda: process_name(WORKER))
    #: By job id.
    _watched: dict[str, _Watched] = field(init=False, factory=dict)
    _apart: Isolation = field(init=False, factory=lambda: Isolation("running_datasets"))
    #: The job that was looked at last.
    _last: str = field(init=False, default="")

    def look(self) -> None:
        """Check the items that this worker's runs have found since the last round. A run that fails is left alone for
        a while, and the next round begins after the run where the time of this one was over. Raises PyMongo's errors.
        """
        mine = self._mine(self._queue.going_on())[:MOST_WATCHED]
        self._watched = {job_id: self._watched[job_id] for job_id in mine if job_id in self._watched}
        going_on = ((job_id, job) for job_id, job in self._jobs.jobs(mine).items() if job and job.stop_reason is None)
        jobs = dict(sorted(going_on))
        first = bisect_right(names := list(jobs), self._last)
        self._apart.each(((name, jobs[name]) for name in (*names[first:], *names[:first])), self._look_next)

    def _mine(self, job_ids: Sequence[str]) -> list[str]:
        """The jobs that this worker watches, by rendezvous hashing: when a worker starts or ends, only its own jobs
        move to or from other workers.
        """
        if not job_ids:
            return []
        since = self._clock() - _AWAY
        workers = {one.name for one in self._heartbeats.all(f"{WORKER}:") if one.at >= since} | {self._name}
        return [job_id for job_id in job_ids if max(workers, key=lambda name: digest([name, job_id])) == self._name]

    def _look_next(self, job: Job) -> None:
        self._last = job.id
        with about(job):
            self._look_at(job)

    def _look_at(self, job: Job) -> None:
        watched = self._watched.get(job.id)
        if watched is None or watched.attempt != job.newest:
            watched = self._watched[job.id] = self._begin(job)
        if watched.dataset is None:
            return
        for _ in range(_BATCHES):
            found = self._items.page(job.id, watched.attempt, watched.after, BATCH)
            for item in found:
                watched.figures.observe(item.row)
            if found:
                watched.after = found[-1].id
            if len(found) < BATCH:
                break
        note_progress(watched.figures, job.progress)
        findings = judge_running(watched.figures, watched.normal)
        if watched.normal.holds(findings):
            self._pause(job, watched.dataset, to_stored(findings, watched.normal))
            watched.dataset = None

    def _begin(self, job: Job) -> _Watched:
        """Start to watch a run. A run that was paused for its findings and then resumed is not paused again. A run
        that would start over when it is resumed is not paused either, but judged at its end.
        """
        unwatched = _Watched(job.newest)
        order = job.spec.dataset
        dataset = self._datasets.look(job.user_id, order.name) if order else None
        goes_on = job.progress is None or job.progress.can_go_on is not False
        if dataset is None or not goes_on or self._runs.get(job.id) is not None:
            return unwatched
        normal = normal_of(dataset, self._runs)
        if normal.stage is not Stage.HOLDING:
            return unwatched
        return _Watched(job.newest, dataset, normal, RunFigures(empty_values=frozenset(dataset.empty_values)))

    def _pause(self, job: Job, dataset: Dataset, findings: list[StoredFinding]) -> None:
        message, now = next(one.message for one in findings if one.holds), self._clock()
        run = DatasetRun.of(
            dataset,
            job.id,
            state=RunState.PAUSED,
            scope=scope_of(job.spec),
            started_at=job.started_at or now,
            ended_at=now,
            findings=findings,
            message=message,
            at=now,
        )
        self._datasets.note_project(dataset, job.spec.project)
        # before the pause, so that users can see its reason; if the pause fails, the run is judged at its end
        self._runs.save(run)
        try:
            self._pausing.pause(job.id, why=f"for dataset {dataset.name} it is not normal: {message}")
        except ConflictError as error:
            log.info("run_not_paused", dataset=dataset.id, job_id=job.id, error=str(error))
        else:
            log.info("run_paused", dataset=dataset.id, job_id=job.id, findings=[one.code for one in findings])
