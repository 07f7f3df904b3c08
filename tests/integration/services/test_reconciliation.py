from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from conftest import DEAD_AFTER, Platform
from jobs import make_job

from gateway.contract.crawl import Egg
from gateway.contract.outbox import AttemptId
from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.dispatch import dispatcher
from gateway.dispatch.sweeping import TAKEN_FOR
from gateway.errors import UnreadableError
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.outcome import Outcome
from gateway.retention.retention import UnreadableStore


def running(platform: Platform) -> Job:
    job = make_job()
    platform.jobs.insert(job)
    platform.heartbeat()
    assert platform.dispatch.fill() == 1
    return platform.jobs.get(job.id)


def watch(platform: Platform, seconds: float, *, step: float = 5) -> None:
    """Reconcile every `step` seconds for `seconds`, without a heartbeat."""
    for _ in range(int(seconds // step) + 1):
        platform.reconcile()
        platform.ahead += timedelta(seconds=step)


def test_an_attempt_that_shows_no_sign_of_life_is_handed_over_again(platform: Platform) -> None:
    job = running(platform)
    platform.reconcile()
    assert platform.double.posted == [f"{job.id}-1"]
    platform.ahead += timedelta(seconds=6)
    platform.heartbeat()
    platform.reconcile()
    assert platform.double.posted == [f"{job.id}-1"] * 2
    platform.completion.attempt_started(AttemptId(job.id, 1), platform.clock())
    platform.reconcile()
    assert len(platform.double.posted) == 2


def test_a_node_that_was_watched_dying_loses_its_attempts_to_the_others(platform: Platform) -> None:
    job = running(platform)
    watch(platform, DEAD_AFTER.total_seconds() + 5)
    waiting = platform.jobs.get(job.id)
    assert (waiting.status, waiting.failures) == (JobStatus.PENDING, 1)
    assert "n1" in (waiting.message or "")
    platform.ahead += timedelta(seconds=30)
    platform.heartbeat("n2")
    assert platform.dispatch.fill() == 1
    assert platform.jobs.get(job.id).attempts["2"].node == "n2"


def given_up(platform: Platform) -> Job:
    """A job that waits for its next attempt, because its node was silent for too long."""
    job = running(platform)
    watch(platform, DEAD_AFTER.total_seconds() + 5)
    waiting = platform.jobs.get(job.id)
    assert waiting.status is JobStatus.PENDING
    return waiting


def reports(platform: Platform, job: Job, **facts: object) -> None:
    """The node is back, and reports how the first attempt ended."""
    report = SpiderReport(finish_reason="finished", progress=Progress(completed_pages=3), ended_at=platform.clock())
    told = ExitReport.model_validate({"attempt": 1, "ended_at": platform.clock(), "report": report, **facts})
    assert platform.completion.record_exit(AttemptId(job.id, 1), told, 77)
    platform.completion.conclude(job.id)


def test_how_a_lost_attempt_really_ended_counts_while_no_other_has_a_node(platform: Platform) -> None:
    job = given_up(platform)
    reports(platform, job, exit_code=0)
    ended = platform.jobs.get(job.id)
    assert (ended.status, ended.failures, ended.settled) == (JobStatus.FINISHED, 0, True)
    assert (ended.attempts["1"].status, ended.attempts["1"].log_end) == (JobStatus.FINISHED, 77)
    platform.ahead += timedelta(minutes=1)
    platform.heartbeat("n2")
    assert platform.dispatch.fill() == 0


def test_a_lost_attempt_that_really_failed_costs_one_retry_and_no_second(platform: Platform) -> None:
    job = given_up(platform)
    for _ in range(2):
        reports(platform, job, exit_code=1, report=None)
        failed = platform.jobs.get(job.id)
        assert (failed.status, failed.failures) == (JobStatus.PENDING, 1)
        assert "exit code 1" in (failed.message or "")


def test_an_attempt_that_was_stopped_for_being_lost_ends_nothing(platform: Platform) -> None:
    job = given_up(platform)
    reports(platform, job, exit_code=0, stopped_by="cancel")
    assert platform.jobs.get(job.id).status is JobStatus.PENDING


def test_the_exit_of_a_lost_attempt_comes_too_late_once_another_has_a_node(platform: Platform) -> None:
    job = given_up(platform)
    platform.ahead += timedelta(seconds=30)
    platform.heartbeat("n2")
    assert platform.dispatch.fill() == 1
    reports(platform, job, exit_code=0)
    goes_on = platform.jobs.get(job.id)
    assert (goes_on.status, goes_on.attempt, goes_on.failed_attempts) == (JobStatus.RUNNING, 2, 1)


def test_a_verdict_upon_a_lost_attempt_yields_to_how_it_really_ended(platform: Platform) -> None:
    job = running(platform)
    supposed = ExitReport(attempt=1, ended_at=platform.clock(), lost=True)
    lost = platform.jobs.record_exit(job.id, 1, supposed, 0)
    assert lost is not None
    real = ExitReport(attempt=1, ended_at=platform.clock(), exit_code=0)
    assert platform.jobs.record_exit(job.id, 1, real, 7) is not None
    outcome = Outcome(JobStatus.ERROR, Reason.REQUESTS_FAILED, "lost", retryable=True)
    assert platform.jobs.retry(lost, outcome, platform.clock()) is None
    assert platform.jobs.finish(lost, outcome) is None


def test_an_old_heartbeat_alone_is_no_proof_of_death(platform: Platform) -> None:
    job = running(platform)
    for away in (timedelta(hours=1), timedelta(seconds=60)):
        # the store was away: no worker could look at nodes, and no tailer could send a heartbeat
        platform.ahead += away
        platform.reconcile()
        assert platform.jobs.get(job.id).status is JobStatus.RUNNING


def test_a_started_attempt_whose_files_were_taken_away_is_lost(platform: Platform) -> None:
    job = running(platform)
    platform.completion.attempt_started(AttemptId(job.id, 1), platform.clock())
    for _ in range(3):
        assert platform.jobs.get(job.id).status is JobStatus.RUNNING
        platform.ahead += timedelta(seconds=3)
        platform.heartbeat()
        platform.reconcile()
    assert "files have disappeared" in (platform.jobs.get(job.id).message or "")


def test_a_started_attempt_that_its_node_knows_is_left_alone(platform: Platform) -> None:
    job = running(platform)
    platform.completion.attempt_started(AttemptId(job.id, 1), platform.clock())
    for _ in range(6):
        platform.ahead += timedelta(seconds=2)
        platform.heartbeat(alive=(f"{job.id}-1",))
        platform.reconcile()
    assert platform.jobs.get(job.id).status is JobStatus.RUNNING
    assert platform.double.cancelled == []


@pytest.mark.parametrize("odd", [{"failures": "many"}, {"heartbeat_at": "noon"}, {"alive": 5}, None])
def test_an_attempt_on_a_dead_node_is_lost_though_nobody_can_read_the_nodes_document(
    platform: Platform, odd: dict[str, Any] | None
) -> None:
    job = running(platform)
    nodes = platform.database["nodes"]
    if odd is None:
        nodes.delete_one({"_id": "n1"})
    else:
        nodes.update_one({"_id": "n1"}, {"$set": odd})
    watch(platform, DEAD_AFTER.total_seconds() - 5)
    assert platform.jobs.get(job.id).status is JobStatus.RUNNING
    watch(platform, 10)
    lost = platform.jobs.get(job.id)
    assert (lost.status, "node n1 has not been heard of" in (lost.message or "")) == (JobStatus.PENDING, True)


def test_an_attempt_on_a_living_node_goes_on_though_nobody_can_read_the_nodes_document(platform: Platform) -> None:
    job = running(platform)
    platform.database["nodes"].update_one({"_id": "n1"}, {"$set": {"failures": "many"}})
    for _ in range(12):
        platform.ahead += timedelta(seconds=4)
        platform.heartbeat(alive=(f"{job.id}-1",))
        platform.reconcile()
    assert platform.jobs.get(job.id).status is JobStatus.RUNNING


#: Wrong values: of a field that says how a job goes on, and of the one that says which attempt it has.
ODD = [{"max_retries": "of tomorrow"}, {"attempt": "of tomorrow"}]


@pytest.mark.parametrize("odd", ODD)
def test_a_job_that_cannot_be_read_keeps_no_slot_on_a_dead_node(platform: Platform, odd: dict[str, str]) -> None:
    job = running(platform)
    platform.database["jobs"].update_one({"_id": job.id}, {"$set": odd})
    watch(platform, DEAD_AFTER.total_seconds() - 5)
    assert platform.slots() == [f"{job.id}-1"]
    watch(platform, 15)
    assert platform.slots() == []
    assert platform.database["jobs"].distinct("status") == ["running"]


@pytest.mark.parametrize("odd", ODD)
def test_a_job_that_cannot_be_read_keeps_its_slot_as_long_as_its_process_lives(
    platform: Platform, odd: dict[str, str]
) -> None:
    job = running(platform)
    attempt = f"{job.id}-1"
    platform.database["jobs"].update_one({"_id": job.id}, {"$set": odd})
    for _ in range(9):
        platform.ahead += timedelta(seconds=20)
        platform.heartbeat(alive=(attempt,))
        platform.reconcile()
    assert platform.slots() == [attempt]
    # this happens when the node's tailer records how the attempt ended
    with pytest.raises(UnreadableError):
        reports(platform, job, exit_code=0)
    platform.ahead += timedelta(seconds=4)
    platform.heartbeat(left=(attempt,))
    platform.reconcile()
    assert platform.slots() == []
    # once its document is repaired, the job ends like any other
    repaired = {"max_retries": job.max_retries, "attempt": 1}
    platform.database["jobs"].update_one({"_id": job.id}, {"$set": repaired})
    UnreadableStore(platform.database).look_again()
    platform.sweeper.sweep()
    assert platform.jobs.get(job.id).status is JobStatus.FINISHED


def test_a_crawl_ends_in_peace_though_nobody_can_read_the_document_of_its_node(platform: Platform) -> None:
    job = running(platform)
    platform.database["nodes"].update_one({"_id": "n1"}, {"$set": {"failures": "many"}})
    ended = ExitReport(attempt=1, ended_at=platform.clock(), signal=9)
    assert platform.completion.record_exit(AttemptId(job.id, 1), ended, 7)
    platform.completion.conclude(job.id)
    assert (platform.jobs.get(job.id).status, platform.slots()) == (JobStatus.PENDING, [])


def test_an_attempt_that_lives_on_after_it_was_given_up_is_ended(platform: Platform) -> None:
    job = running(platform)
    watch(platform, DEAD_AFTER.total_seconds() + 5)
    assert platform.jobs.get(job.id).status is JobStatus.PENDING
    platform.heartbeat(alive=(f"{job.id}-1",))
    platform.reconcile()
    assert platform.double.cancelled == [f"{job.id}-1"]


def test_a_job_that_cannot_be_read_keeps_no_other_from_its_end(platform: Platform) -> None:
    job = running(platform)
    poison = make_job()
    platform.jobs.insert(poison)
    platform.database["jobs"].update_one(
        {"_id": poison.id}, {"$set": {"attend_at": poison.created_at, "attempts": "poison"}}
    )
    platform.jobs.record_exit(job.id, 1, ExitReport(attempt=1, ended_at=platform.clock(), exit_code=1), 0)
    platform.reconcile()
    assert platform.jobs.get(job.id).status is JobStatus.PENDING


def test_a_leaked_slot_is_freed_and_a_held_one_is_not(platform: Platform) -> None:
    job = running(platform)
    platform.take("node:n1", f"{'f' * 32}-1")
    platform.reconcile()
    # the slot without a job is kept for a time, because a worker may be about to assign its attempt
    assert len(platform.slots()) == 2
    platform.ahead += TAKEN_FOR
    platform.reconcile()
    assert platform.slots() == [f"{job.id}-1"]


def test_a_slot_of_an_attempt_that_was_given_up_is_freed_though_its_job_runs_on(platform: Platform) -> None:
    job = running(platform)
    platform.take("node:n1", f"{job.id}-0")
    platform.ahead += TAKEN_FOR
    platform.reconcile()
    assert platform.slots() == [f"{job.id}-1"]


def test_an_attempt_that_is_alive_though_its_job_was_deleted_is_cancelled(platform: Platform) -> None:
    job = running(platform)
    other = make_job()
    platform.jobs.insert(other)
    platform.database["jobs"].update_one({"_id": other.id}, {"$set": {"max_retries": "of tomorrow"}})
    platform.database["jobs"].delete_one({"_id": job.id})
    platform.heartbeat(alive=(f"{job.id}-1", f"{other.id}-1"))
    platform.reconcile()
    assert platform.double.cancelled == [f"{job.id}-1"]
    assert platform.double.requests[-1][1]["project"] == "default"


def test_attempts_that_go_on_all_the_same_keep_no_other_from_being_stopped(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "BATCH", 3)
    unreadable = [make_job() for _ in range(6)]
    for job in unreadable:
        platform.jobs.insert(job)
    platform.database["jobs"].update_many({}, {"$set": {"max_retries": "of tomorrow"}})
    deleted = f"{'f' * 32}-1"
    platform.heartbeat(alive=(*(f"{job.id}-1" for job in unreadable), deleted))
    for _ in range(100):
        platform.reconcile()
        if platform.double.cancelled:
            break
    assert set(platform.double.cancelled) == {deleted}


def test_an_attempt_of_a_deleted_job_is_cancelled_whatever_project_it_is_of(platform: Platform) -> None:
    platform.heartbeat(alive=(f"{'d' * 32}-1",), eggs=(Egg("acme", "1"), Egg("zoo", "1")))
    platform.reconcile()
    asked = [form["project"] for path, form in platform.double.requests if path == "/cancel.json"]
    assert asked == ["acme", "default", "zoo"]


def test_a_cancellation_that_got_lost_is_sent_again(platform: Platform) -> None:
    job = running(platform)
    platform.jobs.request_cancel(job.id)
    platform.ahead += timedelta(seconds=6)
    platform.heartbeat()
    platform.reconcile()
    assert platform.double.cancelled == [f"{job.id}-1"]
