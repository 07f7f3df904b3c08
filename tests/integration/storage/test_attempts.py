"""A job keeps its newest attempt, and the collection `attempts` all others, wherever a process died on the way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import bson
import pytest
from jobs import assigned, make_job
from pymongo.database import Database
from stores import REAL_BACKENDS

from gateway.clock import utc_now
from gateway.contract.outbox import AttemptId
from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport, FilesKept, Progress, SpiderReport
from gateway.jobs.job import Attempt, Job, JobStatus
from gateway.jobs.outcome import Outcome
from gateway.jobs.queue import JobQueue
from gateway.jobs.store import JobStore

#: mongomock does not follow the bulk writes of PyMongo.
pytestmark = pytest.mark.parametrize("database", REAL_BACKENDS, indirect=True)

ERROR = Outcome(JobStatus.ERROR, Reason.REQUESTS_FAILED, "it crashed", retryable=True)
GONE = ExitReport(attempt=1, ended_at=utc_now(), lost=True, log_tail="node n1 has not been heard of")


def begun(jobs: JobStore, queue: JobQueue, job: Job) -> Job:
    """The next attempt runs."""
    assert jobs.mark_running(job.id, assigned(queue, job, attempt=job.attempt + 1))
    return jobs.get(job.id)


def facts(job: Job, size: int = 100, **more: Any) -> ExitReport:
    progress = Progress(completed_pages=12, items_count=12)
    stats = {f"stat/{number}": "x" * 100 for number in range(size // 100)}
    report = SpiderReport(finish_reason="shutdown", progress=progress, stats=stats, ended_at=utc_now())
    described = {"attempt": job.attempt, "ended_at": utc_now(), "exit_code": 0, "report": report, **more}
    return ExitReport.model_validate(described)


def ended(jobs: JobStore, job: Job, size: int = 100, **more: Any) -> Job:
    assert jobs.record_exit(job.id, job.attempt, facts(job, size, **more), 4711)
    return jobs.get(job.id)


def waiting_again(jobs: JobStore, job: Job) -> Job:
    """It was paused, and is resumed."""
    paused = jobs.pause(job, "paused", None)
    assert paused
    resumed = jobs.resume(paused)
    assert resumed
    return resumed


def retried(jobs: JobStore, queue: JobQueue, job: Job) -> Job:
    assert jobs.retry(job, ERROR, utc_now() - timedelta(seconds=9))
    queue.end_backoffs()
    return jobs.get(job.id)


def size_of(database: Database[dict[str, Any]], job: Job) -> int:
    return len(bson.encode(database["jobs"].find_one({"_id": job.id}) or {}))


def test_a_job_that_is_paused_and_resumed_again_and_again_stays_as_small_as_it_is(
    database: Database[dict[str, Any]], jobs: JobStore, queue: JobQueue
) -> None:
    job = make_job()
    jobs.insert(job)
    sizes = []
    for _ in range(40):
        job = waiting_again(jobs, ended(jobs, begun(jobs, queue, job), size=16_000))
        sizes.append(size_of(database, job))
    # its steps are kept up to a number, too: 40 pauses are more
    assert sizes[-1] < sizes[20] + 1000
    assert sizes[-1] < 50_000
    whole = jobs.attempts.complete(job)
    assert [attempt.attempt for attempt in whole.attempts.values()] == [*range(39, 0, -1), 40]
    assert all(attempt.exit and attempt.exit.report for attempt in whole.attempts.values())
    outlined = jobs.attempts.outline(job)
    assert [one.log_end for one in outlined.attempts.values()] == [4711] * 40


def test_stats_without_number_make_no_job_large_for_those_who_read_many_at_once(
    database: Database[dict[str, Any]], jobs: JobStore, queue: JobQueue
) -> None:
    job = make_job()
    jobs.insert(job)
    after = ended(jobs, begun(jobs, queue, job), size=1_900_000)
    exit_ = after.attempts["1"].exit
    assert exit_
    assert exit_.report
    assert (exit_.report.progress.items_count, exit_.report.finish_reason) == (12, "shutdown")
    assert exit_.report.stats == {"discoverybot/stats_left_out": 19_000}
    assert size_of(database, job) < 5_000


def test_a_job_that_an_older_version_has_filled_up_still_ends(
    database: Database[dict[str, Any]], jobs: JobStore, queue: JobQueue
) -> None:
    job = make_job()
    jobs.insert(job)
    first = ended(jobs, begun(jobs, queue, job), size=104_000)
    record = (database["jobs"].find_one({"_id": job.id}) or {})["attempts"]["1"]
    most = ((16 << 20) - 20_000) // len(bson.encode(record)) + 1
    inside = {f"attempts.{number}": {**record, "attempt": number} for number in range(1, most)}
    running = {"attempt": most, f"attempts.{most}": {"attempt": most, "node": "n1", "dispatched_at": utc_now()}}
    database["jobs"].update_one({"_id": job.id}, {"$set": {**inside, **running}})
    full = jobs.get(job.id)
    assert full.newest == most
    after = ended(jobs, full, size=130_000, attempt=most)
    assert list(after.attempts) == [str(most)]
    assert jobs.finish(after, Outcome(JobStatus.FINISHED, Reason.COMPLETED, "12 pages"))
    assert database["attempts"].count_documents({}) == most - 1
    assert jobs.attempts.complete(after).attempts[str(most - 1)].exit == first.attempts["1"].exit


def test_files_that_are_kept_while_their_attempt_is_moved_are_told(
    database: Database[dict[str, Any]], jobs: JobStore, queue: JobQueue
) -> None:
    job, kept = make_job(), FilesKept(count=3, bytes=99)
    jobs.insert(job)
    first = ended(jobs, begun(jobs, queue, job), files=FilesKept(pending=True))
    record = (database["jobs"].find_one({"_id": job.id}) or {})["attempts"]["1"]
    # a process has died after this copy, and another one has recorded the files since
    database["attempts"].insert_one({**record, "_id": f"{job.id}:000001"})
    assert jobs.record_files(job.id, 1, kept)
    again = begun(jobs, queue, waiting_again(jobs, first))
    assert list(again.attempts) == ["2"]
    assert _files(jobs, again, "1") == kept


def test_files_of_an_attempt_that_was_moved_are_recorded_where_it_is(jobs: JobStore, queue: JobQueue) -> None:
    job, kept = make_job(), FilesKept(count=3, bytes=99)
    jobs.insert(job)
    first = ended(jobs, begun(jobs, queue, job), files=FilesKept(pending=True))
    again = begun(jobs, queue, waiting_again(jobs, first))
    assert jobs.record_files(job.id, 1, kept)
    assert _files(jobs, again, "1") == kept
    assert not jobs.record_files(job.id, 3, kept)


def _files(jobs: JobStore, job: Job, attempt: str) -> FilesKept | None:
    end = jobs.attempts.complete(job).attempts[attempt].exit
    return end.files if end else None


def test_a_late_end_of_an_attempt_that_was_moved_changes_nothing(
    database: Database[dict[str, Any]], jobs: JobStore, queue: JobQueue
) -> None:
    job = make_job()
    jobs.insert(job)
    again = begun(jobs, queue, retried(jobs, queue, ended(jobs, begun(jobs, queue, job), lost=True)))
    before = [*database["jobs"].find(), *database["attempts"].find()]
    assert jobs.record_exit(job.id, 1, facts(job), 9) is None
    assert jobs.has_superseded(AttemptId(job.id, 1))
    assert not jobs.has_superseded(AttemptId(job.id, again.attempt))
    assert [*database["jobs"].find(), *database["attempts"].find()] == before


def test_attempts_that_their_nodes_did_not_start_cost_no_retry_wherever_they_are(
    jobs: JobStore, queue: JobQueue
) -> None:
    job = make_job()
    jobs.insert(job)
    for number in range(1, 12):
        refused = ended(jobs, begun(jobs, queue, job), refused="stale", fault="node", report=None)
        assert refused.failed_attempts == number - 1
        # the newest one has not been decided on
        assert refused.retries == max(-1, number - 1 - 8)
        job = retried(jobs, queue, refused)
        # so does a version count that knows of no attempts outside
        assert job.failures - _refused(list(job.attempts.values())) <= job.retries
    assert job.spared == {"node": 8}


def _refused(attempts: list[Attempt]) -> int:
    return min(8, sum(bool(attempt.exit and attempt.exit.refused) for attempt in attempts))


@pytest.mark.parametrize("is_resumed", [False, True])
def test_the_end_of_an_attempt_that_was_given_up_counts_though_its_job_was_paused(
    jobs: JobStore, queue: JobQueue, *, is_resumed: bool
) -> None:
    job = make_job()
    jobs.insert(job)
    lost = ended(jobs, begun(jobs, queue, job), lost=True, report=None)
    paused = jobs.pause(lost, "paused", utc_now() + timedelta(days=7))
    assert paused
    if is_resumed:
        assert jobs.resume(paused)
    recorded = jobs.record_exit(job.id, 1, facts(lost), 4711)
    assert recorded
    assert (recorded.status, recorded.failures, recorded.expires_at) == (JobStatus.RUNNING, 0, None)
    assert (recorded.attempts["1"].status, recorded.attempts["1"].log_end) == (None, 4711)
    assert jobs.finish(recorded, Outcome(JobStatus.FINISHED, Reason.COMPLETED, "12 pages"))


def test_a_retry_that_was_for_nothing_is_taken_back_once(jobs: JobStore, queue: JobQueue) -> None:
    job = make_job()
    jobs.insert(job)
    first = begun(jobs, queue, retried(jobs, queue, ended(jobs, begun(jobs, queue, job), exit_code=1, report=None)))
    lost = ended(jobs, first, lost=True, report=None)
    assert retried(jobs, queue, lost).failures == 2
    recorded = jobs.record_exit(job.id, 2, facts(first), 4711)
    assert recorded
    assert (recorded.status, recorded.failures) == (JobStatus.RUNNING, 1)
    assert jobs.record_exit(job.id, 2, facts(first), 4711) is None


def test_what_nodes_say_does_not_fill_the_job(
    database: Database[dict[str, Any]], jobs: JobStore, queue: JobQueue
) -> None:
    job = make_job()
    jobs.insert(job)
    for number in range(1, 60):
        assigned(queue, job, attempt=number)
        assert queue.release(jobs.get(job.id), not_before=utc_now() - timedelta(seconds=1), message="no! " * 50_000)
        queue.end_backoffs()
    assert size_of(database, job) < 50_000
    assert (jobs.get(job.id).message or "").startswith("no! no!")
