from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from crawler.node.attempt_files import StartedMark, read_mark
from gateway.clock import utc_now
from gateway.contract.outbox import is_locked


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
    for text in ("", "{", "[]", '{"pid": 1}'):
        (tmp_path / "started").write_text(text)
        assert read_mark(tmp_path) == (None, None)


def test_making_marks_leaks_no_descriptor(tmp_path: Path) -> None:
    first = StartedMark.make(tmp_path, utc_now())
    before = len(list(Path("/dev/fd").iterdir()))
    assert [StartedMark.make(tmp_path, utc_now()) for _ in range(5)] == [None] * 5
    assert len(list(Path("/dev/fd").iterdir())) == before
    assert first is not None
    first.release()
