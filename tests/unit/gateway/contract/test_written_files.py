"""Looking for what a crawl has written."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gateway.contract.outbox import FILES
from gateway.contract.written_files import MAX_DEPTH, FoundFile, find_files

MANY = 4000


def test_everything_is_found_with_why_it_cannot_be_kept(tmp_path: Path) -> None:
    files = tmp_path / FILES
    below = "/".join("d" * MAX_DEPTH)
    deepest = files / below
    (deepest / "too deep").mkdir(parents=True)
    (deepest / "last").write_bytes(b"12")
    for hidden in ("scrapy.cfg", ".cache/page", "folder/.hidden"):
        (files / hidden).parent.mkdir(exist_ok=True)
        (files / hidden).touch()
    (files / "link").symlink_to(deepest)
    os.mkfifo(files / "fifo")
    (files / os.fsdecode(b"\xff")).mkdir()
    (files / "closed").mkdir(mode=0)
    found = {one.name: one for one in find_files(tmp_path, 100)}
    closed = found.pop("closed", None)  # root can open it
    assert closed is None or closed.problem == "the folder cannot be opened: closed may not be opened"
    assert found.pop("\N{REPLACEMENT CHARACTER}").problem == "its name is no UTF-8"
    assert found == {
        f"{below}/last": FoundFile(f"{below}/last", 2),
        f"{below}/too deep": FoundFile(f"{below}/too deep", 0, "it is too deep in folders"),
        "link": FoundFile("link", 0, "it is a link"),
        "fifo": FoundFile("fifo", 0, "it is a FIFO"),
    }


def test_far_more_entries_than_may_be_kept_are_not_looked_at(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / FILES / str(number % 5)).mkdir(parents=True, exist_ok=True)
        (tmp_path / FILES / str(number % 5) / str(number)).touch()
    *found, last = find_files(tmp_path, 5)
    assert last == FoundFile("", 0, "there are more than 20 entries; the rest was not looked at")
    assert len(found) == 16
    assert len(list(find_files(tmp_path, 9))) == 30


def test_files_deep_in_folders_are_found_as_quickly_as_others(tmp_path: Path) -> None:
    folder = tmp_path / FILES / "/".join("d" * (MAX_DEPTH - 1))
    folder.mkdir(parents=True)
    for number in range(MANY):
        (folder / str(number)).touch()
    began = time.process_time()
    assert sum(1 for _ in find_files(tmp_path, MANY)) == MANY
    assert time.process_time() - began < MANY * 0.000_1
