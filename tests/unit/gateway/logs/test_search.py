"""Lines found in the bytes of a chunk are those that are found when it is taken apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.logs.search import LogFilter, all_lines, count_wanted, wanted_ends, wanted_lines
from gateway.logs.store import LogChunk, count_lines

HEAD = b"2027-06-01T09:00:01.250Z "
LINES = [
    HEAD + b"[a] INFO: Item found, item found",
    HEAD + b"[b] WARNING: nothing: [a] ERROR: of it",
    HEAD + b"[b.c] ERROR: Item",
    HEAD + b"[b\xff] INFO: Item",
    b"2027-06-01 09:00:01 [a] DEBUG: " + "ÀÉ item ß".encode(),
    b"  Traceback item",
    b"item\r",
    b"\xff item",
    b"\xc3",
    HEAD + b"[a\x1cb] ERROR: item",
    HEAD + "[a\u2003b] INFO: item".encode(),
    "İé İÉ".encode(),
    b"",
]
TEXTS = ["ITEM", "item found", "é item SS", "É", "à", "\ufffd", "[a]", "09:00", "nowhere", ".", "\r"]
contents = st.lists(st.sampled_from(LINES)).map(b"\n".join)
filters = st.builds(
    LogFilter.of,
    st.sampled_from([None, "DEBUG", "warning", "ERROR"]),
    st.sampled_from([None, "a", "b", "b.c", "b\ufffd", "a\x1cb", ""]),
    st.sampled_from(TEXTS),
)


def chunk_of(data: bytes, *, counted: bool) -> LogChunk:
    chunk = LogChunk("0" * 32, 1, 5, 5 + len(data), "INFO", data, "b")
    lines = count_lines((line.entry for line in all_lines(chunk)), "b") if counted else {}
    return chunk._replace(lines=lines)


@given(data=contents, wanted=filters, counted=st.booleans(), torn=st.booleans())
def test_the_quick_way_finds_what_the_slow_one_finds(
    data: bytes, wanted: LogFilter, *, counted: bool, torn: bool
) -> None:
    chunk = chunk_of(data if torn or not data else data + b"\n", counted=counted)
    ends = [line.entry.end for line in wanted_lines(chunk, wanted)]
    assert list(wanted_ends(chunk, wanted)) == ends
    assert count_wanted(chunk, wanted) == len(ends)


@given(data=contents)
def test_a_line_without_a_head_has_the_logger_of_the_line_that_it_belongs_to(data: bytes) -> None:
    loggers = [line.logger for line in all_lines(chunk_of(HEAD + b"[x] INFO: first\n" + data, counted=False))]
    assert "b" not in loggers[:1]
    assert set(loggers) <= {"a", "b", "b.c", "b\ufffd", "a\x1cb", "a\u2003b", "x"}
