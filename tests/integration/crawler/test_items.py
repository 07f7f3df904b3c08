"""Items are in their file as soon as they are scraped."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from sites.server import Site, html

from .conftest import Run, Start

WALK = Path(__file__).parent / "walk"


def test_what_was_scraped_before_a_kill_is_there_and_whole(start: Start) -> None:
    with Site(delay=0.02) as site:
        attempt = start("seo", f"{site.url}/endless/0")
        items, progress = attempt.folder / "items.jsonl", attempt.folder / "progress.json"
        end = time.monotonic() + 60
        while not (items.exists() and items.read_bytes().count(b"\n") > 100 and progress.exists()):
            assert time.monotonic() < end
            time.sleep(0.01)
        os.kill(attempt.process.pid, signal.SIGKILL)
        attempt.process.wait()
        served = len(site.paths())
    data = items.read_bytes()
    assert data.endswith(b"\n")
    pages = [json.loads(line) for line in data.splitlines()]
    # those that are under way, whose callbacks may have run, and are written when they are done
    assert served - 80 <= len(pages) <= served
    assert json.loads(progress.read_bytes())["at"]


def test_a_crawl_whose_items_cannot_be_kept_ends_and_says_so(run: Run) -> None:
    with Site() as site:
        crawl = run("seo", f"{site.url}/endless/0", file_bytes=20_000)
    assert crawl.report["finish_reason"] == "items_not_writable"
    assert any("could not be written" in error["reason"] for error in crawl.report["errors"])
    assert len(crawl.items) == crawl.progress["items_count"] > 0, "each line is whole"
    assert not (crawl.folder / ".reserve").exists()


def test_items_that_cannot_be_written_are_errors_with_their_place(run: Run) -> None:
    with Site({"/": html("a page")}) as site:
        crawl = run("odd", f"{site.url}/", cwd=WALK)
        url = site.url
    assert crawl.report["finish_reason"] == "finished"
    assert [item["url"] for item in crawl.items] == ["before", "after"]
    assert crawl.progress["items_count"] == 2
    errors = {(error["url"], error["reason"]) for error in crawl.report["errors"]}
    refused = "could not be written:"
    assert {
        ("", f"item 1 of odd.start {refused} LookupError: it has no name"),
        (f"{url}/", f"item 5 of odd.parse {refused} LookupError: it has no name"),
        (f"{url}/", f"item 6 of odd.parse {refused} TypeError: a key must not be of type tuple"),
        ("http://127.0.0.1:9/", f"item 1 of odd.fail {refused} LookupError: it has no name"),
    } <= errors
    reasons = [reason for _, reason in sorted(errors)]
    for number, kind in ((2, "RecursionError"), (3, "RecursionError"), (4, "ValueError")):
        assert any(reason.startswith(f"item {number} of odd.parse {refused} {kind}") for reason in reasons)
    assert crawl.progress["errors_count"] == len(errors)
