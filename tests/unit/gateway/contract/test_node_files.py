from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway.contract.outbox import AttemptId, write_atomically, write_exclusively
from gateway.contract.records import ExitReport, SpiderReport, read_record

JOB = "0123456789abcdef0123456789abcdef"


def test_an_attempt_id_reads_back_as_written() -> None:
    assert AttemptId.parse(f"{JOB}-12") == AttemptId(JOB, 12)
    assert str(AttemptId(JOB, 12)) == f"{JOB}-12"


@pytest.mark.parametrize("text", ["", "../../x", f"{JOB}-0", f"{JOB}-01", f"{JOB}", f"{JOB}-1\n", f"{JOB.upper()}-1",
                                  f"{JOB}-9999999", f"/{JOB}-1"])  # fmt: skip
def test_what_is_not_an_attempt_id_is_never_taken_for_one(text: str) -> None:
    assert AttemptId.parse(text) is None


def test_an_exclusive_file_has_one_writer_and_its_full_content(tmp_path: Path) -> None:
    path = tmp_path / "exit.json"
    assert write_exclusively(path, b"first")
    assert not write_exclusively(path, b"second")
    assert path.read_bytes() == b"first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["exit.json"]


def test_a_record_survives_a_round_trip_and_half_of_one_is_no_record(tmp_path: Path) -> None:
    record = ExitReport(attempt=1, ended_at=datetime(2027, 6, 1, tzinfo=UTC), exit_code=0)
    path = tmp_path / "exit.json"
    write_atomically(path, record.model_dump_json().encode())
    assert read_record(path, ExitReport) == record
    path.write_bytes(path.read_bytes()[:-5])
    assert read_record(path, ExitReport) is None
    assert read_record(tmp_path / "none", ExitReport) is None


def test_json_that_nests_without_end_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b'{"stats":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert read_record(path, SpiderReport) is None


def test_half_surrogate_pairs_and_counts_beyond_bson_cost_no_record(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(
        b'{"finish_reason":"\\ud800","ended_at":"2027-06-01T09:00:00Z","progress":{"items_count":99999999999999999999},'
        b'"errors":[{"url":"http://x/\\udfff","reason":"r"}],"stats":{"\\ud800":"\\ud800"}}'
    )
    record = read_record(path, SpiderReport)
    assert record is not None
    assert (record.finish_reason, record.errors[0]["url"], record.stats) == ("?", "http://x/?", {"?": "?"})
    assert record.progress.items_count == 2**63 - 1
    record.model_dump_json()
