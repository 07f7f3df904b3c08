from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
import redis
from conftest import Platform
from jobs import assigned, make_job
from stores import free_port

from gateway import clock
from gateway.clock import VERDICT_SECONDS, remaining, utc_now
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.errors import BudgetSpentError
from gateway.jobs.completion import Cancellation, Completion
from gateway.jobs.dedupe import DedupeRelease
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.messages import ENQUEUE_CRAWL, FINISH_CRAWL, EventPublisher
from gateway.signals.delivering import Webhooks
from gateway.stores.redis import dedupe_key
from gateway.worker.ended_attempts import EndedAttempts


def running(platform: Platform, **fields: Any) -> Job:
    job = make_job(**fields)
    platform.jobs.insert(job)
    platform.heartbeat()
    assert platform.dispatch.fill() == 1
    return platform.jobs.get(job.id)


def exit_of(platform: Platform, job: Job, *, pages: int = 3, **facts: Any) -> None:
    report = SpiderReport(
        finish_reason="finished", progress=Progress(completed_pages=pages), ended_at=platform.clock()
    )
    described = {"attempt": job.attempt, "ended_at": platform.clock(), "exit_code": 0, "report": report, **facts}
    platform.completion.record_exit(AttemptId(job.id, job.attempt), ExitReport.model_validate(described), 77)


def test_facts_come_first_then_a_wake_then_the_end_and_its_consequences(platform: Platform) -> None:
    job = running(platform)
    exit_of(platform, job)
    assert (FINISH_CRAWL, job.id) in platform.woken
    assert platform.jobs.get(job.id).status is JobStatus.RUNNING
    platform.completion.conclude(job.id)
    ended = platform.jobs.get(job.id)
    assert (ended.status, ended.settled, platform.slots()) == (JobStatus.FINISHED, True, [])
    assert (ENQUEUE_CRAWL,) in platform.woken


def test_the_sweeper_alone_brings_a_job_to_its_end(platform: Platform) -> None:
    job = running(platform)
    exit_of(platform, job)
    platform.sweeper.sweep()
    assert platform.jobs.get(job.id).settled


def test_a_crashed_attempt_is_tried_again_until_the_job_is_dead(platform: Platform) -> None:
    job = running(platform, max_retries=2)
    for attempt in (1, 2, 3):
        assert platform.jobs.get(job.id).attempt == attempt
        exit_of(platform, platform.jobs.get(job.id), report=None, exit_code=1, log_tail="ImportError: x")
        platform.completion.conclude(job.id)
        platform.ahead += timedelta(minutes=10)
        platform.heartbeat()
        platform.reconcile()
        platform.dispatch.fill()
    ended = platform.jobs.get(job.id)
    assert (ended.status, ended.dead, ended.attempt, ended.failures) == (JobStatus.ERROR, True, 3, 2)
    whole = platform.jobs.attempts.complete(ended)
    assert [whole.attempts[str(n)].status for n in (1, 2, 3)] == [JobStatus.ERROR] * 3


@pytest.mark.parametrize("step", range(4))
def test_a_start_counts_at_whichever_step_of_it_the_dispatch_is_recorded(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The node's tailer is often quicker than the worker that gets the node's answer."""
    job = make_job()
    platform.jobs.insert(job)
    assignment = assigned(platform.queue, job)
    documents, began = platform.jobs._documents, platform.clock()
    ask, steps = documents.find_one_and_update, iter(range(99))

    def recorded_in_between(*asked: Any) -> Job | None:
        if next(steps) == step:
            monkeypatch.setattr(documents, "find_one_and_update", ask)
            assert platform.jobs.mark_running(job.id, assignment)
        return ask(*asked)

    monkeypatch.setattr(documents, "find_one_and_update", recorded_in_between)
    platform.completion.attempt_started(AttemptId(job.id, 1), began)
    after = platform.jobs.get(job.id)
    assert (after.status, after.started_at, after.attempts["1"].started_at) == (JobStatus.RUNNING, began, began)


SHUT_DOWN = SpiderReport(finish_reason="shutdown", progress=Progress(completed_pages=1), ended_at=utc_now())


@pytest.mark.parametrize(
    ("facts", "spared"),
    [
        pytest.param({"report": None, "exit_code": None, "stopped_by": "shutdown"}, 8, id="Scrapyd stopped"),
        pytest.param({"report": SHUT_DOWN}, 8, id="Scrapyd stopped, and the spider said so"),
        pytest.param({"report": None, "exit_code": None, "refused": "stale"}, 8, id="never started"),
        pytest.param({"report": None, "exit_code": None, "lost": True}, 2, id="lost with its node"),
        pytest.param({"report": None, "exit_code": None, "lost": True, "signal": 9}, 2, id="no memory on its node"),
        pytest.param({"report": None, "exit_code": None, "signal": 9}, 0, id="killed"),
        pytest.param({"report": None, "exit_code": None, "stopped_by": "memory"}, 0, id="its memory limit"),
    ],
)
def test_what_its_node_did_to_an_attempt_costs_no_retry_up_to_a_number(
    platform: Platform, facts: dict[str, Any], spared: int
) -> None:
    job = running(platform, max_retries=0)
    for number in range(1, spared + 2):
        assert platform.jobs.get(job.id).attempt == number
        exit_of(platform, platform.jobs.get(job.id), **facts)
        platform.completion.conclude(job.id)
        platform.database["nodes"].delete_many({})
        platform.ahead += timedelta(minutes=10)
        platform.heartbeat()
        platform.dispatch.fill()
    assert (platform.jobs.get(job.id).status, platform.jobs.get(job.id).attempt) == (JobStatus.ERROR, spared + 1)


def test_whoever_ends_an_attempt_late_leaves_the_slot_of_the_next_one_alone(platform: Platform) -> None:
    job = running(platform)
    exit_of(platform, job, pages=0, exit_code=1)
    platform.completion.conclude(job.id)
    platform.ahead += timedelta(minutes=10)
    platform.heartbeat()
    platform.dispatch.fill()
    # this is what a worker does that read the job before the retry
    platform.holds.free(f"{job.id}-1", job.resources("n1"))
    assert platform.slots() == [f"{job.id}-2"]


@pytest.mark.parametrize(("pages", "kept"), [(3, True), (0, False)])
def test_only_a_good_result_keeps_answering_repeated_requests(platform: Platform, *, pages: int, kept: bool) -> None:
    job = running(platform, max_retries=0)
    key = dedupe_key(job.user_id, job.spec.spider, job.fingerprint)
    platform.redis.set(key, f"C|{job.id}|1")
    exit_of(platform, job, pages=pages)
    platform.completion.conclude(job.id)
    assert bool(platform.redis.exists(key)) is kept


def test_a_key_that_names_another_job_by_now_is_left_alone(platform: Platform) -> None:
    job = running(platform, max_retries=0)
    key = dedupe_key(job.user_id, job.spec.spider, job.fingerprint)
    platform.redis.set(key, "C|ffffffffffffffffffffffffffffffff|1")
    exit_of(platform, job, pages=0)
    platform.completion.conclude(job.id)
    assert platform.redis.exists(key)


def test_an_exit_that_overtook_its_dispatch_is_recorded_all_the_same(platform: Platform) -> None:
    job = make_job()
    platform.jobs.insert(job)
    platform.heartbeat()
    platform.double.mode = "lost"
    platform.dispatch.fill()
    exit_of(platform, platform.jobs.get(job.id))
    platform.completion.conclude(job.id)
    assert platform.jobs.get(job.id).status is JobStatus.FINISHED


def test_an_attempt_that_nobody_waits_for_is_let_go(platform: Platform) -> None:
    job = running(platform)
    stray = job.model_copy(update={"attempt": 7})
    exit_of(platform, stray)
    assert platform.jobs.get(job.id) == job
    exit_of(platform, make_job(attempt=1))


def run_to_their_ends(platform: Platform, jobs: list[Job]) -> None:
    """Run the jobs, and record how their attempts ended, without deciding on anything."""
    platform.heartbeat(slots=9)
    for job in jobs:
        platform.jobs.insert(job)
    assert platform.dispatch.fill() == len(jobs)
    for job in jobs:
        exit_of(platform, platform.jobs.get(job.id))


@pytest.fixture
def attempts(platform: Platform) -> EndedAttempts:
    webhooks = Webhooks.__new__(Webhooks)
    webhooks.look = lambda: None  # type: ignore[method-assign]  # nobody is to be called
    return EndedAttempts(platform.jobs, platform.completion, webhooks)


def test_of_many_that_end_at_once_one_that_cannot_be_decided_on_keeps_no_other(
    platform: Platform, attempts: EndedAttempts
) -> None:
    jobs = [make_job(user_id=f"user-{number % 2}") for number in range(4)]
    run_to_their_ends(platform, jobs)
    wrong, *right = jobs
    platform.database["jobs"].update_one({"_id": wrong.id}, {"$set": {"priority": "none"}})
    assert attempts.look([job.id for job in jobs]) is False
    assert all(platform.jobs.get(job.id).settled for job in right)
    assert platform.slots() == [f"{wrong.id}-1"]


def test_of_many_that_end_at_once_one_that_cannot_be_settled_keeps_no_other(
    platform: Platform, attempts: EndedAttempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [make_job() for _ in range(3)]
    run_to_their_ends(platform, jobs)

    def close(job: Job) -> None:
        if job.id == jobs[0].id:
            raise BudgetSpentError("its reservation is changed all the time", 1)

    monkeypatch.setattr(platform.jobs.budgets, "close", close)
    attempts.look([job.id for job in jobs])
    assert [platform.jobs.get(job.id).settled for job in jobs] == [False, True, True]


def test_of_many_that_end_at_once_all_end_though_there_is_time_for_one_decision_a_look(
    platform: Platform, attempts: EndedAttempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [make_job() for _ in range(3)]
    run_to_their_ends(platform, jobs)
    really, settling = platform.completion.decide, platform.completion.settle_soon
    left: list[float] = []

    def decide(job: Job) -> Job | None:
        ended = really(job)
        clock._DEADLINE.set(0.0)  # as if MongoDB had taken so long that the block's time is over
        return ended

    def settle_soon(*ended: Job) -> None:
        left.append(remaining(VERDICT_SECONDS))
        settling(*ended)

    monkeypatch.setattr(platform.completion, "decide", decide)
    monkeypatch.setattr(platform.completion, "settle_soon", settle_soon)
    attempts.loop.wake(*(job.id for job in jobs))
    for number in (1, 2, 3):
        attempts.loop.turn()
        assert [platform.jobs.get(job.id).settled for job in jobs].count(True) == number
    assert min(left) > 0


def test_jobs_that_end_while_redis_is_away_are_settled_if_they_need_none_of_it(platform: Platform) -> None:
    platform.heartbeat(slots=9)
    jobs = [make_job(max_retries=0) for _ in range(3)]
    for job in jobs:
        platform.jobs.insert(job)
    assert platform.dispatch.fill() == 3
    bad, worse, good = [platform.jobs.get(job.id) for job in jobs]
    exit_of(platform, good)
    for job in (bad, worse):
        exit_of(platform, job, pages=0, report=None, exit_code=1)
    asked: list[str] = []

    class Away(DedupeRelease):
        def release(self, key: str, job_id: str) -> None:
            asked.append(job_id)
            super().release(key, job_id)

    ends = [platform.completion.decide(platform.jobs.get(job.id)) for job in jobs]
    away = Completion(
        jobs=platform.jobs, nodes=platform.nodes, queue=platform.queue, holds=platform.holds,
        dedupe=Away(redis.Redis(port=free_port())), publisher=EventPublisher(platform.redis),
        waker=platform, clock=platform.clock,
    )  # fmt: skip
    away.settle_soon(*filter(None, ends))
    assert [platform.jobs.get(job.id).settled for job in (good, bad, worse)] == [True, False, False]
    # only one question: while Redis is silent, each takes a second
    assert asked == [bad.id]
    assert platform.slots() == []
    platform.sweeper.sweep()
    assert all(platform.jobs.get(job.id).settled for job in jobs)


def test_concluding_twice_changes_nothing(platform: Platform) -> None:
    job = running(platform)
    exit_of(platform, job)
    platform.completion.conclude(job.id)
    once = platform.jobs.get(job.id)
    platform.completion.conclude(job.id)
    assert platform.jobs.get(job.id) == once


def test_a_waiting_job_is_cancelled_at_once_and_a_running_one_is_asked(platform: Platform) -> None:
    cancellation = Cancellation(jobs=platform.jobs, completion=platform.completion, waker=platform)
    job = running(platform)
    asked = cancellation.cancel(job.id)
    assert asked.status is JobStatus.RUNNING
    assert ("cancel_crawl", job.id) in platform.woken
    waiting = make_job()
    platform.jobs.insert(waiting)
    assert cancellation.cancel(waiting.id).status is JobStatus.CANCELLED
    exit_of(platform, job, report=None, exit_code=None, signal=9)
    platform.completion.conclude(job.id)
    assert platform.jobs.get(job.id).status is JobStatus.CANCELLED


def test_a_crawl_that_failed_just_before_its_cancellation_was_asked_for_is_cancelled_and_not_tried_again(
    platform: Platform,
) -> None:
    job = running(platform)
    ended_at = platform.clock()
    platform.ahead += timedelta(seconds=1)
    platform.jobs.request_cancel(job.id)
    exit_of(platform, job, report=None, exit_code=None, signal=9, ended_at=ended_at)
    platform.completion.conclude(job.id)
    ended = platform.jobs.get(job.id)
    assert (ended.status, ended.dead, ended.attempt) == (JobStatus.CANCELLED, False, 1)


#: Exit reports of attempts that were killed: without a frontier, with one, before they ran, and lost with their node.
KILLED: dict[str, Any] = {"exit_code": None, "signal": 9, "report": None}
LEFT_ONE, NEVER_RAN = {**KILLED, "can_go_on": True}, {**KILLED, "refused": "stale", "fault": "node"}
LOST = {**KILLED, "lost": True}


@pytest.mark.parametrize(
    ("ends", "since"),
    [
        ([LEFT_ONE], 1),
        ([LEFT_ONE, LEFT_ONE], 2),
        ([LEFT_ONE, NEVER_RAN], 1),
        ([LEFT_ONE, LOST], 1),
        ([{**LOST, "started_at": "2026-01-01T00:00:00Z"}], 1),
        ([LEFT_ONE, {**LOST, "started_at": "2026-01-01T00:00:00Z"}], 2),
        ([LEFT_ONE, KILLED], 3),
        ([LEFT_ONE, KILLED, LEFT_ONE], 3),
    ],
)
def test_an_attempt_goes_on_only_where_the_newest_one_that_ran_was_interrupted(
    platform: Platform, ends: list[dict[str, Any]], since: int
) -> None:
    job = running(platform, max_retries=9)
    for number, end in enumerate(ends, 1):
        exit_of(platform, job, **end)
        platform.completion.conclude(job.id)
        platform.ahead += timedelta(minutes=9)
        for node in ("n1", "n2"):
            platform.heartbeat(node)
        assert platform.dispatch.fill() == 1
        job = platform.jobs.get(job.id)
        assert job.attempt == number + 1
    spec = json.loads(platform.double.requests[-1][1]["spec"])
    assert spec["frontier_since"] == since


def test_a_job_that_can_never_get_the_attempt_that_it_is_assigned_keeps_no_tailer_busy(platform: Platform) -> None:
    job = running(platform)
    odd = {"assignment": {"attempt": 2, "node": "n1", "token": "t", "until": platform.clock()}}
    platform.database["jobs"].update_one({"_id": job.id}, {"$set": odd})
    facts = ExitReport(attempt=2, ended_at=platform.clock(), exit_code=0)
    assert not platform.completion.record_exit(AttemptId(job.id, 2), facts, 0)
