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


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_the_fields_of_records_are_those_of_answers(kind: type[Record]) -> None:
    fields = {name: str(annotation) for name, annotation in get_annotations(kind).items()}
    schemas = document()["components"]["schemas"]
    first, *more = (schemas[name]["properties"] for name in RECORDS[kind])
    assert fields.keys() <= first.keys()
    for name, annotation in fields.items():
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


def test_lines_are_printed_as_people_read_them() -> None:
    head = {"ts": "2027-06-01T09:00:01.250Z", "level": "ERROR", "logger": "seo", "msg": "it broke", "new": 1}
    assert str(LogLine.of(Event("log", "1-20", head))) == "09:00:01 ERROR    it broke"
    assert (
        str(LogLine.of(Event("log", "1-30", {"level": "ERROR", "msg": "  at line 3", "cont": True}))) == "  at line 3"
    )
    gap = LogLine.of(Event("gap", "1-50", {"from": "1-30", "to": "1-50"}))
    assert (gap.is_gap, gap.msg, gap.id) == (True, "lines from 1-30 to 1-50 are not kept", "1-50")
