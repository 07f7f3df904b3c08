from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jobs import assigned, make_job
from killed import killed_everywhere
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import AutoReconnect
from scheduled import make_schedule
from stores import REAL_BACKENDS

from gateway.clock import utc_now
from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport, Progress, SpiderReport
from gateway.errors import IdempotencyConflictError, JobExistsError, JobNotFoundError, LiveTwinError
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.outcome import Outcome
from gateway.jobs.queue import JobQueue
from gateway.jobs.store import IdempotencyKeys, JobStore
from gateway.schedules.store import ScheduleStore

#: mongomock does not follow the bulk writes of PyMongo.
on_servers = pytest.mark.parametrize("database", REAL_BACKENDS, indirect=True)

FINISHED = Outcome(JobStatus.FINISHED, Reason.COMPLETED, "12 pages")


def running(jobs: JobStore, queue: JobQueue, **fields: Any) -> Job:
    job = make_job(**fields)
    jobs.insert(job)
    started = jobs.mark_running(job.id, assigned(queue, job))
    assert started is not None
    return started


def ended(jobs: JobStore, job: Job, **more: Any) -> Job:
    progress = Progress(completed_pages=12, items_count=12)
    report = SpiderReport(finish_reason="finished", progress=progress, ended_at=utc_now())
    facts = ExitReport(attempt=job.attempt, ended_at=utc_now(), exit_code=0, report=report, **more)
    recorded = jobs.record_exit(job.id, job.attempt, facts, 4711)
    assert recorded is not None
    return recorded


def test_a_job_reads_back_as_it_was_written(jobs: JobStore) -> None:
    job = make_job(tags=["a"], priority=3, webhooks=["http://hook.example/"], correlation_id="r1")
    jobs.insert(job)
    assert jobs.get(job.id) == job


def test_a_job_that_is_not_there_is_an_error(jobs: JobStore) -> None:
    with pytest.raises(JobNotFoundError):
        jobs.get("0" * 32)


def test_each_unique_key_has_its_own_error(jobs: JobStore) -> None:
    job = make_job(fingerprint="f", idempotency_key="ada:k")
    jobs.insert(job)
    with pytest.raises(JobExistsError):
        jobs.insert(make_job(id=job.id))
    with pytest.raises(LiveTwinError):
        jobs.insert(make_job(fingerprint="f"))
    with pytest.raises(IdempotencyConflictError):
        jobs.insert(make_job(idempotency_key="ada:k"))
    assert jobs.find_live("f") == job
    assert jobs.find_idempotent("ada:k") == job
    assert jobs.find_live("g") is None


def test_an_overtaken_job_gives_up_its_key_and_lives_on(jobs: JobStore) -> None:
    job = make_job(fingerprint="f")
    jobs.insert(job)
    jobs.overtake("f")
    jobs.insert(make_job(fingerprint="f"))
    assert jobs.get(job.id).live_key is None


@on_servers
def test_running_is_marked_once(jobs: JobStore, queue: JobQueue) -> None:
    job = make_job()
    jobs.insert(job)
    assignment = assigned(queue, job)
    started = jobs.mark_running(job.id, assignment)
    assert started is not None
    assert (started.status, started.assignment, started.attempts["1"].node) == (JobStatus.RUNNING, None, "n1")
    assert jobs.mark_running(job.id, assignment) is None


@on_servers
def test_a_start_is_recorded_once_and_for_the_job_too(jobs: JobStore, queue: JobQueue) -> None:
    job = running(jobs, queue)
    began = utc_now()
    assert jobs.record_started(job.id, 1, began)
    assert not jobs.record_started(job.id, 1, began + timedelta(seconds=1))
    assert not jobs.record_started(job.id, 2, began)
    after = jobs.get(job.id)
    assert (after.started_at, after.attempts["1"].started_at) == (began, began)


@on_servers
def test_progress_is_of_the_running_attempt_only(jobs: JobStore, queue: JobQueue) -> None:
    job = running(jobs, queue)
    jobs.record_progress(job.id, 2, Progress(completed_pages=99))
    jobs.record_progress(job.id, 1, Progress(completed_pages=5))
    assert jobs.get(job.id).progress == Progress(completed_pages=5)


@on_servers
def test_an_exit_is_recorded_once(jobs: JobStore, queue: JobQueue) -> None:
    job = running(jobs, queue)
    recorded = ended(jobs, job)
    assert (recorded.attend_at is not None, recorded.attempts["1"].log_end) == (True, 4711)
    facts = ExitReport(attempt=1, ended_at=utc_now(), exit_code=1)
    assert jobs.record_exit(job.id, 1, facts, 1) is None
    assert jobs.record_exit(job.id, 7, facts, 1) is None


@on_servers
def test_a_job_ends_once_and_keeps_the_last_counts(jobs: JobStore, queue: JobQueue) -> None:
    job = ended(jobs, running(jobs, queue))
    finished = jobs.finish(job, FINISHED)
    assert finished is not None
    assert (finished.status, finished.settled, finished.live_key) == ("finished", False, None)
    assert finished.progress is not None
    assert finished.progress.completed_pages == 12
    assert finished.attempts["1"].message == "12 pages"
    assert jobs.finish(job, FINISHED) is None


@on_servers
def test_a_failed_attempt_is_followed_by_another(jobs: JobStore, queue: JobQueue) -> None:
    job = ended(jobs, running(jobs, queue))
    later = utc_now() + timedelta(seconds=2)
    waiting = jobs.retry(job, Outcome(JobStatus.ERROR, Reason.REQUESTS_FAILED, "crashed", retryable=True), later)
    assert waiting is not None
    assert (waiting.status, waiting.failures, waiting.not_before) == (JobStatus.PENDING, 1, later)
    assert (waiting.attend_at, waiting.avoid, waiting.progress) == (later, ["n1"], None)
    assert waiting.attempts["1"].status is JobStatus.ERROR
    assert waiting.live_key is not None
    assert jobs.retry(job, FINISHED, later) is None


@on_servers
def test_an_attempt_that_can_go_on_is_followed_by_one_on_the_same_node(jobs: JobStore, queue: JobQueue) -> None:
    job = ended(jobs, running(jobs, queue), can_go_on=True)
    waiting = jobs.retry(job, Outcome(JobStatus.ERROR, Reason.REQUESTS_FAILED, "killed", retryable=True), utc_now())
    assert waiting is not None
    assert (waiting.prefer, waiting.avoid) == ("n1", [])


def test_a_cancellation_is_asked_once_and_only_of_the_living(jobs: JobStore) -> None:
    job = make_job()
    jobs.insert(job)
    asked = jobs.request_cancel(job.id)
    assert asked is not None
    assert asked.cancel_requested_at is not None
    assert jobs.request_cancel(job.id) is None
    assert jobs.finish(asked, Outcome(JobStatus.CANCELLED, Reason.CANCELLED, "cancelled on request")) is not None
    assert jobs.request_cancel(job.id) is None


def test_only_settled_jobs_can_be_deleted(jobs: JobStore) -> None:
    job = make_job(status=JobStatus.RUNNING)
    jobs.insert(job)
    finished = jobs.finish(job, FINISHED)
    assert finished is not None
    assert not jobs.delete(job.id)
    jobs.settle(job.id)
    assert jobs.get(job.id).settled
    assert jobs.delete(job.id)
    assert not jobs.delete(job.id)


def test_a_webhook_is_added_once(jobs: JobStore) -> None:
    job = make_job()
    jobs.insert(job)
    for _ in range(2):
        jobs.add_webhook(job.id, "http://hook.example/")
    assert jobs.get(job.id).webhooks == ["http://hook.example/"]


@pytest.mark.parametrize("first", ["job", "schedule"])
def test_one_idempotency_key_is_of_a_job_or_of_a_schedule(served: Database[dict[str, Any]], first: str) -> None:
    jobs, schedules = JobStore(served), ScheduleStore(served)
    makes: dict[str, Callable[[], None]] = {
        "job": lambda: jobs.insert(make_job(idempotency_key="ada:k")),
        "schedule": lambda: schedules.insert(make_schedule(idempotency_key="ada:k")),
    }
    makes.pop(first)()
    (other,) = makes.values()
    with pytest.raises(IdempotencyConflictError):
        other()
    # as versions before this one left it, or a day later
    IdempotencyKeys(served).forget(utc_now() + timedelta(days=1))
    with pytest.raises(IdempotencyConflictError):
        other()
    assert served["jobs"].count_documents({}) + served["schedules"].count_documents({}) == 1


def breaks_once(monkeypatch: pytest.MonkeyPatch, name: str, *, after: bool) -> None:
    """The connection breaks at the next insert into the collection, after it was carried out or before."""
    insert, left = Collection.insert_one, [name]

    def insert_one(self: Collection[Any], document: Any) -> Any:
        if self.name not in left:
            return insert(self, document)
        left.clear()
        if after:
            insert(self, document)
        raise AutoReconnect(name)

    monkeypatch.setattr(Collection, "insert_one", insert_one)


def test_an_insert_that_is_repeated_takes_nothing_of_others_for_its_own(
    served: Database[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, keys, job = JobStore(served), IdempotencyKeys(served), make_job()
    breaks_once(monkeypatch, "jobs", after=True)
    jobs.insert(job)
    breaks_once(monkeypatch, "jobs", after=False)
    with pytest.raises(JobExistsError):
        jobs.insert(job.model_copy(update={"created_at": job.created_at + timedelta(seconds=1)}))
    breaks_once(monkeypatch, "idempotency_keys", after=True)
    keys.claim("ada:k", "schedule")
    breaks_once(monkeypatch, "idempotency_keys", after=False)
    keys.claim("ada:k", "schedule")
    breaks_once(monkeypatch, "idempotency_keys", after=False)
    with pytest.raises(IdempotencyConflictError):
        keys.claim("ada:k", "job")


def test_of_simultaneous_requests_with_one_key_one_is_carried_out(served: Database[dict[str, Any]]) -> None:
    jobs, schedules = JobStore(served), ScheduleStore(served)

    def ask(number: int) -> None:
        key = f"ada:{number // 8}"
        with suppress(IdempotencyConflictError):
            if number % 2:
                jobs.insert(make_job(idempotency_key=key))
            else:
                schedules.insert(make_schedule(idempotency_key=key))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(ask, range(160)))
    made = [found["idempotency_key"] for name in ("jobs", "schedules") for found in served[name].find()]
    assert sorted(made) == sorted(f"ada:{number}" for number in range(20))


STORY = """
from jobs import make_job
from gateway.stores.mongo import connect
from gateway.jobs.store import JobStore

def tell(uri):
    jobs = JobStore(connect(uri))
    if jobs.find_idempotent("ada:k") is None:
        jobs.insert(make_job(idempotency_key="ada:k"))
"""


def test_whoever_is_killed_after_claiming_a_key_may_ask_again(embedded_uri: str, tmp_path: Path) -> None:
    killed_everywhere(tmp_path, ("idempotency_keys.claim", "jobs.insert"), STORY, embedded_uri, beside=__file__)
