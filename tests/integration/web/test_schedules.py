"""`/schedules`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from jobs import make_job
from pymongo.database import Database

from gateway.clock import to_iso, utc_now
from gateway.jobs.job import Job, JobStatus
from gateway.schedules.schedule import LedgerEntry, LedgerKind, Schedule
from gateway.schedules.store import LedgerStore, ScheduleStore

Crawl = dict[str, Any]
Keep = Callable[[Job], Job]
Make = Callable[..., Crawl]
PARIS = {"interval": "0 9 * * *", "timezone": "Europe/Paris"}
ENDED = {"status": JobStatus.FINISHED, "settled": True, "live_key": None, "finished_at": utc_now()}


@pytest.fixture
def of_site(database: Database[dict[str, Any]], user: str) -> Schedule:
    """A schedule that belongs to a site."""
    now = utc_now()
    job = make_job()
    timing = {"interval": "every 60m", "starts_at": now}
    times = {"created_at": now, "updated_at": now}
    schedule = Schedule.model_validate(
        {"id": job.id, "user_id": user, "site": "acme", "timing": timing, "fingerprint": job.id, **times}
    )
    ScheduleStore(database).insert(schedule)
    return schedule


def patch(gateway: httpx2.Client, schedule: Crawl, **change: Any) -> Crawl:
    answer = gateway.patch(f"/schedules/{schedule['schedule_id']}", json=change)
    assert answer.status_code == 200, answer.text
    view: Crawl = answer.json()
    return view


def act(gateway: httpx2.Client, schedule: Crawl, action: str) -> httpx2.Response:
    return gateway.post(f"/schedules/{schedule['schedule_id']}/{action}")


def run_of(schedule: Crawl, **fields: Any) -> Job:
    return make_job(user_id=schedule["user_id"], schedule_id=schedule["schedule_id"], **fields)


# --- make, list, look


def test_a_schedule_is_made_and_told_of_in_full(gateway: httpx2.Client, make: Make, crawl: Crawl) -> None:
    view = make(name="every morning", params={"robots": False}, webhook_url="https://example.com/hook")
    assert (view["name"], view["state"], view["rev"], view["runs"]) == ("every morning", "active", 1, 0)
    assert (view["overlap"], view["catch_up"], view["jitter"], view["last_job_id"]) == ("skip", "one", None, None)
    assert (view["crawl"]["params"], view["crawl"]["webhooks"]) == ({"robots": False}, ["https://example.com/hook"])
    assert gateway.get(f"/schedules/{view['schedule_id']}").json() == view
    same = {**crawl, **PARIS, "params": {"robots": False}}
    again = gateway.post("/schedules", json=same)
    assert (again.status_code, again.json()["schedule_id"]) == (200, view["schedule_id"])
    assert gateway.post("/crawl", json=same).json()["job_id"] == view["schedule_id"]


def test_schedules_are_listed_newest_first_in_pages_and_narrowed(
    gateway: httpx2.Client, make: Make, user: str, of_site: Schedule
) -> None:
    first, second, third = (make(interval=f"every {n}h", name=f"number {n}", tags=["a.b"]) for n in (1, 2, 3))
    act(gateway, first, "pause")

    def found(**query: Any) -> list[str]:
        page = gateway.get("/schedules", params={"user_id": user, **query}).json()
        return [schedule["schedule_id"] for schedule in page["schedules"]]

    everything = found()
    assert everything == [*(one["schedule_id"] for one in (third, second, first)), of_site.id]
    assert found(state="paused") == found(q="NUMBER 1") == [first["schedule_id"]]
    assert found(site="acme") == found(q="acm") == [of_site.id]
    assert found(spider="seo") == found(q="a.b") == found(q="example.com") == everything[:3]
    assert found(q="a_b") == found(state="ended") == []
    page = gateway.get("/schedules", params={"user_id": user, "limit": 2}).json()
    assert found(after=page["next"]) == everything[2:]


# --- change


def test_a_change_replaces_what_is_given_and_nothing_else(gateway: httpx2.Client, make: Make) -> None:
    old = make(depth=2, tags=["a"], max_runs=5)
    new = patch(gateway, old, interval="30 8 * * MON-FRI", depth=None, tags=["b"], overlap="queue", name="n")
    assert (new["rev"], new["interval"], new["timezone"]) == (2, "30 8 * * MON-FRI", "Europe/Paris")
    assert (new["overlap"], new["name"], new["crawl"]["depth"], new["tags"]) == ("queue", "n", None, ["b"])
    assert (new["max_runs"], new["start_urls"], new["schedule_at"]) == (5, old["start_urls"], old["schedule_at"])
    assert new["next_run"] != old["next_run"]
    assert patch(gateway, new) == patch(gateway, new, tags=["b"]) == new, "nothing is changed"


def test_what_is_expected_of_its_runs_is_changed_like_the_rest(
    gateway: httpx2.Client, make: Make, crawl: Crawl
) -> None:
    old = make(expect={"min_items": 5})
    assert (old["crawl"]["expect"]["min_items"], old["crawl"]["expect"]["max_error_rate"]) == (5, None)
    new = patch(gateway, old, expect={"fields": {"title": 0.9}})
    assert (new["crawl"]["expect"]["min_items"], new["crawl"]["expect"]["fields"]) == (None, {"title": 0.9})
    same = {**crawl, **PARIS, "expect": {"fields": {"title": 0.9}}}
    assert gateway.post("/crawl", json=same).json()["job_id"] == old["schedule_id"]
    assert patch(gateway, new, expect=None)["crawl"]["expect"] is None
    assert gateway.post("/crawl", json={**same, "expect": {}}).json()["job_id"] == old["schedule_id"]


def test_only_another_time_moves_the_next_run(gateway: httpx2.Client, make: Make) -> None:
    old = make(interval="every 1h")
    assert patch(gateway, old, priority=5, jitter=None)["next_run"] == old["next_run"]
    assert patch(gateway, old, schedule_at="2127-01-01T00:00:00Z")["next_run"] == "2127-01-01T00:00:00.000Z"
    back = patch(gateway, old, schedule_at=None)
    assert (back["schedule_at"], back["next_run"]) == (old["schedule_at"], old["next_run"])


@pytest.mark.parametrize(
    ("field", "change", "status"),
    [
        ("interval", {"interval": "0 0 30 2 *"}, 422),
        ("timezone", {"timezone": "Nowhere/City"}, 422),
        ("schedule_at", {"schedule_at": "2020-01-01T00:00:00Z"}, 422),
        ("ends_at", {"ends_at": "2020-01-01T00:00:00Z"}, 422),
        ("jitter", {"jitter": 0.6}, 422),
        ("start_urls.0", {"start_urls": ["http://127.0.0.1/"]}, 403),
        ("webhook_url", {"webhooks": ["http://127.0.0.1/"]}, 403),
        ("params.colour", {"params": {"colour": "red"}}, 422),
        ("spider", {"spider": "nope"}, 422),
        ("spider", {"spider": None}, 422),
        ("fetch.proxy", {"fetch": {"proxy": "http://127.0.0.1:3128"}}, 403),
        ("expect.min_items", {"expect": {"min_items": 6}, "max_items": 5}, 422),
        ("expect.fields", {"expect": {"fields": 1}}, 422),
        ("user_id", {"user_id": "other"}, 422),
        ("next_run", {"next_run": "2127-01-01T00:00:00Z"}, 422),
    ],
)
def test_a_change_that_is_wrong_changes_nothing(
    *, gateway: httpx2.Client, make: Make, field: str, change: Crawl, status: int
) -> None:
    view = make()
    answer = gateway.patch(f"/schedules/{view['schedule_id']}", json={"priority": 7, **change})
    assert (answer.status_code, answer.json()["error"]["detail"]["field"]) == (status, field)
    assert gateway.get(f"/schedules/{view['schedule_id']}").json() == view


def test_a_change_may_insist_on_a_revision(gateway: httpx2.Client, make: Make) -> None:
    view = make()
    assert patch(gateway, view, priority=1, rev=1)["rev"] == 2
    late = gateway.patch(f"/schedules/{view['schedule_id']}", json={"priority": 2, "rev": 1})
    assert (late.status_code, late.json()["error"]["code"]) == (409, "schedule_changed")


def test_a_change_makes_it_answer_another_request(gateway: httpx2.Client, make: Make, crawl: Crawl) -> None:
    view = make()
    patch(gateway, view, depth=4)
    assert gateway.post("/crawl", json={**crawl, **PARIS, "depth": 4}).json()["job_id"] == view["schedule_id"]
    other = gateway.post("/crawl", json={**crawl, **PARIS}).json()
    assert other["cached"] is False
    twin = gateway.patch(f"/schedules/{other['job_id']}", json={"depth": 4})
    assert (twin.status_code, twin.json()["error"]["code"]) == (409, "live_twin")


# --- pause, resume, run, end


def test_a_paused_schedule_waits_to_be_resumed(gateway: httpx2.Client, make: Make, crawl: Crawl) -> None:
    view = make()
    paused = act(gateway, view, "pause").json()
    assert (paused["state"], paused["next_run"], paused["rev"]) == ("paused", None, 2)
    assert act(gateway, view, "pause").json() == paused
    again = gateway.post("/crawl", json={**crawl, **PARIS}).json()
    assert (again["job_id"], again["cached"], "next_run" in again) == (view["schedule_id"], True, False)
    assert len(gateway.get(f"/schedules/{view['schedule_id']}/next").json()["runs"]) == 10
    resumed = act(gateway, view, "resume").json()
    assert (resumed["state"], resumed["next_run"]) == ("active", view["next_run"])


def test_a_run_beside_the_occurrences_is_a_job_of_its_own(gateway: httpx2.Client, make: Make) -> None:
    view = make(tags=["x"])
    receipt = act(gateway, view, "run").json()
    job = gateway.get(f"/jobs/{receipt['job_id']}").json()
    assert (job["schedule_id"], job["slot"], job["tags"]) == (view["schedule_id"], None, ["x"])
    last = {"last_job_id": job["job_id"], "last_run_at": job["created_at"], "runs_by_hand": 1}
    assert gateway.get(f"/schedules/{view['schedule_id']}").json() == {**view, **last}
    (entry,) = gateway.get(f"/schedules/{view['schedule_id']}/history").json()["entries"]
    assert (entry["kind"], entry["trigger"], entry["job_id"]) == ("fired", "manual", job["job_id"])
    busy = act(gateway, view, "run")
    assert (busy.status_code, busy.json()["error"]["code"]) == (409, "conflict")
    listed = gateway.get("/jobs", params={"schedule_id": view["schedule_id"]}).json()["jobs"]
    assert [one["job_id"] for one in listed] == [job["job_id"]]


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param({"$set": {"message": "in other words"}}, id="its code decides, and no sentence"),
        pytest.param({"$unset": {"reason": ""}}, id="0.2.0 has stored no code"),
    ],
)
def test_a_schedule_is_known_as_cancelled(
    gateway: httpx2.Client, database: Database[dict[str, Any]], make: Make, stored: dict[str, Any]
) -> None:
    view = make()
    gateway.post(f"/jobs/{view['schedule_id']}/cancel").raise_for_status()
    assert database["schedules"].update_one({"_id": view["schedule_id"]}, stored).modified_count == 1
    found = gateway.get(f"/jobs/{view['schedule_id']}").json()
    assert (found["status"], found["state"]) == ("cancelled", "ended")
    assert gateway.post(f"/jobs/{view['schedule_id']}/cancel").json()["status"] == "cancelled"


def test_a_cancelled_schedule_has_ended_for_good(gateway: httpx2.Client, make: Make) -> None:
    view = make()
    job = f"/jobs/{view['schedule_id']}"
    assert gateway.delete(job).status_code == 409
    ended = gateway.post(f"{job}/cancel").json()
    assert (ended["status"], ended["state"], ended["next_run"]) == ("cancelled", "ended", None)
    # a client that got no answer asks again
    again = gateway.post(f"{job}/cancel").json()
    assert (again["status"], again["state"]) == ("cancelled", "ended")
    for action in ("pause", "resume", "run"):
        assert act(gateway, view, action).json()["error"]["code"] == "schedule_ended"
    refused = gateway.patch(f"/schedules/{view['schedule_id']}", json={"priority": 1})
    assert refused.json()["error"]["code"] == "schedule_ended"
    assert gateway.get(f"/schedules/{view['schedule_id']}/next").json()["runs"] == []
    assert gateway.delete(job).status_code == 204
    assert gateway.get(job).status_code == gateway.get(f"{job}/logs").status_code == 404


def test_a_deleted_schedule_leaves_its_runs(gateway: httpx2.Client, make: Make, keep: Keep) -> None:
    view = make()
    run = keep(run_of(view, **ENDED))
    assert gateway.delete(f"/schedules/{view['schedule_id']}").status_code == 204
    assert gateway.get(f"/schedules/{view['schedule_id']}").json()["error"]["code"] == "schedule_not_found"
    assert gateway.get(f"/jobs/{run.id}").json()["schedule_id"] == view["schedule_id"]


def test_a_schedule_is_not_run_again_as_a_job_is(gateway: httpx2.Client, make: Make) -> None:
    answer = gateway.post(f"/jobs/{make()['schedule_id']}/retry")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")


def test_what_a_site_keeps_is_changed_at_the_site(gateway: httpx2.Client, of_site: Schedule) -> None:
    url = f"/schedules/{of_site.id}"
    refusals = [
        gateway.patch(url, json={"priority": 1}),
        gateway.delete(url),
        *(gateway.post(f"{url}/{action}") for action in ("pause", "resume")),
        gateway.post(f"/jobs/{of_site.id}/cancel"),
    ]
    assert {refusal.status_code for refusal in refusals} == {409}
    assert "site 'acme'" in refusals[0].json()["error"]["message"]
    assert gateway.get(url).json()["crawl"] is None
    assert gateway.get(f"/jobs/{of_site.id}/status").json()["site"] == "acme"


@pytest.mark.parametrize("schedule_id", ["x", "0" * 32])
def test_an_id_that_nobody_gave_is_not_found(gateway: httpx2.Client, schedule_id: str) -> None:
    url = f"/schedules/{schedule_id}"
    answers = [
        *(gateway.get(f"{url}{rest}") for rest in ("", "/next", "/history", "/items")),
        *(gateway.post(f"{url}/{action}") for action in ("pause", "resume", "run")),
        gateway.patch(url, json={"priority": 1}),
        gateway.delete(url),
    ]
    assert {(one.status_code, one.json()["error"]["code"]) for one in answers} == {(404, "schedule_not_found")}


# --- preview and history


def test_the_preview_keeps_to_local_time_over_a_change_of_offset(gateway: httpx2.Client, make: Make) -> None:
    view = make(schedule_at="2127-03-28T12:00:00+01:00", ends_at="2127-04-01T00:00:00Z")
    preview = gateway.get(f"/schedules/{view['schedule_id']}/next", params={"count": 5}).json()
    assert [run["local"] for run in preview["runs"]] == [
        "2127-03-29T09:00:00+01:00",
        "2127-03-30T09:00:00+02:00",
        "2127-03-31T09:00:00+02:00",
    ]
    assert [run["due"][11:16] for run in preview["runs"]] == ["08:00", "07:00", "07:00"]
    assert preview["runs"][0]["due"] == view["next_run"]


def test_the_preview_has_the_jitter_and_the_end_that_runs_will_have(gateway: httpx2.Client, make: Make) -> None:
    view = make(interval="every 1h", max_runs=3)
    runs = gateway.get(f"/schedules/{view['schedule_id']}/next").json()["runs"]
    assert len(runs) == 3
    assert runs[0]["due"] == view["next_run"] != runs[0]["at"]
    for count in ("0", "101", "x"):
        refused = gateway.get(f"/schedules/{view['schedule_id']}/next", params={"count": count})
        assert refused.json()["error"]["detail"]["field"] == "count"


def test_the_history_tells_what_became_of_each_occurrence(
    gateway: httpx2.Client, database: Database[dict[str, Any]], make: Make
) -> None:
    view = make()
    now = utc_now()
    kinds = (LedgerKind.FIRED, LedgerKind.SKIPPED, LedgerKind.MISSED)
    entries = [
        LedgerEntry(
            job_id=make_job().id,
            schedule_id=view["schedule_id"],
            kind=kind,
            at=now - timedelta(hours=age),
            due=now - timedelta(hours=age),
            recorded_at=now,
            late_by_seconds=0.5,
            reason=None if kind is LedgerKind.FIRED else "so",
            rev=1,
        )
        for age, kind in enumerate(kinds)
    ]
    LedgerStore(database).record(entries)
    url = f"/schedules/{view['schedule_id']}/history"
    page = gateway.get(url, params={"limit": 2}).json()
    rest = gateway.get(url, params={"after": page["next"]}).json()
    told = [*page["entries"], *rest["entries"]]
    assert ([entry["kind"] for entry in told], rest["next"]) == (["fired", "skipped", "missed"], None)
    assert [entry["job_id"] for entry in told] == [entries[0].job_id, None, None]
    assert (told[1]["reason"], told[1]["due"]) == ("so", to_iso(entries[1].due))
    assert gateway.get(url, params={"after": "1-2"}).json()["error"]["detail"]["field"] == "after"
