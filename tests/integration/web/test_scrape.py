"""Runs of sites are requested and looked up."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from forms import full_or_short
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st
from integration.web.board import RECORD, Board, Serve, open_board, problem
from jobs import make_job

from gateway.contract.crawl import CrawlSpec
from gateway.jobs.job import JobStatus, TargetRun, Trigger, new_job_id
from gateway.settings import Settings
from gateway.web.routes.scrape import SiteRunView


@pytest.fixture(scope="module")
def board(serve: Serve, settings: Settings) -> Iterator[Board]:
    with open_board(serve, settings, "scrape") as board:
        board.add_site("closed", 8, enabled=False)
        board.add_site("plain", 9, search_url="https://plain.example/{keywords}/jobs", allow_overlap=True)
        board.add_site("strange", 10, spider="nobody-has-it")
        yield board


def test_a_run_is_answered_with_its_id_and_is_a_job_like_a_scheduled_one(board: Board) -> None:
    answer = board.scrape(location="Lyon", results_wanted=40, is_remote=True)
    data = answer.json()["data"]
    job = board.jobs.get(data["task_id"])
    assert answer.json() == {
        "status": "success",
        "data": {"task_id": job.id, "run_id": f"manual_{job.id}", "status": "queued", "execution_mode": "async"},
    }
    assert (job.trigger, job.user_id, job.exclusive, job.status) == ("manual", "operator", "site:board", "pending")
    assert job.spec.start_urls == ("https://board.example/search?q=bees&l=Lyon",)
    assert (job.spec.site, job.spec.spider) == ("board", "jobs")
    assert (job.spec.params["results_wanted"], job.spec.params["is_remote"]) == (40, True)
    assert job.correlation_id == answer.headers["X-Request-ID"]


def test_a_site_may_let_its_runs_overlap(board: Board) -> None:
    assert board.started(site_name="plain").exclusive is None


def test_what_is_not_said_is_as_in_the_sites_own_runs(board: Board) -> None:
    board.add_site("own-words", 11, payload={"keywords": "honey", "location": "Porto"})
    job = board.started(site_name="own-words", search_term=None)
    assert job.spec.start_urls == ("https://board.example/search?q=honey&l=Porto",)


def test_a_payload_is_laid_over_the_sites_own(board: Board) -> None:
    assert board.started(payload={"max_result_pages": 2}).spec.params["max_result_pages"] == 2
    wrong = board.scrape(payload={"first_page": "one"})
    assert problem(wrong) == (422, "invalid_request")
    assert wrong.json()["error"]["detail"]["field"] == "payload.first_page"


def test_an_unknown_site_is_answered_with_those_that_there_are(board: Board) -> None:
    answer = board.scrape(site_name="nowhere")
    assert problem(answer) == (404, "site_not_found")
    assert {"board", "plain"} <= set(answer.json()["error"]["detail"]["known"])


def test_a_disabled_site_is_not_scraped(board: Board) -> None:
    assert problem(board.scrape(site_name="closed")) == (409, "site_disabled")


def test_a_site_that_no_node_can_crawl_is_told_at_once(board: Board) -> None:
    answer = board.scrape(site_name="strange")
    assert problem(answer) == (409, "conflict")
    assert "nobody-has-it" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"site_name": "plain", "search_term": ""}, "search_term"),
        ({"site_name": "plain", "search_term": "x", "location": "Lyon"}, "location"),
        ({"results_wanted": 0}, "results_wanted"),
        ({"results_wanted": "5"}, "results_wanted"),
        ({"is_remote": 1}, "is_remote"),
        ({"term": "x"}, "term"),
        ({"user_id": "a b"}, "user_id"),
        ({"search_term": "x\n"}, "search_term"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(board: Board, body: dict[str, Any], field: str) -> None:
    answer = board.scrape(**body)
    assert problem(answer) == (422, "invalid_request")
    assert answer.json()["error"]["detail"]["field"] == field


def test_two_runs_that_look_for_the_same_are_two_unless_a_key_says_otherwise(board: Board) -> None:
    assert board.started().id != board.started().id
    headers = {"Idempotency-Key": new_job_id()}
    answers = [board.scrape(headers=headers).json()["data"]["run_id"] for _ in range(2)]
    assert answers[0] == answers[1]
    other = board.scrape(search_term="other", headers=headers)
    assert problem(other) == (409, "idempotency_key_reused")


def test_the_record_has_exactly_its_fields_beside_the_results(board: Board) -> None:
    job = board.started()
    queued = board.run(f"manual_{job.id}")
    assert set(queued) == {*RECORD, "results", "next", "items_url"}
    assert (queued["status"], queued["started_at"], queued["results"]) == ("queued", None, [])
    board.end(job, JobStatus.PARTIAL, {"title": "Beekeeper"})
    record = board.run(f"manual_{job.id}")
    counts = {name: record[name] for name in ("requested_pages", "completed_pages", "errors_count")}
    assert counts == {"requested_pages": 3, "completed_pages": 2, "errors_count": 1}
    assert (record["status"], record["message"], record["trigger"]) == ("partial", "3 pages", "manual")
    assert (record["task_id"], record["site_schedule_id"]) == (job.id, 7)
    assert record["finished_at"] >= record["started_at"]
    assert record["results"] == [{"title": "Beekeeper"}]
    assert SiteRunView.model_validate(record).results == record["results"], "as the reference says"
    assert board.http.get(record["items_url"]).json()["items"] == record["results"]


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (JobStatus.SCHEDULED, "queued"), (JobStatus.PENDING, "queued"), (JobStatus.RUNNING, "running"),
        (JobStatus.FINISHED, "succeeded"), (JobStatus.PARTIAL, "partial"), (JobStatus.ERROR, "failed"),
        (JobStatus.CANCELLED, "failed"),
    ],
)  # fmt: skip
def test_each_status_has_its_name_in_the_run_model(board: Board, status: JobStatus, told: str) -> None:
    spec = CrawlSpec(spider="jobs", start_urls=("https://board.example/",), site="gone")
    job = make_job(spec=spec, status=status, trigger=Trigger.SCHEDULED, live_key=None)
    board.jobs.insert(job)
    record = board.run(f"sched_{job.id}")
    assert (record["status"], record["trigger"], record["site_schedule_id"]) == (told, "scheduled", None)


def test_a_run_of_a_target_names_the_site_that_it_was_made_for(board: Board) -> None:
    target = TargetRun(
        target_id=3, website_id=42, website_name="gone", search_url="https://board.example/",
        requires_playwright=False, pagination_type="none", keywords_used="", location_used="",
    )  # fmt: skip
    job = make_job(trigger=Trigger.SCHEDULED, target=target)
    board.jobs.insert(job)
    assert board.run(f"sched_{job.id}")["site_schedule_id"] == 42


def test_only_the_id_of_a_run_with_its_own_prefix_leads_to_it(board: Board) -> None:
    run, crawl = board.started(), make_job()
    board.jobs.insert(crawl)
    absent = (f"sched_{run.id}", run.id, f"manual_{crawl.id}", f"manual_{'f' * 32}", "manual_", f"MANUAL_{run.id}")
    for run_id in absent:
        assert problem(board.http.get(f"/jobs/scrape/{run_id}")) == (404, "run_not_found")


def test_results_come_in_pages_without_gap_or_repeat(board: Board) -> None:
    job = board.started()
    expected = [{"number": number} for number in range(7)]
    board.end(job, JobStatus.FINISHED, *expected)
    found: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while True:
        page = board.run(f"manual_{job.id}", limit=3, **after)
        found += page["results"]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert found == expected
    assert board.run(f"manual_{job.id}", limit=0)["results"] == []


def test_a_run_that_waits_behind_another_of_its_site_was_created_all_the_same(board: Board) -> None:
    first, second = board.started(), board.started()
    assert first.exclusive == second.exclusive == "site:board"
    assert second.created_at - first.created_at < timedelta(seconds=5)


fields = st.sampled_from(["search_term", "location", "is_remote", "results_wanted", "payload", "user_id", "x"])
text = st.text(max_size=12) | st.text(string.printable, max_size=12)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
sites = st.sampled_from(["board", "plain", "closed"]) | text
slow_machines = limits(max_examples=full_or_short(80, 20), deadline=None, suppress_health_check=list(HealthCheck))


@slow_machines
@given(
    change=st.dictionaries(fields, anything, max_size=3), site=st.sampled_from(["board", "plain", "closed"]) | text
)
def test_no_body_makes_the_gateway_fail(board: Board, change: dict[str, Any], site: str) -> None:
    body = json.dumps({"site_name": site, **change})
    answer = board.http.post("/jobs/scrape", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code < 500, answer.text


@slow_machines
@given(name=text.filter(lambda name: name not in {"", ".", ".."}), limit=st.integers(-1, 1001) | text)
def test_no_address_makes_the_gateway_fail(board: Board, name: str, limit: object) -> None:
    address = quote(name, safe="", errors="surrogatepass")
    assert board.http.get(f"/jobs/scrape/{address}", params={"limit": limit}).status_code in {404, 422}
    assert board.http.post(f"/dead-letters/{address}/requeue").status_code in {404, 422}
