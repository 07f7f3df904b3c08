"""On a terminal Scrapy's account of itself is a line; what is piped somewhere is whole."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from discoverybot_client import Event
from gateway.cli.watching import LogLines, TerminalLog


def entry(msg: str, logger: str = "scrapy.middleware", level: str = "INFO") -> dict[str, Any]:
    return {"ts": "2027-06-01T09:00:01.250Z", "level": level, "logger": logger, "msg": msg}


def more(msg: str) -> dict[str, Any]:
    return {"level": "INFO", "msg": msg, "cont": True}


SETUP = [
    entry("Scrapy 2.19.0 started", "scrapy.utils.log"),
    entry("Enabled extensions:"),
    more("['a',"),
    more(" 'b']"),
]
STATISTICS = [entry("Dumping Scrapy stats:", "scrapy.statscollectors"), more("{'pages': 1}")]
PAGE = entry("a page", "shop")


def printed(entries: list[dict[str, Any]], *, is_terminal: bool = True, whole: bool = False) -> list[str]:
    file = io.StringIO()
    lines = LogLines(Console(file=file, force_terminal=is_terminal, no_color=True, width=120), whole)
    for one in entries:
        lines.print(one)
    lines.flush()
    return [line.replace("\x1b[2m", "").replace("\x1b[0m", "") for line in file.getvalue().splitlines()]


def test_setup_and_statistics_are_a_line_each() -> None:
    setup, page, statistics = printed([*SETUP, PAGE, *STATISTICS])
    assert setup == "… 4 lines of Scrapy's setup (`logs --full` shows them)"
    assert page.endswith("shop a page")
    assert statistics == "… 2 lines of Scrapy's statistics (`logs --full` shows them)"
    assert len(printed([*SETUP, *STATISTICS])) == 2


@pytest.mark.parametrize("how", [{"is_terminal": False}, {"whole": True}])
def test_the_log_is_whole_where_it_is_piped_or_asked_for(how: dict[str, bool]) -> None:
    assert len(printed([*SETUP, PAGE, *STATISTICS], **how)) == 7


def test_warnings_and_what_a_spider_prints_or_raises_are_shown() -> None:
    raised = [more("Traceback (most recent call last):"), more("  File spider.py"), more("ValueError: no price")]
    shown = printed([*SETUP, *raised, entry("an old setting", level="WARNING"), SETUP[0]])
    assert len(shown) == 1 + len(raised) + 2
    assert shown[-1].endswith("Scrapy 2.19.0 started")  # a line alone is shown


def test_nothing_is_held_back_when_a_crawl_ends_in_its_setup() -> None:
    console = Console(file=(file := io.StringIO()), force_terminal=True, no_color=True, width=120)
    events = [*(Event("log", "", one) for one in SETUP), Event("end", "", {"status": "error"})]
    assert TerminalLog(console).show(events) == {"status": "error"}
    assert "4 lines of Scrapy's setup" in file.getvalue()
