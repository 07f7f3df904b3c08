"""Of jobs that exclude each other, only one runs at a time: with a real MongoDB, and a double of the node."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from threading import Event, Lock

import pytest
from conftest import DEAD_AFTER, Platform
from jobs import make_job

from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.dispatch.fair_queue import NodeChoice
from gateway.dispatch.sweeping import TAKEN_FOR
from gateway.jobs.completion import Cancellation
from gateway.jobs.job import Decision, Job, JobStatus, Occurrence, WaitingReason
from gateway.jobs.store import CANCEL_SECONDS

BOARD = "site:board"


def holders(platform: Platform, resource: str = BOARD) -> list[str]:
    return list(platform.holds.holders([resource]).get(resource, ()))


def submitted(platform: Platform, count: int = 1, **fields: object) -> list[Job]:
    jobs = [make_job(**{"exclusive": BOARD, **fields}) for _ in range(count)]
    for job in jobs:
        platform.jobs.insert(job)
    return jobs


def ends(platform: Platform, job: Job, reason: str = "finished", pages: int = 1) -> Job:
    """The node reports that the running attempt has ended for this reason, and a worker concludes it."""
    attempt = platform.jobs.get(job.id).attempt
    report = SpiderReport(
        finish_reason=reason,
        progress=Progress(completed_pages=pages, errors_count=1 - pages),
        ended_at=platform.clock(),
    )
    facts = ExitReport(attempt=attempt, exit_code=0, ended_at=platform.clock(), report=report)
    platform.completion.record_exit(AttemptId(job.id, attempt), facts, 0)
    platform.completion.conclude(job.id)
    return platform.jobs.get(job.id)


def running(platform: Platform) -> list[str]:
    return [found["_id"] for found in platform.database["jobs"].find({"status": JobStatus.RUNNING})]


def test_the_second_job_of_a_site_waits_for_the_first_and_lets_others_pass(platform: Platform) -> None:
    platform.heartbeat(slots=9)
    first, second = submitted(platform, 2)
    (other,) = submitted(platform, exclusive="schedule:1")
    (later,) = submitted(platform, exclusive="schedule:1")
    (free,) = submitted(platform, exclusive=None)
    assert platform.dispatch.fill(second.id) == 3
    assert set(running(platform)) == {first.id, other.id, free.id}
    assert platform.jobs.get(second.id).waiting_reason is WaitingReason.SITE_BUSY
    assert platform.jobs.get(later.id).waiting_reason is WaitingReason.PREVIOUS_RUN
    assert platform.dispatch.fill(second.id) == 0
    assert holders(platform) == [f"{first.id}-1"]


def test_what_waits_for_a_lease_goes_by_priority_then_age(platform: Platform) -> None:
    platform.heartbeat(slots=9)
    (holder,) = submitted(platform)
    platform.dispatch.fill()
    now = platform.clock()
    third = submitted(platform, created_at=now)[0]
    second = submitted(platform, created_at=now - timedelta(minutes=1))[0]
    first = submitted(platform, created_at=now, priority=5)[0]
    platform.dispatch.fill()
    order = []
    while found := running(platform):
        (job_id,) = found
        order.append(job_id)
        assert ends(platform, platform.jobs.get(job_id)).status is JobStatus.FINISHED
        platform.dispatch.fill()
    assert order == [holder.id, first.id, second.id, third.id]
    assert platform.held() == {}


def test_the_end_of_a_job_wakes_the_one_that_waited_for_it(platform: Platform) -> None:
    platform.heartbeat(slots=9)
    first, second = submitted(platform, 2)
    platform.dispatch.fill()
    platform.woken.clear()
    ends(platform, first)
    assert ("enqueue_crawl", second.id) in platform.woken
    assert platform.jobs.get(second.id).waiting_reason is None


def test_between_its_attempts_a_job_stands_in_nobodys_way(platform: Platform) -> None:
    platform.heartbeat(slots=9)
    first, second = submitted(platform, 2)
    platform.dispatch.fill()
    platform.woken.clear()
    assert ends(platform, first, pages=0).waiting_reason is WaitingReason.BACKOFF
    assert ("enqueue_crawl", second.id) in platform.woken
    assert platform.dispatch.fill() == 1
    assert running(platform) == [second.id]
    platform.ahead += timedelta(minutes=10)
    platform.heartbeat(slots=9)
    assert platform.dispatch.fill(first.id) == 0
    assert platform.jobs.get(first.id).waiting_reason is WaitingReason.SITE_BUSY
    ends(platform, second)
    assert platform.dispatch.fill() == 1
    assert (running(platform), platform.jobs.get(first.id).attempt) == ([first.id], 2)


def test_a_job_that_is_given_up_frees_its_lease(platform: Platform) -> None:
    platform.heartbeat(slots=9)
    first, second = submitted(platform, 2, max_retries=0)
    platform.dispatch.fill()
    assert ends(platform, first, pages=0).dead
    platform.dispatch.fill()
    assert running(platform) == [second.id]


def test_a_holder_that_is_cancelled_between_its_attempts_frees_its_lease_at_once(platform: Platform) -> None:
    platform.heartbeat(slots=9)
    first, second = submitted(platform, 2)
    platform.dispatch.fill()
    ends(platform, first, pages=0)
    assert cancelled(platform, first).status is JobStatus.CANCELLED
    platform.dispatch.fill()
    assert running(platform) == [second.id]


def cancelled(platform: Platform, job: Job) -> Job:
    cancellation = Cancellation(jobs=platform.jobs, completion=platform.completion, waker=platform)
    return cancellation.cancel(job.id)


def test_a_blocked_job_is_cancelled_at_once_and_leaves_the_lease_where_it_is(platform: Platform) -> None:
    platform.heartbeat(slots=9)
    first, second, third = submitted(platform, 3)
    platform.dispatch.fill()
    ended = cancelled(platform, second)
    assert (ended.status, ended.blocked) == (JobStatus.CANCELLED, None)
    assert holders(platform) == [f"{first.id}-1"]
    assert platform.jobs.get(third.id).blocked


def test_a_job_whose_time_has_not_come_is_cancelled_at_once_and_so_is_one_that_is_held(platform: Platform) -> None:
    now = platform.clock()
    slot = Occurrence(rev=1, at=now, due=now, fired_at=now)
    (ahead,) = submitted(platform, status=JobStatus.SCHEDULED, not_before=now + timedelta(hours=1))
    (held,) = submitted(platform, status=JobStatus.SCHEDULED, held=Decision.RUN, slot=slot)
    for job in (ahead, held):
        ended = cancelled(platform, job)
        assert (ended.status, ended.held) == (JobStatus.CANCELLED, None)
        assert platform.jobs.get(job.id).settled


def test_a_cancelled_job_that_nobody_ended_is_ended_by_the_sweep_while_it_is_scheduled(platform: Platform) -> None:
    (job,) = submitted(platform, status=JobStatus.SCHEDULED, not_before=platform.clock() + timedelta(hours=1))
    platform.jobs.request_cancel(job.id)
    platform.ahead += timedelta(seconds=CANCEL_SECONDS)
    platform.sweeper.sweep()
    assert platform.jobs.get(job.id).status is JobStatus.CANCELLED


def test_a_holder_that_vanished_is_noticed_and_the_next_admitted(platform: Platform) -> None:
    platform.heartbeat(slots=9)
    first, second = submitted(platform, 2)
    platform.dispatch.fill()
    platform.database["jobs"].delete_one({"_id": first.id})
    platform.woken.clear()
    platform.ahead += TAKEN_FOR
    platform.heartbeat(slots=9)
    platform.sweeper.sweep()
    assert platform.jobs.get(second.id).blocked is None
    assert platform.dispatch.fill() == 1
    assert holders(platform) == [f"{second.id}-1"]


def test_a_job_that_gets_no_slot_gives_back_what_it_took(platform: Platform) -> None:
    platform.heartbeat(slots=1)
    first, second = submitted(platform, 2, priority=1)
    choice = NodeChoice(platform.nodes.all(), platform.clock(), DEAD_AFTER, frozenset())
    planned = platform.dispatch._plan(choice, platform.fair.look())
    # meanwhile another worker takes the slot, and the second job is blocked because of the site
    assert platform.take("node:n1", f"{'f' * 32}-1", 1)
    platform.queue.block(second.id, WaitingReason.SITE_BUSY)
    taken, tried = platform.dispatch._take(planned)
    assert tried == []
    platform.dispatch._give_back(planned, tried, taken, assigned=())
    assert platform.held() == {"node:n1": [f"{'f' * 32}-1"]}
    assert platform.jobs.get(second.id).blocked is None
    assert platform.jobs.get(first.id).assignment is None


def test_a_site_that_is_free_is_seen_by_the_sweep_however_many_wait_for_another(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.dispatch.sweeping.SWEEP_BATCH", 2)
    elsewhere = make_job(status=JobStatus.RUNNING, attempt=1)
    platform.jobs.insert(elsewhere)
    assert platform.take("site:a", f"{elsewhere.id}-1", 1)
    submitted(platform, 5, exclusive="site:a", blocked=True)
    waiting = [submitted(platform, exclusive=key, blocked=True)[0] for key in ("site:b", "site:c", "site:d")]
    for _ in range(4):
        platform.sweeper.sweep()
        platform.ahead += timedelta(seconds=3)
    assert [platform.jobs.get(job.id).blocked for job in waiting] == [None, None, None]
    assert holders(platform, "site:a") == [f"{elsewhere.id}-1"]


def test_many_workers_that_look_at_once_never_start_two_of_a_kind(platform: Platform) -> None:
    platform.heartbeat(slots=50)
    kinds = ("site:a", "site:b", "schedule:c")
    jobs = [job for kind in kinds for job in submitted(platform, 8, exclusive=kind, max_retries=2)]
    kind_of = {job.id: job.exclusive for job in jobs}
    most, lock, over = Counter[str | None](), Lock(), Event()

    def work(seed: int) -> None:
        while not over.is_set():
            platform.dispatch.fill()
            if seed % 3 == 0:
                # a busy machine takes longer than a node may be silent
                platform.heartbeat(slots=50)
                platform.compare()
            for job_id in running(platform):
                crawl(job_id, fails=seed % 2 == 1)

    def crawl(job_id: str, *, fails: bool) -> None:
        with lock:
            if (job := platform.jobs.get(job_id)).status is not JobStatus.RUNNING or job.current.exit:  # type: ignore[union-attr]  # it runs
                return
            alive = Counter(kind_of[found] for found in running(platform))
            for kind, count in alive.items():
                most[kind] = max(most[kind], count)
        ended = ends(platform, job, pages=0 if fails and job.attempt == 1 else 1)
        platform.end_back_off(ended)
        if platform.database["jobs"].count_documents({"status": JobStatus.FINISHED}) == len(jobs):
            over.set()

    platform.work_at_once(work, over, 120)
    assert {platform.jobs.get(job.id).status for job in jobs} == {JobStatus.FINISHED}
    assert set(most.values()) == {1}
    assert platform.held() == {}
