from __future__ import annotations

from pathlib import Path

import pytest

from gateway.contract.outbox import EXIT, LOG, SHIPPED, AttemptId
from gateway.tailer.outbox import AttemptFolder, LogPosition

ID = AttemptId("a" * 32, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / str(ID)
    folder.mkdir()
    return folder


def test_a_restarted_tailer_goes_on_where_the_checkpoint_says(folder: Path) -> None:
    attempt = AttemptFolder(folder.parent, ID)
    attempt.checkpoint.log_mongo = LogPosition(offset=70, level="INFO")
    attempt.checkpoint.items = 12
    attempt.save(now=True)
    again = AttemptFolder(folder.parent, ID)
    assert again.checkpoint == attempt.checkpoint
    assert again.log_stored == 70


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"items":"many"}'])
def test_a_checkpoint_that_cannot_be_understood_costs_a_second_shipping(folder: Path, content: bytes) -> None:
    (folder / SHIPPED).write_bytes(content)
    assert AttemptFolder(folder.parent, ID).checkpoint.items == 0


def test_a_checkpoint_that_cannot_be_written_stops_nothing(folder: Path) -> None:
    (folder / SHIPPED).mkdir()
    attempt = AttemptFolder(folder.parent, ID)
    attempt.checkpoint.items = 12
    attempt.save(now=True)
    (folder / SHIPPED).rmdir()
    attempt.save(now=True)
    assert AttemptFolder(folder.parent, ID).checkpoint.items == 12


def test_the_log_ends_where_it_ended_when_the_exit_was_seen(folder: Path) -> None:
    (folder / LOG).write_bytes(b"its own\n")
    attempt = AttemptFolder(folder.parent, ID)
    assert attempt.log_end is None
    (folder / EXIT).write_bytes(b"{}")
    assert attempt.log_end == 8
    with (folder / LOG).open("ab") as log:
        log.write(b"a grandchild's\n")
    assert attempt.log_end == 8


def test_a_log_that_was_cut_ends_where_it_is_cut(folder: Path) -> None:
    (folder / LOG).write_bytes(b"a\nb\n")
    (folder / EXIT).write_bytes(b"{}")
    attempt = AttemptFolder(folder.parent, ID)
    assert attempt.log_end == 4
    (folder / LOG).write_bytes(b"a\n")
    assert attempt.log_end == 2
