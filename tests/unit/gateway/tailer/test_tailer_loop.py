from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

from pymongo.errors import ConnectionFailure

from crawler.node.started_mark import StartedMark
from gateway.clock import Clock, utc_now
from gateway.contract.outbox import EXIT, FRONTIER, SHIPPED, SPEC, STARTED, STOPPING, AttemptId
from gateway.tailer.outbox import AttemptFolder, Disk, Outbox, PlainLogs
from gateway.tailer.tailer_loop import Follower, SinkThread

ODD, FINE = AttemptId("a" * 32, 1), AttemptId("b" * 32, 1)


class NoSink:
    name = "nowhere"

    def ship(self, attempt: AttemptFolder) -> bool:
        return not attempt.folder.exists()

    def is_away(self, error: Exception) -> bool:
        return isinstance(error, ConnectionError)


def follower_of(
    outbox: Outbox,
    path: Path,
    clock: Clock = utc_now,
    is_awaited: Callable[[AttemptId], bool] = lambda _: False,
    *,
    begin_anew: Callable[[AttemptId], None] = lambda _: None,
    disk: Disk | None = None,
) -> Follower:
    return Follower(
        outbox, *(SinkThread(NoSink()) for _ in range(3)), keep=timedelta(days=1), is_awaited=is_awaited,
        begin_anew=begin_anew, give_files_up=lambda _: None, disk=disk or Disk(path, 0), clock=clock,
        plain_logs=PlainLogs(path, timedelta(), utc_now),
    )  # fmt: skip


def test_an_attempt_for_which_our_own_code_fails_is_in_nobodys_way(tmp_path: Path) -> None:
    outbox, asked = Outbox(tmp_path, tmp_path / "outbox"), count(1)
    for attempt_id in (ODD, FINE):
        (outbox.path / str(attempt_id)).mkdir(parents=True)

    def clock() -> datetime:
        # the first answer is for the sweep, the second for the first attempt
        if next(asked) == 2:
            raise ArithmeticError
        return utc_now()

    follower = follower_of(outbox, tmp_path, clock)
    follower.sweep()
    assert set(follower.present) == {ODD, FINE}
    assert sum((outbox.path / str(one) / SHIPPED).exists() for one in (ODD, FINE)) == 1


def test_a_spec_with_a_time_at_the_end_of_all_times_is_followed_as_any_other(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, tmp_path / "outbox")
    (outbox.path / str(ODD)).mkdir(parents=True)
    spec = b'{"job_id":"a","attempt":1,"project":"p","spider":"s","start_urls":[],"not_after":"9999-12-31T23:59:59Z"}'
    (outbox.path / str(ODD) / SPEC).write_bytes(spec)
    follower_of(outbox, tmp_path).sweep()
    assert (outbox.path / str(ODD) / SHIPPED).exists()


def test_a_crawl_that_says_that_it_was_never_launched_is_not_believed(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, tmp_path / "outbox")
    folder = outbox.path / str(FINE)
    folder.mkdir(parents=True)
    mark = StartedMark.make(folder, utc_now())
    assert mark is not None
    (folder / STARTED).write_text('{"withdrawn": true}')
    follower_of(outbox, tmp_path).sweep()
    assert not (folder / EXIT).exists()
    mark.release()


def test_what_a_crawl_may_go_on_from_stays_until_its_job_has_ended(tmp_path: Path) -> None:
    outbox, ahead = Outbox(tmp_path, tmp_path / "outbox"), [timedelta()]
    answers = [True]

    def is_awaited(_: AttemptId) -> bool:
        if not answers:
            raise ConnectionFailure
        return answers[0]

    paused, cancelled, late, ended = (AttemptId(letter * 32, 1) for letter in "bcde")
    for attempt_id in (paused, cancelled, late, ended):
        folder = outbox.path / str(attempt_id)
        folder.mkdir(parents=True)
        (folder / EXIT).write_text("{}")
        (folder / SHIPPED).write_text('{"acknowledged": true, "log_end": 0}')
        if attempt_id != ended:
            (folder / FRONTIER).touch()
            (folder / STOPPING).write_text({cancelled: "cancel", late: "entries"}.get(attempt_id, "pause"))
    follower = follower_of(outbox, tmp_path, lambda: utc_now() + ahead[0], is_awaited)
    # however long it is paused, waits, and is paused again
    for days, kept, said in ((0.5, 4, [True]), (2, 1, [True]), (60, 1, [True]), (61, 1, []), (62, 0, [False])):
        ahead[0], answers[:] = timedelta(days=days), said
        follower._ask_at = 0.0
        for _ in range(2):  # the first one finds them
            follower.sweep()
        found = outbox.scan()
        assert len(found) == kept
        assert kept != 1 or found == [paused]


def test_what_a_crawl_may_go_on_from_stays_until_a_later_attempt_has_taken_it_over(tmp_path: Path) -> None:
    outbox, ahead = Outbox(tmp_path, tmp_path / "outbox"), [timedelta()]
    paused, resumed = AttemptId("a" * 32, 1), AttemptId("a" * 32, 2)
    folder = outbox.path / str(paused)
    folder.mkdir(parents=True)
    (folder / EXIT).write_text("{}")
    (folder / SHIPPED).write_text('{"acknowledged": true, "log_end": 0}')
    (folder / FRONTIER).touch()
    follower = follower_of(outbox, tmp_path, lambda: utc_now() + ahead[0], lambda _: True)
    follower.sweep()
    (outbox.path / str(resumed)).mkdir()  # it waits, and has read nothing
    for days in (2, 3):
        ahead[0] = timedelta(days=days)
        follower.sweep()
    assert set(outbox.scan()) == {paused, resumed}
    (folder / FRONTIER).unlink()
    ahead[0] = timedelta(days=4)
    follower.sweep()
    assert outbox.scan() == [resumed]


def test_what_is_kept_does_not_make_a_sweep_ask_for_the_time_more_often(tmp_path: Path) -> None:
    outbox, asked = Outbox(tmp_path, tmp_path / "outbox"), list[datetime]()

    def clock() -> datetime:
        asked.append(utc_now())
        return asked[-1]

    follower = follower_of(outbox, tmp_path, clock)
    times = []
    for letter in "abcdef":
        folder = outbox.path / str(AttemptId(letter * 32, 1))
        folder.mkdir(parents=True)
        (folder / EXIT).write_text("{}")
        (folder / SHIPPED).write_text('{"acknowledged": true, "log_end": 0}')
        follower.sweep()
        asked.clear()
        follower.sweep()
        times.append(len(asked))
    assert len(outbox.scan()) == len(times)
    assert len(set(times)) == 1, f"each attempt that is kept adds to {times}"


class SmallDisk(Disk):
    """It is full while there are more attempts than `room`."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox, self.room = outbox, 9

    def is_full(self) -> bool:
        return len(self.outbox.scan()) > self.room


def test_a_full_disk_takes_paused_crawls_last_and_their_jobs_say_so(tmp_path: Path) -> None:
    outbox, told = Outbox(tmp_path, tmp_path / "outbox"), list[AttemptId]()
    paused, older, newer, ended = (AttemptId(letter * 32, 1) for letter in "abcd")
    for days, attempt_id in enumerate((paused, ended, older, newer)):
        folder = outbox.path / str(attempt_id)
        folder.mkdir(parents=True)
        (folder / EXIT).write_text("{}")
        (folder / SHIPPED).write_text('{"acknowledged": true, "log_end": 0}')
        if attempt_id in {paused, ended}:
            (folder / FRONTIER).touch()
            (folder / STOPPING).write_text("pause")
        at = (utc_now() - timedelta(hours=9 - days)).timestamp()
        os.utime(folder / EXIT, (at, at))

    def begin_anew(attempt_id: AttemptId) -> None:
        if away:
            raise ConnectionFailure
        told.append(attempt_id)

    away, disk = [True], SmallDisk(outbox)
    follower = follower_of(outbox, tmp_path, utc_now, lambda one: one != ended, begin_anew=begin_anew, disk=disk)
    follower.sweep()
    left = []
    for disk.room in (4, 3, 2, 1, 0):
        follower.sweep()
        left.append(set(outbox.scan()))
    # while MongoDB is away, the job cannot say so
    assert left == [{paused, ended, older, newer}, {paused, ended, newer}, {paused, ended}, {paused}, {paused}]
    away.clear()
    follower.sweep()
    assert (outbox.scan(), told) == ([], [paused])


def test_a_folder_that_cannot_be_removed_keeps_no_other_on_a_full_disk(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, tmp_path / "outbox")
    for attempt_id, hours in ((ODD, 2), (FINE, 1)):
        folder = outbox.path / str(attempt_id)
        folder.mkdir(parents=True)
        (folder / EXIT).write_text("{}")
        (folder / SHIPPED).write_text('{"acknowledged": true, "log_end": 0}')
        at = (utc_now() - timedelta(hours=hours)).timestamp()
        os.utime(folder / EXIT, (at, at))
    disk = SmallDisk(outbox)
    follower = follower_of(outbox, tmp_path, disk=disk)
    follower.sweep()
    # a crawl can make it, and fill it again whenever it is emptied
    (outbox.path / f".removed-{ODD}").mkdir()
    (outbox.path / f".removed-{ODD}" / "file").touch()
    disk.room = 1
    follower.sweep()
    assert outbox.scan() == [ODD]
