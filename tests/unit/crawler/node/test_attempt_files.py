from __future__ import annotations

from pathlib import Path

from crawler.node.attempt_files import LOG_TAIL, read_log_tail, write_refusal
from gateway.contract.outbox import AttemptId, ExitReport, read_record


def test_the_tail_of_a_log_begins_with_a_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "crawl.log"
    log.write_bytes(b"".join(b"line %d\n" % number for number in range(1000)))
    tail = read_log_tail(log)
    assert tail is not None
    assert tail.endswith("line 999\n")
    assert all(line.startswith("line ") for line in tail.splitlines())
    assert len(tail) <= LOG_TAIL


def test_a_tail_survives_what_is_no_text_and_no_line(tmp_path: Path) -> None:
    log = tmp_path / "crawl.log"
    log.write_bytes(b"\xff" * (LOG_TAIL + 10))
    assert read_log_tail(log) == "�" * LOG_TAIL
    log.write_bytes(b"")
    assert read_log_tail(log) is None
    assert read_log_tail(tmp_path / "missing") is None


def test_the_first_report_of_an_end_is_the_one_that_stays(tmp_path: Path) -> None:
    attempt = AttemptId("0" * 32, 3)
    write_refusal(tmp_path, attempt, "stale")
    write_refusal(tmp_path, attempt, "cancelled")
    report = read_record(tmp_path / "exit.json", ExitReport)
    assert report is not None
    assert (report.attempt, report.refused) == (3, "stale")
