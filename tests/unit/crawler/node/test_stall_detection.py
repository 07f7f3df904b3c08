"""Which lines of a log say that a crawl goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.node.stall_detection import READ, NewLines, StallDetector

HEAD = "2027-06-01T09:00:00.000Z"
STATS = f"{HEAD} [scrapy.extensions.logstats] INFO: Crawled 0 pages (at 0 pages/min), scraped 0 items\n"
PERIODIC = f'{HEAD} [scrapy.extensions.periodic_log] INFO: {{\n    "time": {{\n        "elapsed": 60\n    }}\n}}\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "crawl.log"
    path.touch()
    return path


@pytest.fixture
def lines(log: Path) -> Iterator[NewLines]:
    fd = os.open(log, os.O_RDONLY)
    yield NewLines(fd)
    os.close(fd)


def write(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("", False),
        (STATS, False),
        (STATS * 3, False),
        (PERIODIC, False),
        (PERIODIC + STATS, False),
        (f"{HEAD} [shop] INFO: still there\n", True),
        (f"{STATS}{HEAD} [shop] DEBUG: still there\n{STATS}", True),
        ("printed\n", True),
        ("...", True),
        (f"{STATS}printed\n", True),
        (f"{PERIODIC}printed\n", True),
        (STATS * (READ // len(STATS) + 1), True),
    ],
    ids=lambda value: value[-50:] if isinstance(value, str) else value,
)
def test_a_log_tells_something_unless_it_is_scrapys_statistics(
    log: Path, lines: NewLines, text: str, *, tells: bool
) -> None:
    write(log, text)
    assert lines.tell() is tells
    assert lines.tell() is False, "the same is nothing new"


def test_statistics_that_are_seen_in_two_halves_are_statistics(log: Path, lines: NewLines) -> None:
    head, newline, rest = PERIODIC.partition("\n")
    write(log, head + newline)
    assert not lines.tell()
    write(log, rest)
    assert not lines.tell()
    write(log, "printed\n")
    assert lines.tell()


def test_time_in_which_nobody_looked_counts_for_two_looks_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("crawler.node.stall_detection.monotonic", lambda: now)
    detector = StallDetector(tmp_path, None, 20)
    for _ in range(5):
        now += detector.interval
        last = detector.seconds()
    assert last == 5 * detector.interval
    now += 3600
    assert detector.seconds() == 7 * detector.interval
    (tmp_path / "active").touch()
    now += detector.interval
    assert detector.seconds() == 0
