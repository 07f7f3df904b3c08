"""The arithmetic of docs/how-to/sizing.md: what so many crawls a day take follows from what one of them costs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs/how-to/sizing.md").read_text()
#: As the page says.
PAGES, SECONDS = 10, 30
DAY = 86_400


def rows(heading: str) -> dict[str, list[str]]:
    """The cells of each line of the table under that heading, by its first cell; without its head."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line] for line in lines]
    return {first: others for first, *others in cells if not set(first) <= {"-"}}


def cost(*names: str) -> float:
    """Of a crawl with its pages, the sum of these parts."""
    table = rows("What a crawl costs")
    return sum(float(table[name][0]) + PAGES * float(table[name][1]) for name in names)


#: What stands in a line of the table, for one crawl a day.
OF_A_CRAWL = {
    "crawls a second": 1 / DAY,
    "cores: gateway, worker, beat": cost("gateway, ms", "worker, ms", "beat, ms") / 1000 / DAY,
    "cores: MongoDB": cost("MongoDB, ms") / 1000 / DAY,
    "cores: nodes": cost("Scrapyd, ms", "tailer, ms", "spider, ms") / 1000 / DAY,
    "commands to MongoDB a second, removal included": cost("commands to MongoDB", "commands to MongoDB to remove it")
    / DAY,
    "GB kept in MongoDB, for each day": cost("kB kept in MongoDB (BSON)") / 1e6,
    "GB in Redis": cost("kB in Redis, for an hour") / 1e6 / 24,
    "MB to and from MongoDB a second": cost("kB to and from MongoDB") / 1000 / DAY,
    "slots, if a crawl lasts 30 s": SECONDS / DAY,
}


def test_the_table_has_these_lines() -> None:
    assert list(rows("For so many crawls a day")) == ["Crawls a day", *OF_A_CRAWL]


@pytest.mark.parametrize("name", OF_A_CRAWL)
def test_what_so_many_crawls_take_is_that_many_times_what_one_takes(name: str) -> None:
    table = rows("For so many crawls a day")
    many = [float(cell.replace(",", "")) for cell in table["Crawls a day"]]
    shown = [float(re.sub(",", "", cell)) for cell in table[name]]
    assert shown == [pytest.approx(number * OF_A_CRAWL[name], rel=0.06) for number in many]
