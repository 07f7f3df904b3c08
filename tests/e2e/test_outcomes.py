"""How crawls end: what could not be had, and what was expected of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import warm
from sites.server import Site, html
from stack import Stack, wait_until

from .test_deploy import deploy

pytestmark = [pytest.mark.stack]


def crawl(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run("gateway.cli.main", "crawl", *arguments, "--user", "ada", "--url", stack.url, env=os.environ)


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


def test_a_crawl_that_finds_less_than_expected_is_partial(stack: Stack, site: Site) -> None:
    done = crawl(stack, f"{site.url}/tree/3", "--min-items", "100", "--expect", '{"fields": {"author": 0.5}}')
    assert done.returncode == 3
    told = "4 pages; 4 items, expected at least 100; 0 of 4 items have 'author', expected at least 50 %"
    assert told in done.stdout
    met = stack.wait_final(stack.crawl(f"{site.url}/tree/3", expect={"min_items": 4, "fields": {"title": 1}}))
    assert (met["status"], met["message"]) == ("finished", "4 pages")


def test_a_deployed_spider_is_held_to_what_is_expected_and_stopped_early(
    stack: Stack, site: Site, tmp_path: Path
) -> None:
    deploy(stack, tmp_path, "3.0")
    known = f"{stack.url}/spiders?project=shop&version=3.0"
    wait_until(lambda: stack.http.get(known).json()["spiders"], what="the new version")
    urls = [f"{site.url}/tree/1/{number}" for number in range(100)]
    expect = {"fields": {"category": 1, "price": 0.2}, "stop_early_after": 10}
    fields = {"project": "shop", "version": "3.0", "spider": "offers", "start_urls": urls, "expect": expect}
    job = stack.crawl(urls[0], **fields, fetch={"concurrency": 1})
    ended = stack.wait_final(job)
    assert (ended["status"], ended["attempt"]) == ("partial", 1)
    assert ended["message"].startswith("stopped early, because it broke an expectation; 0 of ")
    assert "items have 'price', expected at least 20 %" in ended["message"]
    assert 10 <= len(stack.items(job)) < 40
    assert len(site.paths()) < 40


def test_each_run_of_a_schedule_is_held_to_what_is_expected(stack: Stack, site: Site) -> None:
    body = {"user_id": "ada", "spider": "seo", "start_urls": [f"{site.url}/tree/1"], "expect": {"min_items": 50}}
    when = {"interval": "every 1s", "jitter": 0, "max_runs": 1}
    schedule = stack.http.post(f"{stack.url}/crawl", json={**body, **when}).raise_for_status().json()["job_id"]

    def runs() -> list[dict[str, object]]:
        page = stack.http.get(f"{stack.url}/jobs", params={"schedule_id": schedule}).json()
        return [run for run in page["jobs"] if run["finished_at"]]

    (run,) = wait_until(runs, what="the run")
    assert run["status"] == "partial"
    assert str(run["message"]).endswith("items, expected at least 50")
