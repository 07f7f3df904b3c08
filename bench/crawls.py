"""The platform beside plain `scrapy crawl`: how fast pages come."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.our_platform import ROOT, Site, Stack, running_stack
from bench.table import Row, alternate

ROUNDS = 5
#: Pages of the site whose page rate is measured.
PAGES = 1500


def run() -> list[Row]:
    # no cache: a page rate out of Redis would say nothing about crawling
    with (
        tempfile.TemporaryDirectory() as folder,
        Site() as site,
        running_stack(Path(folder) / "home", HTTP_CACHE_TTL="0") as stack,
    ):
        home = Path(folder)
        return [page_rate(stack, site), frontier_rate(stack, site, home / "b"), record_rate(stack, site, home / "c")]


def page_rate(stack: Stack, site: Site) -> Row:
    ours, beside = alternate(lambda: _crawl_rate(stack, site), lambda: _plain_rate(site), ROUNDS)
    return Row(
        f"page rate of `seo`, {PAGES} pages", "pages/s", ours, beside,
        "the same spider under plain `scrapy crawl`", ours / beside, ">= 0.85",
    )  # fmt: skip


def frontier_rate(stack: Stack, site: Site, home: Path) -> Row:
    words = "which can go on after a kill", "the same without a frontier file"
    return _rate_without(stack, site, home, words, 0.95, CRAWL_FRONTIER="false")


def record_rate(stack: Stack, site: Site, home: Path) -> Row:
    words = "each request recorded", "the same without a record"
    return _rate_without(stack, site, home, words, 0.97, REQUESTS_MAX_COUNT="0")


def _rate_without(stack: Stack, site: Site, home: Path, words: tuple[str, str], bar: float, **variables: str) -> Row:
    """Beside a stack with these settings; the words say what is measured, and beside what."""
    about, peer = words
    with running_stack(home, HTTP_CACHE_TTL="0", **variables) as without:
        ours, beside = alternate(lambda: _crawl_rate(stack, site), lambda: _crawl_rate(without, site), ROUNDS)
    return Row(
        f"page rate of `seo`, {PAGES} pages, {about}", "pages/s", ours, beside, peer, ours / beside, f">= {bar}"
    )


def _body(url: str) -> dict[str, object]:
    return {"user_id": "bench", "spider": "seo", "start_urls": [url], "ignore_cache": True, "max_pages": 100_000}


def _scrapy(url: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    command = [str(Path(sys.executable).with_name("scrapy")), "crawl", "seo", "-a", f"start_urls={url}", *arguments]
    return command, {**os.environ, "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8"}


def _crawl_rate(stack: Stack, site: Site) -> float:
    """By Scrapy's own clock, from the spider's opening to its end, so that starting up is not counted."""
    answer = stack.http.post(f"{stack.url}/crawl", json=_body(f"{site.url}/tree/{PAGES}"))
    job_id = answer.raise_for_status().json()["job_id"]
    stack.wait_final(job_id, timeout=300)
    (attempt,) = stack.job(job_id)["attempts"]
    pages: int = attempt["progress"]["completed_pages"]
    assert pages >= PAGES, attempt
    return pages / float(attempt["stats"]["elapsed_time_seconds"])


def _plain_rate(site: Site) -> float:
    """Without the add-on: no report, no spool, no egress rule; items go to a feed, as they would by hand."""
    with tempfile.TemporaryDirectory() as folder:
        command, environment = _scrapy(f"{site.url}/tree/{PAGES}", "-s", "ADDONS={}", "-o", f"{folder}/items.jsonl")
        log = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stderr
        items = (Path(folder) / "items.jsonl").read_text().splitlines()
    pages = sum(json.loads(line)["type"] == "page" for line in items)
    assert pages >= PAGES, log[-2000:]
    elapsed = re.search(r"'elapsed_time_seconds': ([0-9.]+)", log)
    assert elapsed is not None, log[-2000:]
    return pages / float(elapsed[1])


if __name__ == "__main__":
    from bench.table import render

    print(render(run()))
