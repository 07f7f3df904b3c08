"""A job is paused: it frees its slots, keeps its site and its key, and goes on when somebody resumes it."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import Platform
from jobs import make_job
from killed import killed_everywhere
from node_double import NodeDouble
from pause_story import check, prepare
from stores import embedded_mongo
from test_completion import exit_of, running

from gateway.contract.outbox import AttemptId
from gateway.contract.records import Progress, SpiderReport
from gateway.errors import ConflictError
from gateway.jobs.completion import PAUSE_LIMIT, Cancellation, Pausing
from gateway.jobs.job import Job, JobStatus, WaitingReason
from gateway.stores.mongo import connect

SITE = "site:a"


@pytest.fixture
def pausing(platform: Platform) -> Pausing:
    return Pausing(jobs=platform.jobs, completion=platform.completion, waker=platform)


def stopped(platform: Platform, job: Job, *, can_go_on: bool = True, **facts: Any) -> Job:
    """Record that the node has stopped the crawl, and decide what follows."""
    progress = Progress(requested_pages=4, completed_pages=3)
    report = SpiderReport(finish_reason="shutdown", progress=progress, ended_at=platform.clock())
    exit_of(platform, job, **{"report": report, "stopped_by": "pause", "can_go_on": can_go_on, **facts})
    platform.completion.conclude(job.id)
    return platform.jobs.get(job.id)


def test_a_running_crawl_is_stopped_frees_its_slots_and_keeps_its_site_and_its_key(
    platform: Platform, pausing: Pausing
) -> None:
    job = running(platform, exclusive=SITE)
    asked = pausing.pause(job.id)
    assert (asked.status, asked.pause_requested_at is None) == (JobStatus.RUNNING, False)
    platform.dispatch.cancel(asked)
    assert platform.double.requests[-1][1]["why"] == "pause"
    paused = stopped(platform, job)
    assert (paused.status, paused.prefer, paused.failures) == (JobStatus.PAUSED, "n1", 0)
    assert paused.message == "paused: when it is resumed, it continues where it stopped, on node n1"
    assert paused.live_key == job.live_key
    assert paused.progress
    assert paused.progress.completed_pages == 3
    assert platform.held() == {SITE: [f"{job.id}-1"]}
    assert paused.settled is None


def test_nobody_but_a_person_wakes_a_paused_job(platform: Platform, pausing: Pausing) -> None:
    job = running(platform, exclusive=SITE)
    pausing.pause(job.id)
    paused = stopped(platform, job)
    other = make_job(exclusive=SITE)
    platform.jobs.insert(other)
    for _ in range(3):
        platform.ahead += timedelta(hours=7)
        platform.heartbeat()
        platform.reconcile()
        platform.sweep_holds()
        platform.dispatch.fill()
    assert platform.jobs.get(job.id) == paused
    assert platform.jobs.get(other.id).waiting_reason is WaitingReason.SITE_BUSY
    assert platform.double.posted == [f"{job.id}-1"]


def test_a_resumed_job_goes_to_its_node_ahead_of_younger_ones(platform: Platform, pausing: Pausing) -> None:
    job = running(platform, exclusive=SITE)
    pausing.pause(job.id)
    stopped(platform, job)
    platform.jobs.insert(make_job(exclusive=SITE))
    platform.heartbeat("a0")
    resumed = pausing.resume(job.id)
    assert (resumed.status, resumed.pause_requested_at, resumed.expires_at) == (JobStatus.PENDING, None, None)
    assert platform.dispatch.fill() == 1
    assert platform.jobs.get(job.id).attempts["2"].node == "n1"
    assert platform.held()[SITE] == [f"{job.id}-2"]
    spec = json.loads(platform.double.requests[-1][1]["spec"])
    assert spec["left_on"] == "n1"


def test_a_waiting_job_is_paused_at_once_and_waits_again(platform: Platform, pausing: Pausing) -> None:
    job = make_job()
    platform.jobs.insert(job)
    platform.heartbeat()
    assert pausing.pause(job.id).message == "paused before it began"
    assert platform.dispatch.fill() == 0
    assert pausing.resume(job.id).status is JobStatus.PENDING
    assert platform.dispatch.fill() == 1


def test_a_job_that_is_being_posted_is_paused_once_its_node_has_it(platform: Platform, pausing: Pausing) -> None:
    job = make_job()
    platform.jobs.insert(job)
    platform.heartbeat()
    platform.double.meanwhile = lambda: pausing.pause(job.id)
    platform.dispatch.fill()
    assert platform.jobs.get(job.id).status is JobStatus.RUNNING
    assert platform.double.requests[-1][1]["why"] == "pause"
    paused = stopped(platform, job.model_copy(update={"attempt": 1}), report=None, refused="paused", can_go_on=False)
    assert paused.status is JobStatus.PAUSED
    assert platform.nodes.all()[0].failures == 0


def test_a_job_whose_node_refuses_it_meanwhile_is_paused_at_once(platform: Platform, pausing: Pausing) -> None:
    job = make_job()
    platform.jobs.insert(job)
    platform.heartbeat()
    platform.double.mode = "refuse"
    platform.double.meanwhile = lambda: pausing.pause(job.id)
    platform.dispatch.fill()
    assert platform.jobs.get(job.id).status is JobStatus.PAUSED


def test_a_pause_that_had_no_effect_is_asked_for_again(platform: Platform, pausing: Pausing) -> None:
    job = running(platform)
    pausing.pause(job.id)
    platform.heartbeat(alive=(f"{job.id}-1",))
    for _ in range(2):
        platform.ahead += timedelta(seconds=6)
        platform.reconcile()
    stops = [form for path, form in platform.double.requests if path == "/cancel.json"]
    assert [(form["job"], form["why"]) for form in stops] == [(f"{job.id}-1", "pause")] * 2


def test_a_crawl_that_ended_before_it_was_stopped_has_ended(platform: Platform, pausing: Pausing) -> None:
    job = running(platform)
    pausing.pause(job.id)
    exit_of(platform, job, stopped_by="pause")
    platform.completion.conclude(job.id)
    ended = platform.jobs.get(job.id)
    assert (ended.status, ended.pause_requested_at) == (JobStatus.FINISHED, None)


@pytest.mark.parametrize("facts", [{"exit_code": None, "signal": 9}, {"exit_code": None, "lost": True}])
def test_a_crawl_that_dies_while_it_is_to_be_paused_is_paused(
    platform: Platform, pausing: Pausing, facts: dict[str, Any]
) -> None:
    job = running(platform)
    pausing.pause(job.id)
    paused = stopped(platform, job, report=None, stopped_by=None, can_go_on=False, **facts)
    assert (paused.status, paused.message) == (JobStatus.PAUSED, "paused: when it is resumed, it starts over")


def test_a_pause_costs_no_retry(platform: Platform, pausing: Pausing) -> None:
    job = running(platform, max_retries=0)
    for _ in range(3):
        pausing.pause(job.id)
        assert stopped(platform, platform.jobs.get(job.id)).status is JobStatus.PAUSED
        pausing.resume(job.id)
        assert platform.dispatch.fill() == 1
    assert platform.jobs.get(job.id).failures == 0


@pytest.mark.parametrize("stopped_by", ["pause", "shutdown"])
def test_a_job_is_cancelled_though_it_was_stopped_to_be_paused(
    platform: Platform, pausing: Pausing, stopped_by: str
) -> None:
    job = running(platform, max_retries=0, exclusive=SITE)
    pausing.pause(job.id)
    before = platform.clock() - timedelta(seconds=1)
    Cancellation(jobs=platform.jobs, completion=platform.completion, waker=platform).cancel(job.id)
    cancelled = stopped(platform, job, stopped_by=stopped_by, ended_at=before)
    assert (cancelled.status, platform.held()) == (JobStatus.CANCELLED, {})


def test_a_job_that_nobody_resumes_is_cancelled(platform: Platform, pausing: Pausing) -> None:
    job = running(platform, exclusive=SITE)
    pausing.pause(job.id)
    stopped(platform, job)
    platform.ahead += PAUSE_LIMIT - timedelta(minutes=1)
    platform.sweeper.sweep()
    assert platform.jobs.get(job.id).status is JobStatus.PAUSED
    platform.ahead += timedelta(minutes=2)
    platform.sweeper.sweep()
    ended = platform.jobs.get(job.id)
    assert (ended.status, ended.settled, ended.live_key) == (JobStatus.CANCELLED, True, None)
    assert str(ended.message).startswith("it was paused, and not resumed before ")
    assert platform.held() == {}


def test_a_paused_job_is_cancelled_at_once(platform: Platform, pausing: Pausing) -> None:
    job = running(platform, exclusive=SITE)
    pausing.pause(job.id)
    stopped(platform, job)
    cancelled = Cancellation(jobs=platform.jobs, completion=platform.completion, waker=platform).cancel(job.id)
    assert (cancelled.status, platform.held()) == (JobStatus.CANCELLED, {})


def test_what_cannot_be_paused_or_resumed_is_refused_with_its_state(platform: Platform, pausing: Pausing) -> None:
    job = running(platform)
    with pytest.raises(ConflictError, match="running"):
        pausing.resume(job.id)
    pausing.pause(job.id)
    with pytest.raises(ConflictError, match="about to be"):
        pausing.pause(job.id)
    with pytest.raises(ConflictError, match="running and about to be paused"):
        pausing.resume(job.id)
    stopped(platform, job)
    with pytest.raises(ConflictError, match="paused"):
        pausing.pause(job.id)
    later = make_job(status=JobStatus.SCHEDULED)
    platform.jobs.insert(later)
    with pytest.raises(ConflictError, match="scheduled for later"):
        pausing.pause(later.id)


def test_a_crawl_that_would_begin_anew_is_paused_only_if_that_is_meant(platform: Platform, pausing: Pausing) -> None:
    job = running(platform)
    platform.jobs.record_progress(job.id, 1, Progress(completed_pages=9, can_go_on=False))
    with pytest.raises(ConflictError, match="begin_anew=true"):
        pausing.pause(job.id)
    assert pausing.pause(job.id, begin_anew=True).pause_requested_at
    assert stopped(platform, job, can_go_on=False).prefer is None


POINTS = (
    *("jobs.request_pause", "jobs.pause", "jobs.resume", "holds.free", "jobs.mark_running", "announcer.status"),
    *("attempts.copy", "attempts.remove_from_job"),
)


def test_a_pause_survives_the_death_of_whoever_carries_it_out(
    tmp_path: Path, redis_url: str, double: NodeDouble
) -> None:
    with embedded_mongo(tmp_path / "mongo") as uri:
        database = connect(uri)
        made = prepare(database)
        killed_everywhere(
            tmp_path, POINTS, "from pause_story import tell", uri, redis_url, double.url, beside=__file__
        )
        check(database, made)
        assert AttemptId.parse(double.posted[0])
        database.client.close()


def test_a_paused_job_says_that_it_begins_anew_once_a_full_disk_has_taken_what_it_left(
    platform: Platform, pausing: Pausing
) -> None:
    job, resumed = running(platform), running(platform)
    for one in (job, resumed):
        pausing.pause(one.id)
        stopped(platform, one)
    platform.jobs.begin_anew(job.id, "n2", "the disk of node n2 was full")
    assert platform.jobs.get(job.id).prefer == "n1"
    platform.jobs.begin_anew(job.id, "n1", "the disk of node n1 was full")
    told = platform.jobs.get(job.id)
    assert told.message == "paused: when it is resumed, it starts over, because the disk of node n1 was full"
    assert told.prefer is None
    pausing.resume(resumed.id)
    platform.jobs.begin_anew(resumed.id, "n1", "the disk of node n1 was full")
    assert (platform.jobs.get(resumed.id).prefer, platform.jobs.get(resumed.id).message) == (None, None)
