"""An answer as an object: what it does not know is kept, times are times, and objects inside of it are objects."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, date, datetime

import httpx2
import pytest

from discoverybot_client import Client, Event, FileRecord, Health, Job, LogLine, RunDays
from discoverybot_client.answers import Attempt, HealthCheck, JobRecord, ScheduleRecord


def test_fields_that_are_not_known_are_kept() -> None:
    job = JobRecord({"job_id": "5f", "colour": "blue", "finished_at": "2027-06-01T09:00:00.250Z"})
    assert job.colour == "blue"
    assert job.finished_at == datetime(2027, 6, 1, 9, 0, 0, 250_000, tzinfo=UTC)
    assert job.raw["finished_at"] == "2027-06-01T09:00:00.250Z"
    assert job.message is None, "the answer lacks it"
    with pytest.raises(AttributeError, match="JobRecord has no 'color'"):
        _ = job.color


def test_the_fields_that_there_are_can_be_listed() -> None:
    job = JobRecord({"job_id": "5f", "status": "running"})
    assert ("status" in job, "message" in job, list(job)) == (True, False, ["job_id", "status"])


def test_an_object_of_a_client_can_be_copied() -> None:
    answers = httpx2.MockTransport(lambda _: httpx2.Response(200, json={"job_id": "5f", "status": "running"}))
    with Client("http://127.0.0.1:9", transport=answers) as client:
        job = client.job("5f")
        copied = copy.deepcopy(job)
        assert (copied, copied.raw is job.raw, copied.refresh().status) == (job, False, "running")


def test_a_job_of_a_list_is_the_same_with_all_its_fields() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        job = {"job_id": "5f", "status": "running"}
        return httpx2.Response(200, json={"jobs": [job], "next": None} if request.url.path == "/jobs" else job)

    with Client("http://127.0.0.1:9", transport=httpx2.MockTransport(answer)) as client:
        (row,), job = client.jobs(), client.job("5f")
    assert isinstance(job, Job)
    assert (row, hash(row), repr(row)) == (job, hash(job), repr(job))
    assert job != JobRecord(job.raw)


def test_objects_inside_are_records_with_times() -> None:
    ended = {"attempt": 1, "ended_at": "2027-06-01T09:00:00Z", "exit": None}
    job = JobRecord({"job_id": "5f", "attempts": [ended], "spec": {"params": {"a": 1}}})
    assert job.attempts is not None
    (attempt,) = job.attempts
    assert isinstance(attempt, Attempt)
    assert (attempt.ended_at, attempt.exit) == (datetime(2027, 6, 1, 9, tzinfo=UTC), None)
    assert job.spec is not None
    assert job.spec.params == {"a": 1}
    assert job["attempts"] == [ended], "as it came"
    days = RunDays({"total": {"runs": 1}, "days": [{"day": "2027-06-01", "runs": 1}]}).days
    assert days[0].day == date(2027, 6, 1)
    checks = Health({"status": "ok", "checks": {"mongodb": {"status": "ok", "message": "it answers"}}}).checks
    assert isinstance(checks["mongodb"], HealthCheck)
    assert checks["mongodb"].message == "it answers"


def test_what_is_not_as_described_stays_as_it_is() -> None:
    job = JobRecord({"job_id": "5f", "attempts": "many", "finished_at": 7, "created_at": "yesterday", "spec": ["x"]})
    assert (job.attempts, job.finished_at, job.created_at, job.spec) == ("many", 7, "yesterday", ["x"])


def test_records_can_be_copied_and_sent_to_other_processes() -> None:
    job = JobRecord({"job_id": "5f", "status": "running"})
    for same in (copy.deepcopy(job), pickle.loads(pickle.dumps(job))):
        assert (same, same.status) == (job, "running")


def test_what_names_a_thing_makes_it_equal_and_stands_in_its_repr() -> None:
    pending, running = (JobRecord({"job_id": "5f", "status": status}) for status in ("pending", "running"))
    assert pending == running
    assert {pending: "one"}[running] == "one"
    assert pending not in (JobRecord({"job_id": "6a", "status": "pending"}), "5f")
    assert repr(running) == "JobRecord('5f', status='running')"
    assert repr(ScheduleRecord({"schedule_id": "0d", "name": "mornings", "state": "active", "spider": "seo"})) == (
        "ScheduleRecord('0d', name='mornings', interval=None, state='active')"
    )
    assert pending != ScheduleRecord({"schedule_id": "5f"})


def test_objects_without_a_name_are_equal_if_their_values_are() -> None:
    file = FileRecord({"name": "report.pdf", "size": 7, "attempt": 1})
    assert file == FileRecord({"attempt": 1, "size": 7, "name": "report.pdf"})
    assert file != FileRecord({**file.raw, "attempt": 2})
    assert file != Attempt(file.raw)
    assert repr(file) == "FileRecord(name='report.pdf', size=7, attempt=1)"
    assert len({file, FileRecord({"attempt": 1, "size": 7, "name": "report.pdf"})}) == 1
    job = JobRecord({"job_id": "5f", "spec": {"spider": "seo", "params": {"a": 1}}})
    assert job.spec == job.spec


def test_a_record_becomes_a_dictionary_with_its_fields_as_they_came() -> None:
    told = {"job_id": "5f", "finished_at": "2027-06-01T09:00:00Z"}
    assert dict(JobRecord(told)) == {**JobRecord(told)} == told


def test_attributes_are_listed() -> None:
    assert {"job_id", "finished_at", "colour", "raw"} <= set(dir(JobRecord({"job_id": "5f", "colour": "blue"})))


def test_lines_are_printed_as_people_read_them() -> None:
    head = {"ts": "2027-06-01T09:00:01.250Z", "level": "ERROR", "logger": "seo", "msg": "it broke", "new": 1}
    assert str(LogLine.of(Event("log", "1-20", head))) == "09:00:01 ERROR    it broke"
    assert (
        str(LogLine.of(Event("log", "1-30", {"level": "ERROR", "msg": "  at line 3", "cont": True}))) == "  at line 3"
    )
    gap = LogLine.of(Event("gap", "1-50", {"from": "1-30", "to": "1-50"}))
    assert (gap.is_gap, gap.msg, gap.id) == (True, "lines from 1-30 to 1-50 are not kept", "1-50")
