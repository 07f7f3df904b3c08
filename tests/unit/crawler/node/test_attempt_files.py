"""The files of an attempt: its mark, and how it ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from crawler.node.attempt_files import LOG_TAIL, read_log_tail, write_refusal
from crawler.node.started_mark import StartedMark, read_mark
from gateway.clock import utc_now
from gateway.contract.outbox import AttemptId, is_locked
from gateway.contract.records import ExitReport, read_record


def test_a_mark_is_made_once(tmp_path: Path) -> None:
    now = utc_now()
    mark = StartedMark.make(tmp_path, now)
    assert mark is not None
    assert StartedMark.make(tmp_path, now) is None
    assert is_locked(tmp_path)
    assert read_mark(tmp_path) == (None, now)
    mark.note_pid(4_194_303)
    assert read_mark(tmp_path) == (4_194_303, now)
    mark.release()
    assert not is_locked(tmp_path)
    assert StartedMark.make(tmp_path, now) is None
    assert [path.name for path in tmp_path.iterdir()] == ["started"]


def test_the_lock_lives_as_long_as_the_process_that_inherited_it(tmp_path: Path) -> None:
    mark = StartedMark.make(tmp_path, utc_now())
    assert mark is not None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[mark.fd]) as child:
        mark.release()
        assert is_locked(tmp_path)
        child.kill()
    assert not is_locked(tmp_path)


def test_where_there_is_no_mark_or_no_sense_in_it_nothing_is_known(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert read_mark(tmp_path) == (None, None)
    moment = '"started_at": "2027-06-01T09:00:01Z"'
    of_pids = [f'{{{moment}, "pid": {pid}}}' for pid in ("1", "-1", "true", '"7"', "[]", 10**20)]
    of_times = [f'{{"started_at": {time}, "pid": 7}}' for time in ("5", "null", '"2027-06-01T09:00:01"', "[]")]
    for text in ("", "{", "[]", '{"pid": 1}', "[" * 4000, *of_pids, *of_times):
        (tmp_path / "started").write_text(text)
        assert read_mark(tmp_path) == (None, None)


def test_who_inherits_a_mark_cannot_change_what_it_says(tmp_path: Path) -> None:
    mark = StartedMark.make(tmp_path, utc_now())
    assert mark is not None
    said = read_mark(tmp_path)
    forge = "import os, sys; os.pwrite(int(sys.argv[1]), b'{}', 0)"
    done = subprocess.run([sys.executable, "-c", forge, str(mark.fd)], pass_fds=[mark.fd], check=False, stderr=-1)
    assert b"Bad file descriptor" in done.stderr
    assert read_mark(tmp_path) == said
    mark.release()


def test_making_marks_leaks_no_descriptor(tmp_path: Path) -> None:
    first = StartedMark.make(tmp_path, utc_now())
    before = len(list(Path("/dev/fd").iterdir()))
    assert [StartedMark.make(tmp_path, utc_now()) for _ in range(5)] == [None] * 5
    assert len(list(Path("/dev/fd").iterdir())) == before
    assert first is not None
    first.release()


# --- how it ended


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
