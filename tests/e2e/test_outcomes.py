"""How crawls end, and what could not be had."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sites.server import Site, html
from stack import ROOT, Stack

pytestmark = [pytest.mark.stack]


def crawl(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway.cli.main", "crawl", *arguments, "--user", "ada", "--url", stack.url]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_a_crawl_whose_start_url_is_missing_fails_once_and_works_when_it_is_there(stack: Stack, site: Site) -> None:
    done = crawl(stack, f"{site.url}/new")
    assert done.returncode == 1
    assert f"1 of 1 requests failed (the first: {site.url}/new: HTTP 404 Not Found)" in done.stdout
    (job,) = stack.http.get(f"{stack.url}/jobs", params={"q": f"{site.url}/new"}).json()["jobs"]
    assert (job["status"], job["attempt"], job["dead"]) == ("error", 1, True)
    assert (job["completed_pages"], job["errors_count"]) == (0, 1)
    assert [item["status"] for item in stack.items(job["job_id"])] == [404]
    site.pages["/new"] = html("here it is")
    assert crawl(stack, f"{site.url}/new").returncode == 0, "no old answer"


def test_a_missing_page_on_the_way_is_a_finding(stack: Stack, site: Site) -> None:
    job = stack.crawl(f"{site.url}/tree/2", start_urls=[f"{site.url}/tree/2", f"{site.url}/missing"])
    ended = stack.wait_final(job)
    assert (ended["status"], ended["completed_pages"], ended["message"]) == ("finished", 4, "4 pages")
