"""Whatever lies in an attempt's folder under the name of a file: nobody waits for it, follows it or drowns in it."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hostile import KINDS, fill_tree, plant

from gateway.contract.outbox import (
    LOG,
    MAX_RECORD,
    MOST_HOSTS,
    PROGRESS,
    REPORT,
    SPEC,
    STARTED,
    HostileFileError,
    file_size,
    is_held,
    is_locked,
    is_there,
    open_file,
    read_file,
    read_part,
    remove_tree,
    stopping_reason,
    write_atomically,
    write_exclusively,
)
from gateway.contract.records import MAX_VALUES, NodeSpec, Progress, SpiderReport, read_record

ATTEMPT = f"{'a' * 32}-1"
DEPTH = 1500
MANY = 20_000


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / ATTEMPT
    folder.mkdir()
    yield folder
    # what is left by a test that fails is too deep for pytest
    remove_tree(folder)


#: All but what is a file, if one without an end.
HOSTILE = [kind for kind in KINDS if kind != "file without end"]


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest, folder: Path) -> Path:
    path = folder / REPORT
    plant(path, request.param)
    return path


def test_nothing_but_a_regular_file_is_opened_and_the_error_names_it(hostile: Path) -> None:
    for use in (open_file, read_file, file_size, lambda path: read_part(path, 0, 10)):
        with pytest.raises(HostileFileError, match=REPORT):
            use(hostile)
    with pytest.raises(HostileFileError, match=REPORT):
        open_file(hostile, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    assert read_record(hostile, SpiderReport) is None


def test_what_is_taken_stays_taken_and_everything_else_can_be_replaced(hostile: Path) -> None:
    assert is_there(hostile)
    assert not write_exclusively(hostile, b"ours")
    if hostile.is_dir():
        with pytest.raises(OSError, match=REPORT):
            write_atomically(hostile, b"ours")
    else:
        write_atomically(hostile, b"ours")
        assert hostile.read_bytes() == b"ours"
    assert [entry.name for entry in hostile.parent.iterdir()] == [REPORT]


def test_a_mark_or_a_reason_that_is_none_says_nothing(folder: Path) -> None:
    for kind in HOSTILE:
        for name in (STARTED, "stopping"):
            plant(folder / name, kind)
        assert not is_locked(folder)
        assert stopping_reason(folder) is None
        assert remove_tree(folder)
        folder.mkdir()


def test_a_lock_is_seen_whose_file_others_may_only_look_at(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch(0o444)
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert is_held(lock)
    assert not is_held(lock)


def test_a_file_is_read_up_to_what_it_may_have_and_not_at_all_beyond(folder: Path) -> None:
    (folder / REPORT).write_bytes(b"x" * MAX_RECORD)
    assert len(read_file(folder / REPORT)) == MAX_RECORD
    (folder / REPORT).write_bytes(b"x" * (MAX_RECORD + 1))
    with pytest.raises(HostileFileError, match=r"report\.json is larger than"):
        read_file(folder / REPORT)
    plant(folder / PROGRESS, "file without end")
    assert read_record(folder / PROGRESS, Progress) is None
    assert file_size(folder / PROGRESS) == 1 << 42


def test_a_file_that_changes_all_the_time_is_read_for_a_moment_only(folder: Path) -> None:
    """It grows, is cut, and is put in the place of others."""
    path, done = folder / LOG, threading.Event()

    def change() -> None:
        while not done.is_set():
            path.write_bytes(b"x" * 100_000)
            os.truncate(path, 10)
            path.with_name("next").write_bytes(b"y" * 100_000)
            path.with_name("next").replace(path)
            path.unlink()

    writer = threading.Thread(target=change)
    writer.start()
    try:
        for _ in range(2000):
            assert len(read_part(path, 50_000, 60_000)) <= 60_000
            assert file_size(path) <= 100_000
    finally:
        done.set()
        writer.join()


def test_a_folder_that_is_a_link_is_not_entered(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / LOG).write_bytes(b"another's")
    folder.rmdir()
    folder.symlink_to(tmp_path / "other")
    writers = [partial(write_atomically, data=b""), partial(write_exclusively, data=b"")]
    for use in (read_file, file_size, *writers):
        with pytest.raises(HostileFileError, match=ATTEMPT):
            use(folder / LOG)
    assert (tmp_path / "other" / LOG).read_bytes() == b"another's"


def test_where_nobody_else_writes_a_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "node").symlink_to(tmp_path / "disk")
    write_atomically(tmp_path / "node" / "catalog.json", b"[]")
    assert read_file(tmp_path / "node" / "catalog.json") == b"[]"


def test_a_file_under_way_is_written_where_nobody_could_have_put_anything(folder: Path) -> None:
    """Its name used to tell the process; a FIFO there, or a link, waited for whoever would write."""
    for name in (f".{REPORT}.{os.getpid()}", f".exit.json.{os.getpid()}"):
        os.mkfifo(folder / name)
    write_atomically(folder / REPORT, b"{}")
    assert write_exclusively(folder / "exit.json", b"{}")


def test_a_tree_of_any_depth_width_and_permission_is_removed_and_no_link_is_followed(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (folder / "link").symlink_to(tmp_path / "kept")
    os.mkfifo(folder / "fifo")
    fill_tree(folder, depth=DEPTH, files=MANY)
    assert remove_tree(folder)
    assert not folder.exists()
    assert (tmp_path / "kept" / "file").exists()


def test_a_link_in_the_place_of_a_tree_is_all_that_is_removed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    assert remove_tree(tmp_path / "link")
    assert folder.exists()
    assert remove_tree(tmp_path / "none")


def test_a_file_that_may_not_be_read_says_so() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / REPORT).touch(0)
        with as_nobody(), pytest.raises(HostileFileError, match=r"report\.json may not be opened"):
            read_file(folder / REPORT)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_record_that_would_take_seconds_to_read_is_none(tmp_path: Path) -> None:
    folder = tmp_path / ATTEMPT
    folder.mkdir()
    spec = b'{"job_id": "a", "attempt": 1, "project": "p", "spider": "s", "not_after": "2030-01-01T00:00:00Z", %b}'
    lists = b'"start_urls": [], "more": [%b[]]' % (b"[]," * (MAX_VALUES // 2))
    urls = b'"start_urls": [%b]' % b",".join([b'"http://a.b/?c[],"'] * (MAX_VALUES // 2))
    (folder / SPEC).write_bytes(spec % lists)
    began = time.process_time()
    assert read_record(folder / SPEC, NodeSpec) is None
    assert time.process_time() - began < 1
    (folder / SPEC).write_bytes(spec % urls)
    read = read_record(folder / SPEC, NodeSpec)
    assert read is not None
    assert len(read.start_urls) == MAX_VALUES // 2


@pytest.mark.parametrize("given", ["null", '"a"', "[1, null, {}]", '["", "' + "x" * 300 + '"]'])
def test_hosts_that_are_none_cost_no_other_figure(given: str) -> None:
    progress = Progress.model_validate_json(f'{{"items_count": 3, "hosts": {given}}}')
    assert (progress.items_count, progress.hosts) == (3, [])


def test_of_many_hosts_the_first_ones_are_taken() -> None:
    hosts = [f"Host{number}.example" for number in range(MOST_HOSTS + 1)]
    assert Progress.model_validate({"hosts": hosts}).hosts == [one.lower() for one in hosts[:MOST_HOSTS]]
