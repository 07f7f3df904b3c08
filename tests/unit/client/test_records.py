"""What the client says of an answer is in the API's description, and what it does not know is kept."""

from __future__ import annotations

from datetime import UTC, datetime
from inspect import get_annotations

import pytest
from described import document

from discoverybot_client import (
    Change,
    DatasetItem,
    DeliveryRecord,
    Event,
    FileRecord,
    LogLine,
    ProjectRecord,
    SpiderRecord,
)
from discoverybot_client.records import DatasetRecord, EndpointRecord, JobRecord, Record, ScheduleRecord

#: Each with the schemas of its answers.
RECORDS: dict[type[Record], tuple[str, ...]] = {
    JobRecord: ("JobDetail", "JobSummary", "JobStatusView"),
    ScheduleRecord: ("ScheduleView", "ScheduleSummary"),
    SpiderRecord: ("SpiderView",),
    FileRecord: ("FileView",),
    DatasetRecord: ("DatasetView",),
    DatasetItem: ("RecordView",),
    Change: ("ChangeView",),
    EndpointRecord: ("MadeEndpoint", "EndpointView"),
    DeliveryRecord: ("DeliveryView",),
    ProjectRecord: ("ProjectView",),
}
#: Methods have these names.
METHODS = {(DatasetRecord, "items")}


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_the_fields_of_records_are_those_of_answers(kind: type[Record]) -> None:
    fields = {name: str(annotation) for name, annotation in get_annotations(kind).items()}
    schemas = document()["components"]["schemas"]
    first, *more = (schemas[name]["properties"] for name in RECORDS[kind])
    assert fields.keys() == {name for name in first if (kind, name) not in METHODS}
    for name, annotation in fields.items():
        if annotation == "Any":  # an object, whose fields checkers do not know
            assert "$ref" in str(first[name]), name
            continue
        is_time = "date-time" in str(first[name])
        assert is_time == ("datetime" in annotation), name
        is_sure = "null" not in str(first[name]) and all(name in other for other in more)
        assert is_sure or annotation.endswith("| None"), name


def test_fields_that_are_not_known_are_kept() -> None:
    job = JobRecord({"job_id": "5f", "colour": "blue", "finished_at": "2027-06-01T09:00:00.250Z"})
    assert job.colour == "blue"
    assert job.finished_at == datetime(2027, 6, 1, 9, 0, 0, 250_000, tzinfo=UTC)
    assert job.raw["finished_at"] == "2027-06-01T09:00:00.250Z"
    assert job.message is None, "the answer lacks it"
    with pytest.raises(AttributeError, match="JobRecord has no 'color'"):
        _ = job.color


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


def test_an_object_without_a_name_is_equal_to_itself_alone() -> None:
    file = FileRecord({"name": "report.pdf", "size": 7, "attempt": 1})
    assert file == file  # noqa: PLR0124 - that is the question
    assert file != FileRecord(file.raw), "it may be another job's"
    assert repr(file) == "FileRecord(name='report.pdf', size=7, attempt=1)"
    assert len({file, FileRecord(file.raw)}) == 2


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
