"""A run that collapses while it goes on is paused before it has fetched the rest in vain."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Platform
from dataset_runs import DatasetRuns
from jobs import make_job
from test_completion import exit_of, running
from test_pausing import stopped

from gateway.contract.crawl import CrawlSpec
from gateway.contract.records import Progress
from gateway.datasets.dataset import RunState
from gateway.datasets.fold_queue import FoldQueue
from gateway.datasets.judging import HOLDS_AFTER
from gateway.datasets.store import DatasetStore, RunStore
from gateway.datasets.watching import RunWatch
from gateway.items.items import Item, ItemStore
from gateway.jobs.completion import Pausing
from gateway.jobs.job import Job, JobStatus, StepKind
from gateway.nodes.health import HeartbeatStore

ORDER: dict[str, Any] = {"name": "prices", "key": ["sku"]}


class Watched:
    """A dataset with runs, and a crawl that is to become its next run."""

    def __init__(self, platform: Platform, runs: int) -> None:
        self.platform = platform
        self.runs = DatasetRuns(platform.database)
        for _ in range(runs):
            assert self.runs.run(rows(60)) is RunState.PUBLISHED
        spec = CrawlSpec(spider="offers", start_urls=("https://shop.test/",), dataset=ORDER)
        self.job = running(platform, user_id=self.runs.user, spec=spec)
        self.found = 0
        self.pausing = Pausing(jobs=platform.jobs, completion=platform.completion, waker=platform)

    def watch(self) -> RunWatch:
        """The watch of a worker that has just started."""
        database, clock = self.platform.database, self.platform.clock
        return RunWatch(
            jobs=self.platform.sweeps, queue=FoldQueue(database, clock), items=ItemStore(database),
            datasets=DatasetStore(database), runs=RunStore(database), pausing=self.pausing,
            heartbeats=HeartbeatStore(database, clock), clock=clock,
        )  # fmt: skip

    def finds(self, items: list[dict[str, Any]]) -> None:
        job = self.now
        ItemStore(self.platform.database).insert(
            [Item(job.id, job.attempt, self.found + n, row) for n, row in enumerate(items, 1)]
        )
        self.found += len(items)

    @property
    def now(self) -> Job:
        return self.platform.jobs.get(self.job.id)

    @property
    def run(self) -> Any:
        return RunStore(self.platform.database).get(self.job.id)


def rows(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"sku": f"s{n}", "price": n + 1.5, "title": f"thing {n}", **fields} for n in range(count)]


@pytest.fixture
def watched(platform: Platform) -> Watched:
    return Watched(platform, HOLDS_AFTER)


def test_a_run_whose_dataset_cannot_be_read_keeps_no_other_from_being_paused(
    platform: Platform, watched: Watched
) -> None:
    # whichever of them is looked at first
    for number in range(4):
        spec = CrawlSpec(spider="offers", start_urls=("https://x.test/",), dataset={**ORDER, "name": f"odd{number}"})
        attempt = {"attempt": 1, "node": "n1", "dispatched_at": platform.clock()}
        other = make_job(user_id="bob", spec=spec, status=JobStatus.RUNNING, attempt=1, attempts={"1": attempt})
        platform.jobs.insert(other)
        assert spec.dataset is not None
        DatasetStore(platform.database).ensure("bob", spec.dataset.name, spec.dataset.options)
    platform.database["datasets"].update_many({"user_id": "bob"}, {"$set": {"key": 7}})
    watch = watched.watch()
    watched.finds(rows(60, price=None))
    watch.look()
    watch.look()
    assert watched.now.pause_requested_at


def test_a_run_that_collapses_half_way_is_paused_and_says_why(platform: Platform, watched: Watched) -> None:
    watch = watched.watch()
    watched.finds(rows(30))
    watch.look()
    assert (watched.now.pause_requested_at, watched.run) == (None, None)
    watched.finds(rows(60, price=None))
    watch.look()
    asked = watched.now
    assert asked.pause_requested_at is not None
    (step,) = [step for step in asked.history if step.kind is StepKind.PAUSE_REQUESTED]
    assert step.message
    assert "for dataset prices it is not normal" in step.message
    paused = stopped(platform, asked)
    assert paused.status is JobStatus.PAUSED
    assert paused.message == f"paused: {step.message} When it is resumed, it continues where it stopped, on node n1"
    assert (watched.run.state, [(one.code, one.field) for one in watched.run.findings]) == (
        RunState.PAUSED, [("field_collapsed", "price")],
    )  # fmt: skip


def test_the_project_of_a_run_that_is_paused_is_noted_before_the_run_can_be_seen(
    platform: Platform, watched: Watched
) -> None:
    datasets = DatasetStore(platform.database)
    platform.database["jobs"].update_one({"_id": watched.job.id}, {"$set": {"spec.project": "other"}})
    watched.finds(rows(60, price=None))
    watched.watch().look()
    assert watched.run.state is RunState.PAUSED
    dataset = datasets.get(watched.runs.user, "prices")
    assert set(dataset.projects) == {"default", "other"}
    assert not dataset.is_of(["default"])


def test_one_that_somebody_resumes_is_not_paused_again_and_is_judged_at_its_end(
    platform: Platform, watched: Watched
) -> None:
    watch = watched.watch()
    watched.finds(rows(60, price=None))
    watch.look()
    stopped(platform, watched.now)
    watched.pausing.resume(watched.job.id)
    platform.heartbeat("a0")
    assert platform.dispatch.fill() == 1
    watched.finds(rows(60, price=None))
    for each in (watch, watched.watch()):
        each.look()
    assert watched.now.pause_requested_at is None
    exit_of(platform, watched.now)
    platform.completion.conclude(watched.job.id)
    assert watched.runs.fold() == [RunState.HELD]


@pytest.mark.parametrize("runs", [0, HOLDS_AFTER - 1])
def test_nothing_is_paused_before_enough_is_known(platform: Platform, runs: int) -> None:
    watched = Watched(platform, runs)
    watched.finds(rows(60, price=None))
    watched.watch().look()
    assert (watched.now.pause_requested_at, watched.run) == (None, None)


def test_what_would_begin_anew_is_not_paused(platform: Platform, watched: Watched) -> None:
    platform.jobs.record_progress(watched.job.id, 1, Progress(can_go_on=False))
    watched.finds(rows(60, price=None))
    watched.watch().look()
    assert (watched.now.pause_requested_at, watched.run) == (None, None)


def test_block_pages_pause_a_run(platform: Platform, watched: Watched) -> None:
    watch = watched.watch()
    watch.look()
    platform.jobs.record_progress(watched.job.id, 1, Progress(answered_4xx=80, answered_2xx=2))
    watch.look()
    assert [one.code for one in watched.run.findings] == ["block_pages"]


def test_workers_share_the_runs_and_one_that_is_gone_has_none(platform: Platform, watched: Watched) -> None:
    heartbeats = HeartbeatStore(platform.database, platform.clock)
    ids = [f"job {n}" for n in range(100)]
    one, other = watched.watch(), watched.watch()
    one._name, other._name = "worker:a", "worker:b"
    for watch in (one, other):
        heartbeats.beat(watch._name)
    mine, others = one._mine(ids), other._mine(ids)
    assert sorted(mine + others) == sorted(ids)
    assert 20 < len(mine) < 80
    platform.database["heartbeats"].delete_one({"_id": "worker:b"})
    assert one._mine(ids) == ids
