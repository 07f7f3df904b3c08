"""The lists of jobs and of dead letters as pages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qs

import httpx2
import pytest
from jobs import make_job

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.records import Progress
from gateway.jobs.job import Job, JobStatus, WaitingReason, new_job_id

Keep = Callable[[Job], Job]
#: Beginnings of ids, with eight characters in common.
ALIKE = ("5ca1ab1e00000001", "5ca1ab1e00020002")
ENDED = {"status": JobStatus.ERROR, "settled": True, "live_key": None}


def read(gateway: httpx2.Client, path: str, **query: Any) -> str:
    answer = gateway.get(path, params=query or None, headers={"Accept": "text/html"})
    assert answer.status_code == 200, answer.text
    return answer.text


def listed(page: str) -> list[str]:
    return re.findall(r'<tr data-job="(\w+)"', page)


def filter_of(page: str) -> dict[str, Any]:
    found = re.search(r'id="results" class="stack" data-filter="([^"]*)"', page)
    assert found
    wanted: dict[str, Any] = json.loads(unescape(found[1]))
    return wanted


def test_the_list_is_that_of_the_api_and_empty_fields_of_the_form_are_nothing(
    gateway: httpx2.Client, keep: Keep, user: str
) -> None:
    before = utc_now() - timedelta(minutes=1)
    failed = keep(make_job(user_id=user, message="nothing was fetched", created_at=before, **ENDED))
    waits = keep(make_job(user_id=user, waiting_reason=WaitingReason.CAPACITY))
    form = {"spider": "", "q": " ", "last": "", "since": ""}
    page = read(gateway, "/console/jobs", user_id=user, **form)
    assert listed(page) == [waits.id, failed.id]
    assert "waiting for a free slot" in page
    assert "nothing was fetched" in page
    assert filter_of(page) == {"user_id": user}
    several = read(gateway, "/console/jobs", user_id=user, status=["error", "partial"])
    assert listed(several) == [failed.id]
    assert filter_of(several) == {"user_id": user, "status": ["error", "partial"]}


def linked(page: str, words: str) -> set[str]:
    """The statuses that the link with these words asks for."""
    found = re.search(rf'<a [^>]*href="/console/jobs\?([^"]*)"[^>]*>(?:\s*<span class="label">)?{words}<', page)
    assert found, words
    return set(parse_qs(unescape(found[1]))["status"])


def test_a_word_means_the_same_jobs_on_each_page(gateway: httpx2.Client, keep: Keep) -> None:
    body = {"name": "words", "search_url": "https://example.com/?q={keywords}", "spider": "seo"}
    made = gateway.post("/sites", json=body)
    assert made.status_code == 201, made.text
    spec = {"spider": "seo", "site": "words", "start_urls": ["https://example.com/"]}
    keep(make_job(status=JobStatus.PAUSED, spec=CrawlSpec.model_validate(spec)))
    overview, jobs = read(gateway, "/"), read(gateway, "/console/jobs")
    for words, statuses in (("Running", {"running"}), ("Waiting", {"pending"}), ("Failed", {"error"})):
        assert linked(overview, words) == linked(jobs, words) == statuses
    not_ended = {"scheduled", "pending", "running", "paused"}
    assert linked(jobs, "Active") == not_ended
    site = "/console/sites/words"
    assert linked(read(gateway, site), "Active runs") == not_ended
    assert gateway.patch("/sites/words", json={"enabled": False}).status_code == 200
    assert "1 of its jobs is still active" in read(gateway, site)


def test_the_name_of_a_user_filters_the_list_and_to_look_as_the_user_is_offered_by_name(
    gateway: httpx2.Client, keep: Keep, user: str
) -> None:
    job = keep(make_job(user_id=user, waiting_reason=WaitingReason.USER_QUOTA))
    keep(make_job())
    assert f'<td data-label="User"><a href="/console/jobs?user={user}">' in read(gateway, "/console/jobs")
    assert f'"/console/jobs?user={user}&amp;status=running"' in read(gateway, f"/console/jobs/{job.id}/log")
    page = read(gateway, "/console/jobs", user=user)
    assert listed(page) == [job.id]
    assert filter_of(page) == {"user_id": user}
    assert "Viewing as" not in page
    assert 'href="/console/nodes"' in page
    (offered,) = re.findall(r'<a [^>]*href="([^"]*)" data-offered>', page)
    assert f"View as <bdi>{user}</bdi>" in page
    assert "Viewing as" in read(gateway, offered)


def test_the_jobs_that_ended_last_stand_first_on_the_overview(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    now = utc_now()
    # asked for in this order, in minutes before now, and ended in another one, one of them long ago
    times = ((300, 90), (240, 1), (200, 30), (100, 2), (50, 40))
    jobs = {}
    for asked, ended in times:
        made, end = (now - timedelta(minutes=minutes) for minutes in (asked, ended))
        jobs[ended] = keep(make_job(user_id=user, created_at=made, started_at=made, finished_at=end, **ENDED)).id
    wanted = [jobs[ended] for ended in sorted(jobs)]
    assert listed(read(gateway, "/", user_id=user)) == wanted
    of_all = listed(read(gateway, "/"))
    assert [job for job in of_all if job in wanted] == wanted[: len([job for job in of_all if job in wanted])]
    assert jobs[1] in of_all


def test_the_list_says_how_long_a_cancelled_job_ran(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    end = utc_now()
    cancelled = {**ENDED, "status": JobStatus.CANCELLED, "finished_at": end}
    keep(make_job(user_id=user, started_at=end - timedelta(minutes=2), **cancelled))
    assert 'data-field="ran">2 min<' in read(gateway, "/console/jobs", user_id=user)


def test_a_span_that_ends_now_is_a_filter_by_time(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    keep(make_job(user_id=user, created_at=utc_now() - timedelta(days=2)))
    new = keep(make_job(user_id=user))
    page = read(gateway, "/console/jobs", user_id=user, last="24h")
    assert listed(page) == [new.id]
    assert set(filter_of(page)) == {"user_id", "since"}
    assert "last 24 hours" in page


def test_runs_of_a_schedule_are_listed_under_its_name(
    gateway: httpx2.Client, keep: Keep, user: str, make: Callable[..., dict[str, Any]]
) -> None:
    schedule = make(name="every <b>morning</b>")["schedule_id"]
    ran = keep(make_job(user_id=user, schedule_id=schedule))
    page = read(gateway, "/console/jobs", user_id=user, schedule_id=schedule)
    assert listed(page) == [ran.id]
    assert "every &lt;b&gt;morning&lt;/b&gt;" in page
    # one that was deleted, and one of another user, have no name
    assert "schedule <bdi>0a0a0a0a</bdi>" in read(gateway, "/console/jobs", schedule_id="0a" * 16)
    assert "morning" not in read(gateway, "/console/jobs", user_id="nobody", schedule_id=schedule)


def test_a_record_of_requests_shows_failures_where_there_are_some(
    gateway: httpx2.Client, keep: Keep, user: str
) -> None:
    for errors, is_hidden in ((0, True), (3, False)):
        progress = Progress(completed_pages=4, errors_count=errors)
        job = keep(make_job(user_id=user, progress=progress, attempt=1, **ENDED))
        for filtered, hidden in (({}, is_hidden), ({"failed": "true"}, False)):
            page = read(gateway, f"/console/jobs/{job.id}/requests", **filtered)
            found = re.search(r' columns="([^"]*)"', page)
            assert found
            columns = {one["name"]: one["hidden"] for one in json.loads(unescape(found[1]))}
            assert columns["reason"] is columns["retries"] is hidden


def test_columns_are_chosen_and_kept_and_some_sort_the_list(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    now = utc_now()
    first, second = (
        keep(make_job(user_id=user, finished_at=now - timedelta(minutes=ago), **{**ENDED, "message": "x"})).id
        for ago in (1, 5)
    )
    usual = read(gateway, "/console/jobs", user_id=user)
    assert 'data-field="items_count"' in usual
    assert 'data-label="Node"' not in usual
    page = read(gateway, "/console/jobs", user_id=user, columns=["ended", "node"], sort="ended")
    assert listed(page) == [first, second]
    assert 'data-label="Ended"' in page
    assert 'data-label="Node"' in page
    assert 'data-field="items_count"' not in page
    assert 'aria-sort="descending"' in page
    links = [unescape(one) for one in re.findall(r'href="(/console/jobs\?[^"]*)"', page)]
    links = [one for one in links if "sort=" in one or "status=" in one]
    assert len(links) > 7
    assert all("columns=ended&columns=node" in one for one in links)
    assert "columns.0: " in read(gateway, "/console/jobs", columns="size")


def test_pages_of_a_list_keep_its_filter(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    made = [keep(make_job(user_id=user, tags=["a&b"])).id for _ in range(3)]
    first = read(gateway, "/console/jobs", user_id=user, tag="a&b", limit=2)
    (further,) = re.findall(r'href="([^"]*)" rel="next"', first)
    assert {*listed(first), *listed(read(gateway, unescape(further)))} == set(made)


def test_what_cannot_be_a_filter_is_said_and_lists_say_what_to_do_first(gateway: httpx2.Client, user: str) -> None:
    assert "since: " in read(gateway, "/console/jobs", since="yesterday")
    assert "spidr: " in read(gateway, "/console/jobs", spidr="seo")
    assert "No matching jobs" in read(gateway, "/console/jobs", user_id=user, spider="seo")
    assert "No jobs yet" in read(gateway, "/console/jobs", user_id=user)
    assert "No dead letters" in read(gateway, "/console/dead-letters", user_id=user)


def test_dead_letters_are_listed_with_their_reason(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    letter = keep(make_job(user_id=user, dead=True, message="<b>robots.txt</b> \u202e", **ENDED))
    keep(make_job(user_id=user, **ENDED))
    page = read(gateway, "/console/dead-letters", user_id=user)
    assert page.count("Requeue job ") == 1
    assert f"POST /dead-letters/{letter.id}/requeue" in page
    assert "&lt;b&gt;robots.txt&lt;/b&gt; \\u202e" in page
    assert filter_of(page) == {"user_id": user, "dead": True}


@pytest.mark.parametrize("query", ["", "&"])
def test_a_default_view_without_a_filter_does_not_lead_to_itself(gateway: httpx2.Client, query: str) -> None:
    body = {"list": "dead-letters", "name": "all", "query": query, "default": True}
    made = gateway.post("/views", json=body).raise_for_status().json()
    read(gateway, "/console/dead-letters")
    gateway.delete(f"/views/{made['view_id']}").raise_for_status()


def test_the_beginning_of_an_id_leads_to_the_job(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    first, second = (keep(make_job(id=f"{beginning}{new_job_id()[16:]}", user_id=user)) for beginning in ALIKE)
    html = {"Accept": "text/html"}
    short = gateway.get(f"/console/jobs/{first.id[:12]}", headers=html)
    assert (short.status_code, short.headers["location"]) == (307, f"/console/jobs/{first.id}/log")
    # whose view it is stays in the address, and jobs of others are not found
    mine = gateway.get(f"/console/jobs/{second.id[:12]}", params={"user_id": user}, headers=html)
    assert mine.headers["location"] == f"/console/jobs/{second.id}/log?user_id={user}"
    for path, asked in ((first.id[:12], "nobody"), (first.id[:8], user), ("abc", user), ("nowhere", user)):
        assert gateway.get(f"/console/jobs/{path}", params={"user_id": asked}, headers=html).status_code == 404
