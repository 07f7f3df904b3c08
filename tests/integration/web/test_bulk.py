"""One action on all jobs that a filter matches."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from jobs import make_job

from gateway.clock import utc_now
from gateway.errors import JobNotFoundError
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.store import JobStore

Keep = Callable[[Job], Job]
Answer = dict[str, Any]
ENDED = {"status": JobStatus.ERROR, "settled": True, "live_key": None}


def bulk(gateway: httpx2.Client, action: str, user: str, expect: int | None = None, **more: Any) -> Answer:
    wanted = {"user_id": user, **more.pop("filter", {})}
    body = {"filter": wanted, "action": action, "expect": expect, **more}
    answer: Answer = gateway.post("/jobs/bulk", json=body).raise_for_status().json()
    return answer


def statuses(jobs: JobStore, made: list[Job]) -> list[str]:
    return [jobs.get(job.id).status for job in made]


def test_without_a_number_it_counts_the_jobs_that_the_action_can_be_done_to(
    gateway: httpx2.Client, keep: Keep, jobs: JobStore, user: str
) -> None:
    made = [keep(make_job(user_id=user)), keep(make_job(user_id=user, **ENDED))]
    keep(make_job(user_id=user, **{**ENDED, "settled": False}))
    counts = [bulk(gateway, action, user)["matched"] for action in ("cancel", "retry", "delete", "requeue")]
    assert counts == [1, 2, 1, 0]
    assert bulk(gateway, "cancel", user, filter={"status": ["error"]})["matched"] == 0
    assert statuses(jobs, made) == ["pending", "error"]


def test_all_that_match_are_cancelled_once_the_number_is_right(
    gateway: httpx2.Client, keep: Keep, jobs: JobStore, user: str
) -> None:
    ours = [keep(make_job(user_id=user, spider="seo")) for _ in range(3)]
    others = [keep(make_job(user_id=user, spider="jobs")), keep(make_job())]
    body = {"filter": {"user_id": user, "spider": "seo"}, "action": "cancel", "expect": 2}
    refused = gateway.post("/jobs/bulk", json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "count_changed")
    assert refused.json()["error"]["detail"] == {"field": "expect", "expect": 2, "matched": 3}
    assert statuses(jobs, ours) == ["pending"] * 3
    done = bulk(gateway, "cancel", user, 3, filter={"spider": "seo"})
    assert (done.pop("action"), done.pop("matched"), done.pop("done")) == ("cancel", 3, 3)
    assert done == {"as_of": None, "refused": 0, "refusals": [], "next": None, "stopped": None}
    assert statuses(jobs, ours + others) == ["cancelled"] * 3 + ["pending"] * 2
    assert bulk(gateway, "cancel", user, filter={"spider": "seo"})["matched"] == 0


def test_those_that_were_there_when_they_were_counted_are_cancelled_whatever_has_come_since(
    gateway: httpx2.Client, keep: Keep, jobs: JobStore, user: str
) -> None:
    ours = [keep(make_job(user_id=user)) for _ in range(2)]
    counted = bulk(gateway, "cancel", user)
    assert counted["matched"] == 2
    new = [keep(make_job(user_id=user, created_at=utc_now() + timedelta(seconds=1))) for _ in range(2)]
    gateway.post(f"/jobs/{ours[0].id}/cancel").raise_for_status()
    done = bulk(gateway, "cancel", user, 2, as_of=counted["as_of"])
    assert (done["done"], done["refused"], done["next"]) == (1, 0, None)
    assert statuses(jobs, ours + new) == ["cancelled"] * 2 + ["pending"] * 2


def test_jobs_that_had_not_ended_when_they_were_counted_are_not_deleted(
    gateway: httpx2.Client, keep: Keep, jobs: JobStore, user: str
) -> None:
    old = keep(make_job(user_id=user, finished_at=utc_now() - timedelta(minutes=1), **ENDED))
    counted = bulk(gateway, "delete", user)
    later = keep(make_job(user_id=user, finished_at=utc_now() + timedelta(seconds=1), **ENDED))
    assert bulk(gateway, "delete", user, counted["matched"], as_of=counted["as_of"])["done"] == 1
    with pytest.raises(JobNotFoundError):
        jobs.get(old.id)
    assert jobs.get(later.id)
    # other tests look at the jobs that ended last
    assert bulk(gateway, "delete", user, 1)["done"] == 1


def test_deleted_jobs_are_gone(gateway: httpx2.Client, keep: Keep, jobs: JobStore, user: str) -> None:
    old, alive = keep(make_job(user_id=user, **ENDED)), keep(make_job(user_id=user))
    assert bulk(gateway, "delete", user, 1)["done"] == 1
    assert jobs.get(alive.id)
    with pytest.raises(JobNotFoundError):
        jobs.get(old.id)


def test_what_takes_long_goes_on_where_it_was_and_a_repeated_retry_runs_nothing_twice(
    gateway: httpx2.Client, keep: Keep, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.jobs.bulk.SECONDS", 0)
    made = {keep(make_job(user_id=user, **ENDED)).id for _ in range(3)}
    first = bulk(gateway, "retry", user, 3)
    assert (first["matched"], first["done"]) == (3, 1)
    # the same request again, as if the answer were lost
    again = bulk(gateway, "retry", user, 3)
    assert (again["done"], again["refused"], again["refusals"][0]["code"]) == (0, 1, "run_again")
    after, done = again["next"], 0
    while after:
        answer = bulk(gateway, "retry", user, 3, after=after)
        assert answer["matched"] is None
        after, done = answer["next"], done + answer["done"]
    assert done == 2
    new = gateway.get("/jobs", params={"user_id": user, "status": "pending"}).json()["jobs"]
    assert {gateway.get(f"/jobs/{job['job_id']}").json()["retry_of"] for job in new} == made
    assert len(new) == 3


def test_dead_letters_are_requeued_or_dismissed(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    letters = [keep(make_job(user_id=user, dead=True, tags=[f"t{n}"], **ENDED)) for n in range(2)]
    keep(make_job(user_id=user, **ENDED))
    assert bulk(gateway, "requeue", user, 1, filter={"tag": "t0"})["done"] == 1
    assert bulk(gateway, "dismiss", user, 1)["done"] == 1
    assert gateway.get("/jobs", params={"user_id": user, "dead": "true"}).json()["jobs"] == []
    (new,) = gateway.get("/jobs", params={"user_id": user, "status": "pending"}).json()["jobs"]
    assert gateway.get(f"/jobs/{new['job_id']}").json()["retry_of"] == letters[0].id


def test_a_letter_whose_requeueing_was_interrupted_is_answered_by_the_same_job(
    gateway: httpx2.Client, keep: Keep, jobs: JobStore, user: str
) -> None:
    letter = keep(make_job(user_id=user, dead=True, **ENDED))
    assert bulk(gateway, "retry", user, 1)["done"] == 1
    assert bulk(gateway, "requeue", user, 1)["done"] == 1
    assert not jobs.get(letter.id).dead
    assert len(gateway.get("/jobs", params={"user_id": user, "status": "pending"}).json()["jobs"]) == 1


def test_jobs_that_cannot_be_acted_on_are_named(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    old = keep(make_job(user_id=user, **ENDED))
    keep(make_job(user_id=user, fingerprint=old.fingerprint))
    answer = bulk(gateway, "retry", user, 1)
    assert (answer["done"], answer["refused"], answer["next"]) == (0, 1, None)
    assert answer["refusals"] == [
        {"job_id": old.id, "code": "conflict", "message": "the same crawl is already under way"}
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"filter": {"spidr": "seo"}, "action": "cancel"}, "filter.spidr"),
        ({"filter": {}, "action": "explode"}, "action"),
        ({"filter": {}, "action": "cancel", "expect": "3"}, "expect"),
        ({"action": "cancel"}, "filter"),
        ({"filter": {}, "action": "cancel", "after": f"1-{'a' * 32}"}, "expect"),
        ({"filter": {}, "action": "cancel", "as_of": "2027-06-01T09:00:00Z"}, "expect"),
        ({"filter": {}, "action": "cancel", "expect": 0, "after": "x"}, "after"),
    ],
)
def test_what_is_wrong_is_named(gateway: httpx2.Client, body: Answer, field: str) -> None:
    answer = gateway.post("/jobs/bulk", json=body)
    if field == "after":
        # a number alone is no cursor either
        body["after"] = "9" * 15
        answer = gateway.post("/jobs/bulk", json=body)
    assert answer.status_code == 422, answer.text
    assert field in answer.text


def test_the_address_is_no_jobs(gateway: httpx2.Client) -> None:
    assert [gateway.request(method, "/jobs/bulk").status_code for method in ("GET", "DELETE", "PUT")] == [405] * 3
    assert gateway.delete("/jobs/count").status_code == gateway.post("/jobs/points").status_code == 405


def test_counts_and_points_are_of_the_filter(gateway: httpx2.Client, keep: Keep, user: str) -> None:
    ended = keep(make_job(user_id=user, started_at=make_job().created_at, **ENDED))
    keep(make_job(user_id=user))
    wanted = {"user_id": user}
    assert gateway.get("/jobs/count", params=wanted).json() == {"count": 2, "is_exact": True, "next": None}
    errors = gateway.get("/jobs/count", params={**wanted, "status": "error"}).json()
    assert errors == {"count": 1, "is_exact": True, "next": None}
    told = gateway.get("/jobs/points", params=wanted).json()
    assert told["is_sample"] is False
    assert [(point["job_id"], point["status"]) for point in told["points"]] == [(ended.id, "error")]


def test_what_takes_long_to_count_is_counted_in_parts(
    gateway: httpx2.Client, keep: Keep, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.jobs.queries.COUNT_SECONDS", -1)
    monkeypatch.setattr("gateway.jobs.queries.FIRST_LOOK", 2)
    began = utc_now() - timedelta(hours=1)
    made = [
        keep(make_job(user_id=user, tags=["wanted"] * (number % 2), created_at=began, started_at=began, **ENDED)).id
        for number in range(7)
    ]
    wanted = {"user_id": user, "q": "WANTED"}
    counts = parts(gateway, "/jobs/count", wanted)
    assert len(counts) > 2
    assert sum(one["count"] for one in counts) == 3
    assert not any(one["is_exact"] for one in counts)
    points = [point for one in parts(gateway, "/jobs/points", wanted) for point in one["points"]]
    assert sorted(point["job_id"] for point in points) == sorted(made[1::2])
    monkeypatch.undo()
    assert gateway.get("/jobs/count", params=wanted).json() == {"count": 3, "is_exact": True, "next": None}
    assert len(gateway.get("/jobs/points", params=wanted).json()["points"]) == 3


def parts(gateway: httpx2.Client, path: str, wanted: Answer) -> list[Answer]:
    found: list[Answer] = []
    while not found or found[-1]["next"]:
        after = {"after": found[-1]["next"]} if found else {}
        found.append(gateway.get(path, params={**wanted, **after}).raise_for_status().json())
    return found


def test_the_jobs_and_the_schedules_of_a_host_are_found(
    gateway: httpx2.Client, keep: Keep, jobs: JobStore, user: str
) -> None:
    ours = keep(make_job(user_id=user))
    body = {"spider": "seo", "start_urls": ["http://www.site.example/a"], "interval": "@daily", "user_id": user}
    schedule = gateway.post("/schedules", json=body).raise_for_status().json()

    def scheduled(host: str) -> list[str]:
        found = gateway.get("/schedules", params={"host": host, "user_id": user}).raise_for_status().json()
        return [one["schedule_id"] for one in found["schedules"]]

    assert scheduled("site.example") == scheduled("www.site.example") == [schedule["schedule_id"]]
    assert scheduled("other.example") == scheduled("ite.example") == []
    assert bulk(gateway, "cancel", user, filter={"host": "other.example"})["matched"] == 0
    assert scheduled("2001:db8::1") == scheduled("[2001:db8::1]") == []
    wanted = {"host": "https://Site.example:8080/whatever"}
    assert bulk(gateway, "cancel", user, 1, filter=wanted)["done"] == 1
    assert statuses(jobs, [ours]) == ["cancelled"]


@pytest.mark.parametrize("host", ["", "a b", "http://", "*.site.example"])
def test_what_is_no_host_is_refused(gateway: httpx2.Client, host: str) -> None:
    assert gateway.get("/jobs", params={"host": host}).status_code == 422
