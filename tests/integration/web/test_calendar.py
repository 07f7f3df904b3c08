"""`GET /schedules/calendar`."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest
from jobs import make_job
from pymongo.database import Database

from gateway.clock import to_iso, utc_now
from gateway.jobs.job import Job, JobStatus
from gateway.schedules.schedule import LedgerEntry, LedgerKind
from gateway.schedules.store import LedgerStore

Make = Callable[..., dict[str, Any]]


def entry(schedule_id: str, job_id: str, due: datetime, **fields: Any) -> LedgerEntry:
    plain = {"kind": LedgerKind.FIRED, "at": due, "recorded_at": due, "late_by_seconds": 0, "rev": 1}
    return LedgerEntry.model_validate({"job_id": job_id, "schedule_id": schedule_id, "due": due, **plain, **fields})


def test_a_week_has_what_was_and_what_comes(
    gateway: httpx2.Client, database: Database[Any], make: Make, keep: Callable[[Job], Job], user: str
) -> None:
    daily = make(jitter=0)
    often, paused = make(interval="every 1m", timezone=None), make(interval="@hourly", timezone=None)
    gateway.post(f"/schedules/{paused['schedule_id']}/pause").raise_for_status()
    now, identity = utc_now(), daily["schedule_id"]
    ran = keep(make_job(user_id=user, schedule_id=identity, status=JobStatus.PARTIAL, settled=True, live_key=None))
    days = [now - timedelta(days=day) for day in (1, 2, 2.5, 9)]
    LedgerStore(database).record(
        [
            entry(identity, ran.id, days[0], late_by_seconds=61.5),
            entry(identity, "1" * 32, days[1], kind=LedgerKind.SKIPPED, reason="the previous run has not ended"),
            entry(identity, "2" * 32, days[2], kind=LedgerKind.MISSED, missed=4),
            entry(identity, "3" * 32, days[3]),
        ]
    )
    week = gateway.get("/schedules/calendar", params={"user_id": user}).json()
    assert [one["schedule_id"] for one in week["schedules"]] == [often["schedule_id"], identity]
    shown = week["schedules"][1]
    seen = [(one["kind"], one["late"], one["status"], one["job_id"], one["missed"]) for one in shown["past"]]
    assert seen == [
        ("fired", True, "partial", ran.id, 0),
        ("skipped", False, None, None, 0),
        ("missed", False, None, None, 4),
    ]
    history = gateway.get(f"/schedules/{identity}/history").json()["entries"]
    assert [one["status"] for one in history] == ["partial", None, None, None]
    following = gateway.get(f"/schedules/{identity}/next").json()["runs"]
    assert shown["coming"] == [run for run in following if run["due"] < week["until"]]
    assert (len(week["schedules"][0]["coming"]), week["schedules"][0]["coming_cut"]) == (200, True)
    assert (shown["past_cut"], shown["coming_cut"], week["next"]) == (False, False, None)


def test_a_coming_week_has_the_occurrences_of_that_week(gateway: httpx2.Client, make: Make, user: str) -> None:
    # in a zone whose clock never changes, so that two days have two occurrences
    make(jitter=0, timezone="UTC")
    since = utc_now() + timedelta(days=20)
    asked = {"user_id": user, "since": to_iso(since), "until": to_iso(since + timedelta(days=2))}
    (row,) = gateway.get("/schedules/calendar", params=asked).json()["schedules"]
    assert len(row["coming"]) == 2
    assert row["start_urls"] == gateway.get(f"/schedules/{row['schedule_id']}").json()["start_urls"]
    assert all(asked["since"] <= run["due"] < asked["until"] for run in row["coming"])


def test_single_crawls_for_later_are_in_it(gateway: httpx2.Client, crawl: dict[str, Any], make: Make) -> None:
    make()
    soon = utc_now() + timedelta(days=2)
    made = [
        gateway.post("/crawl", json={**crawl, "schedule_at": to_iso(soon + day * timedelta(days=1)), **more}).json()
        for day, more in ((0, {}), (-1, {"start_urls": ["https://example.com/sale"]}), (20, {}))
    ]
    asked: dict[str, Any] = {"user_id": crawl["user_id"]}
    first = gateway.get("/schedules/calendar", params=asked).json()
    assert [one["job_id"] for one in first["crawls"]] == [made[1]["job_id"], made[0]["job_id"]]
    assert first["crawls"][1]["start_urls"] == crawl["start_urls"]
    for more, count in (({"spider": "seo"}, 2), ({"q": "/sale"}, 1), ({"site": "none"}, 0)):
        found = gateway.get("/schedules/calendar", params=asked | more).json()
        assert len(found["crawls"]) == count
    page = gateway.get("/console/schedules/week", params=asked, headers={"Accept": "text/html"}).text
    assert f"/console/jobs/{made[0]['job_id']}?" in page
    assert made[2]["job_id"] not in page


@pytest.mark.parametrize(
    "wrong",
    [
        {"since": "2027-01-02T00:00:00Z", "until": "2027-01-01T00:00:00Z"},
        {"since": "2027-01-01T00:00:00Z", "until": "2027-03-01T00:00:00Z"},
        {"since": "9999-12-31T00:00:00Z"},
        {"until": "0001-01-01T00:00:00Z"},
    ],
)
def test_too_long_a_time_is_refused(gateway: httpx2.Client, wrong: dict[str, str]) -> None:
    answer = gateway.get("/schedules/calendar", params=wrong)
    assert answer.status_code == 422
    assert answer.json()["error"]["detail"]["field"] in {"since", "until"}


def test_days_that_come_once_in_28_years_are_not_looked_for_beyond_the_time_that_is_asked_for(
    gateway: httpx2.Client, make: Make, user: str
) -> None:
    daily = make(jitter=0)
    for number in range(12):
        make(interval="0 0 29 2 */7", jitter=0.5, start_urls=[f"https://example.com/{number}"])
    began = time.monotonic()
    found = gateway.get("/schedules/calendar", params={"user_id": user}).raise_for_status().json()
    # to find all 200 occurrences of one of them, up to the year 7600, would take more than two seconds
    assert time.monotonic() - began < 12
    assert [one["schedule_id"] for one in found["schedules"]] == [daily["schedule_id"]]


def test_a_page_that_takes_long_ends_early_and_the_next_one_goes_on(
    gateway: httpx2.Client, make: Make, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.schedules.calendar.SECONDS", -1)
    made = [make(jitter=0, start_urls=[f"https://example.com/{number}"])["schedule_id"] for number in range(3)]
    pages, after = list[list[str]](), None
    while after or not pages:
        page = gateway.get(
            "/schedules/calendar", params={"user_id": user, **({"after": after} if after else {})}
        ).json()
        pages.append([one["schedule_id"] for one in page["schedules"]])
        after = page["next"]
    assert pages == [[identity] for identity in reversed(made)]
