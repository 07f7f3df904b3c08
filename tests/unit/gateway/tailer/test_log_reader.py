from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contract.log_line import MAX_LINE, split_entries
from gateway.logs.store import count_lines
from gateway.tailer.log_shipping import LogPiece, read_chunk, read_piece
from gateway.tailer.outbox import LogPosition

HEAD = b"2027-06-01T09:00:01.250Z [a] "
lines = st.lists(st.sampled_from([HEAD + b"INFO: x", HEAD + b"WARNING: y" * 9, b"  traceback", b"", b"\xff" * 40]))


def pieces(path: Path, size: int, log_end: int) -> list[LogPiece]:
    found, at = [], LogPosition()
    while (piece := read_piece(path, at, size, log_end)).data:
        found.append(piece)
        at = piece.end
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "crawl.log"


@given(content=lines, size=st.integers(1, 200), torn=st.booleans())
def test_pieces_of_any_size_make_the_same_entries(log: Path, content: list[bytes], size: int, *, torn: bool) -> None:
    data = b"\n".join(content) + (b"" if torn else b"\n")
    log.write_bytes(data)
    found = pieces(log, size, len(data))
    assert [entry for piece in found for entry in piece.entries] == split_entries(data, 0, final=True)[0]
    assert b"".join(piece.data for piece in found) == data


def test_a_torn_line_is_left_until_the_log_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "crawl.log"
    path.write_bytes(b"whole\ntorn")
    assert read_piece(path, LogPosition(), 1000, None).end.offset == 6
    assert read_piece(path, LogPosition(), 1000, 10).end.offset == 10


def test_nothing_is_read_past_the_end(tmp_path: Path) -> None:
    path = tmp_path / "crawl.log"
    path.write_bytes(b"its own\na grandchild's\n")
    assert read_piece(path, LogPosition(), 1000, 8).data == b"its own\n"


def test_a_line_without_an_end_is_read_in_bounded_pieces(tmp_path: Path) -> None:
    path = tmp_path / "crawl.log"
    path.write_bytes(b"x" * (MAX_LINE * 2 + 10) + b"\n")
    assert [len(piece.data) for piece in pieces(path, 100, path.stat().st_size)] == [MAX_LINE, MAX_LINE, 11]


def test_there_may_be_no_log_at_all(tmp_path: Path) -> None:
    assert not read_piece(tmp_path / "none", LogPosition(), 100, 0).entries


@given(content=lines, least=st.integers(1, 200), torn=st.booleans())
def test_a_chunk_ends_with_the_first_entry_that_makes_it_long_enough(
    log: Path, content: list[bytes], least: int, *, torn: bool
) -> None:
    data = b"\n".join(content) + (b"" if torn else b"\n")
    log.write_bytes(data)
    entries = split_entries(data, 0, final=True)[0]
    chunk = read_chunk(log, LogPosition(), least, len(data))
    full = next((entry.end for entry in entries if entry.end >= least), len(data))
    assert chunk.data == data[:full]
    assert chunk.entries == [entry for entry in entries if entry.end <= full]
    assert chunk.lines == count_lines(chunk.entries, None)
    assert chunk.more == (full < len(data))
    if entries:
        assert chunk.end.level == chunk.entries[-1].level


def test_an_over_long_line_is_a_chunk_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "crawl.log"
    path.write_bytes(b"a\n" * 10 + b"x" * (MAX_LINE + 5) + b"\n" + HEAD + b"INFO: y\n")
    at, found = LogPosition(), []
    while (chunk := read_chunk(path, at, 1000, path.stat().st_size)).data:
        found.append((len(chunk.data), sum(chunk.lines.values()), chunk.end.level))
        at = chunk.end
    assert found == [(20 + MAX_LINE, 11, "ERROR"), (6 + len(HEAD) + 8, 2, "INFO")]


def test_no_more_lines_are_read_than_wanted(tmp_path: Path) -> None:
    path = tmp_path / "crawl.log"
    path.write_bytes(b"\n" * 25)
    sizes, at = [], LogPosition()
    while (piece := read_piece(path, at, 1000, None, 10)).data:
        sizes.append((len(piece.entries), piece.more))
        at = piece.end
    assert sizes == [(10, True), (10, True), (5, False)]


def test_levels_are_carried_from_piece_to_piece(tmp_path: Path) -> None:
    path = tmp_path / "crawl.log"
    path.write_bytes(HEAD + b"WARNING: w\n" + b"  more\n" * 20)
    found = pieces(path, 45, path.stat().st_size)
    assert {piece.end.level for piece in found} == {"WARNING"}
    assert all(left.end == right.start for left, right in pairwise(found))
