"""`POST /crawl` for a crawl later, or again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from pymongo.database import Database

from gateway.clock import to_iso, utc_now
from gateway.jobs.job import JobStatus
from gateway.jobs.store import JobStore
from gateway.schedules.store import ScheduleStore

Crawl = dict[str, Any]
Change = Callable[..., Crawl]
TOMORROW = to_iso(utc_now() + timedelta(days=1))
DAILY = {"interval": "0 9 * * *", "timezone": "Europe/Paris"}

STREAM = {"Accept": "text/event-stream"}


@pytest.fixture
def schedules(database: Database[dict[str, Any]]) -> ScheduleStore:
    return ScheduleStore(database)


def ask(gateway: httpx2.Client, crawl: Crawl, **more: Any) -> Crawl:
    response = gateway.post("/crawl", json={**crawl, **more})
    assert response.status_code == 202, response.text
    answer: Crawl = response.json()
    return answer


def test_a_crawl_for_later_is_a_job_that_waits_for_its_time(
    gateway: httpx2.Client, jobs: JobStore, crawl: Crawl
) -> None:
    answer = ask(gateway, crawl, schedule_at=TOMORROW, depth=3)
    job_id = answer["job_id"]
    assert answer == {
        "job_id": job_id,
        "scheduled": True,
        "cached": False,
        "next_run": TOMORROW,
        "logs_url": f"/jobs/{job_id}/logs",
        "page_url": f"/console/jobs/{job_id}",
        "status_url": f"/jobs/{job_id}/status",
    }
    job = jobs.get(job_id)
    assert (job.status, to_iso(job.not_before), job.spec.depth) == (JobStatus.SCHEDULED, TOMORROW, 3)
    status = gateway.get(answer["status_url"]).json()
    assert (status["status"], status["next_run"], status["queue_position"]) == ("scheduled", TOMORROW, None)


def test_a_crawl_again_and_again_is_a_schedule_that_answers_as_a_job(
    gateway: httpx2.Client, schedules: ScheduleStore, crawl: Crawl
) -> None:
    answer = ask(gateway, crawl, **DAILY, tags=["nightly"], max_runs=9, jitter=0.25, overlap="queue", catch_up="none")
    schedule = schedules.get(answer["job_id"])
    assert schedule.next_run is not None
    assert (answer["scheduled"], answer["next_run"]) == (True, to_iso(schedule.next_run))
    assert (schedule.timing.interval, schedule.timing.timezone, schedule.timing.jitter) == (*DAILY.values(), 0.25)
    assert (schedule.overlap, schedule.catch_up, schedule.max_runs) == ("queue", "none", 9)
    assert schedule.crawl is not None
    assert schedule.crawl.spec.ignore_cache, "each run asks the site anew"
    status = gateway.get(answer["status_url"]).json()
    assert (status["status"], status["job_id"], status["spider"]) == ("scheduled", schedule.id, "seo")
    assert (status["next_run"], status["last_run"], status["items_count"]) == (answer["next_run"], None, 0)
    detail = gateway.get(f"/jobs/{schedule.id}").json()
    assert (detail["schedule"]["crawl"]["tags"], detail["schedule"]["interval"]) == (["nightly"], "0 9 * * *")


def test_with_both_the_first_run_is_not_before_the_time(gateway: httpx2.Client, crawl: Crawl) -> None:
    assert ask(gateway, crawl, schedule_at=TOMORROW, interval="every 7m")["next_run"] == TOMORROW
    hourly = ask(gateway, crawl, schedule_at="2127-06-01T09:30:00+02:00", interval="@hourly")
    assert hourly["next_run"] == "2127-06-01T08:00:00.000Z"


@pytest.mark.parametrize("when", [{"schedule_at": TOMORROW}, DAILY, {"interval": "every 1h", "jitter": 0.2}])
def test_the_same_request_is_answered_with_what_there_is(gateway: httpx2.Client, crawl: Crawl, when: Crawl) -> None:
    first = ask(gateway, crawl, **when)
    again = ask(gateway, crawl, **when)
    assert again.pop("cached_at").endswith("Z")
    assert again == {**first, "cached": True}
    others = [
        {**when, "schedule_at": "2127-06-01T09:00:00Z"},
        {**when, "interval": "every 3h"},
        {**when, "depth": 1},
        {**when, "user_id": "somebody-else"},
    ]
    ids = {ask(gateway, crawl, **other)["job_id"] for other in others}
    assert len({first["job_id"], *ids}) == 5


def test_simultaneous_requests_make_one_schedule(gateway: httpx2.Client, crawl: Crawl) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: ask(gateway, crawl, **DAILY), range(16)))
    assert len({answer["job_id"] for answer in answers}) == 1
    assert sum(not answer["cached"] for answer in answers) == 1


def test_a_schedule_answers_however_old_until_it_has_ended(gateway: httpx2.Client, crawl: Crawl) -> None:
    soon = to_iso(utc_now() + timedelta(seconds=4))
    first = ask(gateway, crawl, **DAILY, schedule_at=soon)
    while to_iso(utc_now()) <= soon:
        time.sleep(0.05)
    # a new schedule with this time would be refused, because the time is over
    assert ask(gateway, crawl, **DAILY, schedule_at=soon)["job_id"] == first["job_id"]
    assert gateway.post(f"/jobs/{first['job_id']}/cancel").json()["status"] == "cancelled"
    refused = gateway.post("/crawl", json={**crawl, **DAILY, "schedule_at": soon})
    assert (refused.status_code, refused.json()["error"]["detail"]["field"]) == (422, "schedule_at")
    assert ask(gateway, crawl, **DAILY)["cached"] is False


@pytest.mark.parametrize("when", [{"schedule_at": TOMORROW}, DAILY])
def test_ignore_cache_takes_over(gateway: httpx2.Client, crawl: Crawl, when: Crawl) -> None:
    first = ask(gateway, crawl, **when)["job_id"]
    second = ask(gateway, crawl, **when, ignore_cache=True)
    assert (second["cached"], second["job_id"] != first) == (False, True)
    assert ask(gateway, crawl, **when)["job_id"] == second["job_id"]


def test_what_is_refused_takes_over_nothing(gateway: httpx2.Client, crawl: Crawl) -> None:
    first = ask(gateway, crawl, **DAILY)["job_id"]
    over = {"ignore_cache": True, "ends_at": "2020-01-01T00:00:00Z"}
    assert gateway.post("/crawl", json={**crawl, **DAILY, **over}).status_code == 422
    assert ask(gateway, crawl, **DAILY)["job_id"] == first


@pytest.mark.parametrize("when", [{"schedule_at": TOMORROW}, DAILY])
def test_an_idempotency_key_holds_over_crawls_of_every_kind(
    gateway: httpx2.Client, crawl: Crawl, when: Crawl
) -> None:
    headers, later = {"Idempotency-Key": "once"}, {**crawl, **when, "ignore_cache": True}
    first = gateway.post("/crawl", json=later, headers=headers).json()
    again = gateway.post("/crawl", json=later, headers=headers).json()
    assert (again["job_id"], again["cached"]) == (first["job_id"], True)
    url = "https://example.com/told"
    assert gateway.post("/crawl", json={**later, "webhook_url": url}, headers=headers).is_success
    shown = gateway.get(f"/schedules/{first['job_id']}" if "interval" in when else f"/jobs/{first['job_id']}").json()
    assert url in str(shown)
    for other in (crawl, {**later, "depth": 5}, {**crawl, "interval": "every 1d"}):
        refused = gateway.post("/crawl", json=other, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "idempotency_key_reused")


def test_an_idempotency_key_used_for_two_kinds_at_once_makes_one(gateway: httpx2.Client, crawl: Crawl) -> None:
    later = {**crawl, **DAILY}

    def ask_both(number: int) -> list[bool]:
        headers = {"Idempotency-Key": f"both-{number}"}
        with ThreadPoolExecutor(2) as threads:
            bodies = ({**body, "depth": number % 5, "ignore_cache": True} for body in (crawl, later))
            answers = threads.map(lambda body: gateway.post("/crawl", json=body, headers=headers).status_code, bodies)
            return sorted(status in {200, 202} for status in answers)

    assert [ask_both(number) for number in range(20)] == [[False, True]] * 20


def test_a_webhook_in_a_repeat_is_added(
    gateway: httpx2.Client, jobs: JobStore, schedules: ScheduleStore, crawl: Crawl
) -> None:
    urls = [f"https://example.com/{name}" for name in "ab"]
    for when in ({"schedule_at": TOMORROW}, DAILY):
        ids = {ask(gateway, crawl, **when, webhook_url=url)["job_id"] for url in (*urls, urls[1])}
        assert len(ids) == 1
    assert (schedule := schedules.get(ids.pop())).crawl is not None
    assert schedule.crawl.webhooks == tuple(urls)
    assert jobs.get(ask(gateway, crawl, schedule_at=TOMORROW)["job_id"]).webhooks == urls


def test_a_crawl_for_later_is_cancelled_at_once(gateway: httpx2.Client, crawl: Crawl) -> None:
    first = ask(gateway, crawl, schedule_at=TOMORROW)
    assert gateway.post(f"/jobs/{first['job_id']}/cancel").json()["status"] == "cancelled"
    # a client that got no answer asks again
    assert gateway.post(f"/jobs/{first['job_id']}/cancel").json()["status"] == "cancelled"
    assert ask(gateway, crawl, schedule_at=TOMORROW)["cached"] is False


def test_the_stream_of_a_crawl_for_later_waits_for_it(gateway: httpx2.Client, crawl: Crawl) -> None:
    with gateway.stream("POST", "/crawl", headers=STREAM, json={**crawl, "schedule_at": TOMORROW}) as source:
        assert source.status_code == 200
        events = (event for event in httpx2.EventSource(source) if event.data)
        first, second = next(events), next(events)
        assert (first.event, first.json()["scheduled"], first.json()["next_run"]) == ("job", True, TOMORROW)
        assert (second.event, second.json()) == (
            "status",
            {"status": "scheduled", "attempt": 0, "next_run": TOMORROW},
        )
        gateway.post(f"/jobs/{first.json()['job_id']}/cancel").raise_for_status()
        last = [*events][-1]
    assert (last.event, last.json()["status"]) == ("end", "cancelled")


def test_the_time_may_carry_any_offset(gateway: httpx2.Client, crawl: Crawl) -> None:
    answers = [ask(gateway, crawl, schedule_at=f"2127-06-01T{time}") for time in ("09:00:00Z", "11:00:00+02:00")]
    assert {answer["next_run"] for answer in answers} == {"2127-06-01T09:00:00.000Z"}
    assert len({answer["job_id"] for answer in answers}) == 1


def test_how_pages_are_fetched_is_part_of_the_request(gateway: httpx2.Client, jobs: JobStore, crawl: Crawl) -> None:
    wishes = {"headers": {"X-a.b$c": "1"}, "min_pause_seconds": 1, "retry_codes": [503]}
    plain, wishful, none = (
        gateway.post("/crawl", json={**crawl, **more}).json()["job_id"]
        for more in ({}, {"fetch": wishes}, {"fetch": {}})
    )
    assert plain == none != wishful
    spec = jobs.get(wishful).spec
    assert spec.fetch is not None
    assert spec.fetch.model_dump(exclude_defaults=True, mode="json") == wishes
