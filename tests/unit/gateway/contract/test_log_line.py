from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contract.log_line import MAX_LINE, LogEntry, head_at, split_entries, survey

HEAD = b"2027-06-01T09:00:01.250Z [scrapy.core.engine] INFO: Spider opened\n"


def test_a_line_of_ours_becomes_an_entry_that_ends_after_its_newline() -> None:
    (entry,), level = split_entries(HEAD, 100)
    assert (entry.start, entry.end) == (100, 100 + len(HEAD))
    assert (entry.ts, entry.level, entry.logger) == ("2027-06-01T09:00:01.250Z", "INFO", "scrapy.core.engine")
    assert (entry.msg, entry.cont, level) == ("Spider opened", False, "INFO")


def test_scrapys_default_format_is_understood_too() -> None:
    (entry,), _ = split_entries(b"2027-06-01 09:00:01 [scrapy.utils.log] DEBUG: hello\n", 0)
    assert (entry.ts, entry.level, entry.msg) == ("2027-06-01T09:00:01.000Z", "DEBUG", "hello")


def test_lines_of_a_traceback_belong_to_their_head_and_share_its_level() -> None:
    log = HEAD.replace(b"INFO", b"ERROR") + b'Traceback (most recent call last):\n  File "x"\nValueError: no\n' + HEAD
    entries, level = split_entries(log, 0)
    assert [entry.cont for entry in entries] == [False, True, True, True, False]
    assert [entry.level for entry in entries] == ["ERROR"] * 4 + ["INFO"]
    assert level == "INFO"
    assert orjson.loads(entries[1].to_json())["cont"] is True


@pytest.mark.parametrize("spider", ["Big Shop", "shop [uk]", "shop] 2", "[shop]", "Läden"])
def test_a_spider_may_have_any_name_and_its_errors_are_counted(spider: str) -> None:
    failed = f"2027-06-01T09:00:02.000Z [{spider}] ERROR: no price [shop] INFO: at all\nValueError: no\n".encode()
    log = HEAD + failed + HEAD
    entries, _ = split_entries(log, 0)
    assert [(one.logger, one.level, one.cont) for one in entries[1:3]] == [
        (spider, "ERROR", False),
        (None, "ERROR", True),
    ]
    assert entries[1].msg == "no price [shop] INFO: at all"
    assert survey(log, "INFO", None).lines == {("scrapy.core.engine", "INFO"): 2, (spider, "ERROR"): 2}
    # a search finds them by their logger and level
    assert head_at(log, log.index(failed)) == (spider.encode(), b"ERROR")


def test_what_is_printed_before_logging_is_set_up_counts_as_an_error() -> None:
    (entry,), _ = split_entries(b"ImportError: no module named x\n", 0)
    assert entry.level == "ERROR"


def test_a_torn_last_line_waits_until_the_log_is_final() -> None:
    assert split_entries(HEAD + b"2027-06-0", 0)[0][-1].end == len(HEAD)
    assert split_entries(HEAD + b"2027-06-0", 0, final=True)[0][-1].msg == "2027-06-0"


def test_an_overlong_line_is_cut_and_a_latin_1_byte_does_no_harm() -> None:
    entries, _ = split_entries(b"x" * (MAX_LINE + 10) + b"\n" + b"caf\xe9\n", 0)
    assert [entry.end - entry.start for entry in entries] == [MAX_LINE, 11, 5]
    assert entries[-1].msg == "caf\N{REPLACEMENT CHARACTER}"


@given(st.lists(st.sampled_from([HEAD, b"cont\n", b"\n", b"\xff\xfe\n", b"a\rb\n"]), max_size=30), st.data())
def test_reading_on_from_any_entry_gives_what_reading_at_once_gives(lines: list[bytes], data: st.DataObject) -> None:
    log = b"".join(lines)
    whole, _ = split_entries(log, 0)
    cut = data.draw(st.integers(0, len(log)))
    first, level = split_entries(log[:cut], 0)
    position = first[-1].end if first else 0
    rest, _ = split_entries(log[position:], position, level)
    assert first + rest == whole
    assert "".join(as_written(entry) + "\n" for entry in whole).encode() == log.decode("utf-8", "replace").encode()


def as_written(entry: LogEntry) -> str:
    return entry.msg if entry.cont else f"{entry.ts} [{entry.logger}] {entry.level}: {entry.msg}"
