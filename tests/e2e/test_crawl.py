"""The main job, as a user has it done."""

from __future__ import annotations

import csv
import io
from typing import Any

import httpx2
import pytest
from event_source import log_text, read_events
from sites.server import Site
from stack import Stack, wait_until

pytestmark = [pytest.mark.stack]


def test_a_crawl_is_posted_followed_and_its_results_are_collected(stack: Stack, site: Site) -> None:
    # progress is told each second: the crawl has to take a few
    site.delay = 0.4
    body = {"user_id": "ada", "spider": "seo", "start_urls": [f"{site.url}/tree/40"]}
    headers = {"Accept": "text/event-stream"}
    with stack.http.stream("POST", f"{stack.url}/crawl", json=body, headers=headers) as response:
        events = list(read_events(response))
    assert events[0].event == "job"
    job_id = events[0].data["job_id"]
    assert events[-1].event == "end"
    assert events[-1].data["status"] == "finished"
    assert any(event.event == "progress" for event in events)
    assert log_text(events).encode() == stack.log(job_id) == stack.log_on_node(job_id)
    pages = [item for item in stack.items(job_id) if item["type"] == "page"]
    assert {page["url"] for page in pages} == {site.url + path for path in site.paths()}
    status = stack.status(job_id)
    assert (status["status"], status["items_count"], status["errors_count"]) == ("finished", len(pages), 0)
    assert status["spider_job_id"] == f"{job_id}-1"


def test_a_repeated_request_is_answered_from_the_cache_and_costs_no_visit(stack: Stack, site: Site) -> None:
    first = stack.crawl(f"{site.url}/tree/3")
    stack.wait_final(first)
    visits = len(site.access_log)
    assert stack.crawl(f"{site.url}/tree/3") == first
    fresh = stack.crawl(f"{site.url}/tree/3", ignore_cache=True)
    assert fresh != first
    assert stack.wait_final(fresh)["status"] == "finished"
    assert len(site.access_log) > visits


def test_a_second_user_gets_a_crawl_of_their_own(stack: Stack, site: Site) -> None:
    jobs = {stack.crawl(f"{site.url}/tree/1", user_id=user) for user in ("ada", "bob")}
    assert len(jobs) == 2
    assert {stack.wait_final(job)["status"] for job in jobs} == {"finished"}


def test_items_come_as_json_lines_and_csv_and_in_pages(stack: Stack, site: Site) -> None:
    job_id = stack.crawl(f"{site.url}/tree/12")
    stack.wait_final(job_id)
    url = f"{stack.url}/jobs/{job_id}/items"
    lines = stack.items(job_id)
    assert stack.http.get(url, params={"format": "json"}).json()["items"] == lines
    rows = list(
        csv.DictReader(io.StringIO(stack.http.get(url, params={"format": "csv", "fields": "url,title"}).text))
    )
    assert [row["url"] for row in rows] == [item["url"] for item in lines]
    collected: list[dict[str, Any]] = []
    params: dict[str, Any] = {"limit": 5}
    while True:
        page = stack.http.get(url, params=params).json()
        collected += page["items"]
        if not page.get("next"):
            break
        params["after"] = page["next"]
    assert collected == lines


def test_items_can_be_read_while_the_crawl_runs(stack: Stack, site: Site) -> None:
    site.delay = 0.2
    job_id = stack.crawl(f"{site.url}/tree/60")
    wait_until(lambda: len(stack.items(job_id)) > 3, what="the first items")
    assert stack.status(job_id)["status"] == "running"
    stack.http.post(f"{stack.url}/jobs/{job_id}/cancel")
    assert stack.wait_final(job_id)["status"] == "cancelled"


def test_a_running_crawl_is_cancelled_and_its_slot_is_free_again(stack: Stack, site: Site) -> None:
    site.delay = 0.3
    job_id = stack.crawl(f"{site.url}/endless/0", max_pages=1000)
    wait_until(lambda: stack.status(job_id)["completed_pages"], what="the first page")
    assert stack.http.post(f"{stack.url}/jobs/{job_id}/cancel").status_code < 300
    assert stack.wait_final(job_id)["status"] == "cancelled"
    repeated = stack.http.post(f"{stack.url}/jobs/{job_id}/cancel")
    assert (repeated.status_code, repeated.json()["status"]) == (httpx2.codes.OK, "cancelled")

    def all_free() -> bool:
        (node,) = stack.http.get(f"{stack.url}/nodes").json()["nodes"]
        return bool(node["free_slots"] == node["max_slots"])

    # every test waits for its own jobs, so nobody else holds one
    wait_until(all_free, what="a free slot")


def test_an_ended_job_is_run_again_as_a_new_one_and_can_be_deleted(stack: Stack, site: Site) -> None:
    job_id = stack.crawl(f"{site.url}/tree/2")
    stack.wait_final(job_id)
    again = stack.http.post(f"{stack.url}/jobs/{job_id}/retry").raise_for_status().json()["job_id"]
    assert stack.wait_final(again)["status"] == "finished"
    assert stack.job(again)["retry_of"] == job_id
    assert stack.http.delete(f"{stack.url}/jobs/{job_id}").is_success
    assert stack.http.get(f"{stack.url}/jobs/{job_id}").status_code == httpx2.codes.NOT_FOUND
    assert stack.http.get(f"{stack.url}/jobs/{job_id}/items").status_code == httpx2.codes.NOT_FOUND


def test_depth_and_max_pages_are_kept(stack: Stack, site: Site) -> None:
    shallow = stack.crawl(f"{site.url}/tree/500", depth=1)
    strict = stack.crawl(f"{site.url}/endless/0", max_pages=17)
    assert stack.wait_final(strict)["status"] == "finished"
    assert stack.status(strict)["completed_pages"] == 17
    stack.wait_final(shallow)
    assert {item["depth"] for item in stack.items(shallow)} == {0, 1}


def test_a_cached_page_is_not_fetched_twice_but_for_ignore_cache(stack: Stack, site: Site) -> None:
    first = stack.crawl(f"{site.url}/tree/5")
    stack.wait_final(first)
    stack.wait_final(stack.crawl(f"{site.url}/tree/5", depth=7))
    assert site.hits("/tree/5/1") == 1
    stack.wait_final(stack.crawl(f"{site.url}/tree/5", depth=7, ignore_cache=True))
    assert site.hits("/tree/5/1") == 2


def test_the_platform_says_that_it_is_well_and_what_it_can_do(stack: Stack) -> None:
    health = stack.http.get(f"{stack.url}/health").json()
    assert health["status"] == "ok", health
    (seo,) = [
        spider for spider in stack.http.get(f"{stack.url}/spiders").json()["spiders"] if spider["name"] == "seo"
    ]
    assert "obey_robots" in seo["params_schema"]["properties"]
