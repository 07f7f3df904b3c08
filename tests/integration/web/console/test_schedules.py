"""The pages of schedules: the list, the week, one of them and its form."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from html import unescape
from typing import Any

import httpx2
from jobs import make_job
from pymongo.database import Database

from gateway.clock import to_iso, utc_now
from gateway.console.formats import exact
from gateway.jobs.job import Job, JobStatus

Make = Callable[..., dict[str, Any]]


def read(gateway: httpx2.Client, path: str, **query: Any) -> str:
    answer = gateway.get(path, params=query or None, headers={"Accept": "text/html"})
    assert answer.status_code == 200, answer.text
    return answer.text


def test_a_week_begins_today_and_shows_schedules_without_a_name(
    gateway: httpx2.Client, make: Make, user: str
) -> None:
    made = make(name=None, interval="0 9 * * *", timezone="UTC", jitter=0)
    today = utc_now()
    page = read(gateway, "/console/schedules/week", zone="UTC", user_id=user)
    # a week from the day on which it was made: midnight may have been in between
    weeks = [[f">{start + timedelta(days=day):%a %-d}<" for day in range(7)] for start in (today, utc_now())]
    (places, *_) = ([page.index(day) for day in week] for week in weeks if all(day in page for day in week))
    assert places == sorted(places)
    assert "<bdi>seo</bdi> <bdi>https://example.com/</bdi></a>" in page
    assert made["schedule_id"] in page
    assert "every day at 09:00" in page


def test_a_week_has_runs_by_hand_and_says_where_it_is_cut(gateway: httpx2.Client, make: Make, user: str) -> None:
    daily = make(interval="0 9 * * *", timezone="UTC", jitter=0)
    make(interval="* * * * *", timezone="UTC", jitter=0)
    run = gateway.post(f"/schedules/{daily['schedule_id']}/run").json()["job_id"]
    page = read(gateway, "/console/schedules/week", zone="UTC", user_id=user)
    assert f"/console/jobs/{run}" in page
    assert "<span>pending, manual</span>" in page
    assert "or more upcoming" in page
    assert "at most 200 past and 200 upcoming runs shown" in page


def test_a_schedule_without_a_dataset_says_how_to_learn_what_changes(gateway: httpx2.Client, make: Make) -> None:
    without, having = make(), make(dataset="offers")
    said = f"/console/schedules/{without['schedule_id']}/edit#dataset-part"
    assert said in read(gateway, f"/console/schedules/{without['schedule_id']}")
    assert "/edit#dataset-part" not in read(gateway, f"/console/schedules/{having['schedule_id']}")


def test_a_schedule_says_how_far_its_runs_are_moved(gateway: httpx2.Client, make: Make) -> None:
    for interval, jitter, words in (("every 1h", None, "± 10 %"), ("every 2h", 0.25, "± 25 %")):
        made = make(interval=interval, timezone=None, jitter=jitter)
        assert words in read(gateway, f"/console/schedules/{made['schedule_id']}")
    exact = make(interval="every 3h", timezone=None, jitter=0)
    assert "jitter ±" not in read(gateway, f"/console/schedules/{exact['schedule_id']}")


def test_the_list_says_an_interval_as_other_times_and_the_clock_of_the_next_run(
    gateway: httpx2.Client, make: Make, user: str
) -> None:
    made = make(interval="every 720m", timezone=None, jitter=0, schedule_at=to_iso(utc_now() + timedelta(hours=5)))
    page = read(gateway, "/console/schedules", user_id=user)
    assert '<span class="nowrap" title="every 720m">every 12 h</span>' in page
    due = datetime.fromisoformat(made["next_run"])
    assert f'title="{exact(due)}" data-clock>{due:%a %H:%M} UTC<' in page
    # where it is changed, it is as it was written
    assert 'value="every 720m"' in read(gateway, f"/console/schedules/{made['schedule_id']}/edit")


def test_the_form_of_a_schedule_shows_no_value_of_a_variable_and_sends_none_back(
    gateway: httpx2.Client, make: Make, database: Database[Any]
) -> None:
    identity = make()["schedule_id"]
    # as if its project had opened it
    changed = {"$set": {"crawl.spec.env": {"SHOP_REGION": "of a secret"}}}
    database["schedules"].update_one({"_id": identity}, changed)
    page = read(gateway, f"/console/schedules/{identity}/edit")
    assert "of a secret" not in page
    found = re.search(r'<textarea id="env"[^>]* data-default="([^"]*)"[^>]*>([^<]*)<', page)
    assert found
    # what is still as it was shown is left out of the change
    assert (json.loads(unescape(found[1])), found[2]) == ({"SHOP_REGION": "***"}, "SHOP_REGION=***")


def test_the_form_of_a_schedule_keeps_a_version_that_is_deployed_nowhere_now(
    gateway: httpx2.Client, make: Make, database: Database[Any]
) -> None:
    identity = make()["schedule_id"]
    database["schedules"].update_one({"_id": identity}, {"$set": {"crawl.spec.version": "0.9-gone"}})
    page = read(gateway, f"/console/schedules/{identity}/edit")
    field = re.search(r'id="version-field"([^>]*)>', page)
    assert field
    assert "hidden" not in field[1]
    # without it, whoever changes only the name would send "the latest at each run"
    assert '<option value="0.9-gone" selected>0.9-gone (not deployed)</option>' in page
    assert "not deployed" not in read(gateway, f"/console/schedules/{identity}/edit", spider="another")


def test_a_run_that_was_cancelled_before_it_started_has_started_never(
    gateway: httpx2.Client, make: Make, keep: Callable[[Job], Job]
) -> None:
    schedule = make()
    job = make_job(user_id=schedule["user_id"], schedule_id=schedule["schedule_id"])
    ended = {"status": JobStatus.CANCELLED, "settled": True, "live_key": None, "finished_at": utc_now()}
    keep(job.model_copy(update=ended))
    page = read(gateway, f"/console/schedules/{schedule['schedule_id']}")
    assert "<td>never</td>" in page
    assert "<td>not yet</td>" not in page
