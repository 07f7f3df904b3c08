"""Errors across runs over HTTP: lists, one group, its state and note, and the errors of a job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from ended_runs import add_errors, found_error
from integration.web.board import Board, Serve, open_board
from jobs import make_job

from gateway.clock import to_iso, utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.outbox import AttemptId
from gateway.error_groups.attempt_errors import AttemptErrorStore, RunErrors
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.store import JobStore
from gateway.settings import Settings

HOUR = timedelta(hours=1)


class Shop:
    """Runs of a spider of one user."""

    def __init__(self, client: httpx2.Client, database: Any, user: str) -> None:
        self.client, self.database, self.user = client, database, user

    def run(self, *errors: Any, ago: float = 0, version: str = "1.0", spider: str = "prices", **fields: Any) -> Job:
        end = utc_now() - ago * HOUR
        spec = CrawlSpec(project="shop", spider=spider, version=version, start_urls=("http://a.example/",))
        given = {"status": JobStatus.FINISHED, "settled": True, "live_key": None, "user_id": self.user, "spec": spec}
        times = {"created_at": end - HOUR / 2, "started_at": end - HOUR / 4, "finished_at": end}
        job = make_job(**{**given, **times, **fields})
        JobStore(self.database).insert(job)
        if job.is_final:
            add_errors(self.database, job, *errors)
        return job

    def list(self, **query: Any) -> list[dict[str, Any]]:
        answer = self.client.get("/errors", params={"user_id": self.user, **query})
        found: list[dict[str, Any]] = answer.raise_for_status().json()["errors"]
        return found

    def one(self, error: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/errors/{error['error_id']}").raise_for_status().json()
        return found

    def of_job(self, job: Job) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get(f"/jobs/{job.id}/errors").raise_for_status().json()
        return found


@pytest.fixture(scope="module")
def own(serve: Serve, settings: Settings) -> Iterator[Board]:
    """A gateway with a database of its own, because other tests look for the jobs that ended last."""
    with open_board(serve, settings, "error_groups") as board:
        yield board


@pytest.fixture
def shop(own: Board, user: str) -> Shop:
    return Shop(own.http, own.database, user)


def test_a_group_leads_to_its_runs_lines_and_pages(shop: Shop) -> None:
    first = shop.run(found_error("no price on page 7", 3), ago=30)
    shop.run(found_error("no price on page 8"), ago=20, version="2.0")
    without = shop.run(ago=10, version="2.1")
    shop.run(ago=1)
    (error,) = shop.list()
    assert (error["title"], error["place"]) == ("ValueError: no price on page <number>", "shop/spider.py:parse_price")
    assert (error["runs"], error["count"], error["state"]) == (2, 4, "open")
    assert (error["first_seen"]["job_id"], error["first_seen"]["version"]) == (first.id, "1.0")
    assert error["last_seen"]["version"] == "2.0"
    assert (error["runs_since"], error["runs_since_is_least"]) == (2, False)
    assert sum(day["count"] for day in error["days"]) == 4
    one = shop.one(error)
    assert one["gone_since"] == {
        "job_id": without.id, "version": "2.1", "at": to_iso(without.finished_at or utc_now()), "count": 0
    }  # fmt: skip
    assert [(run["version"], run["mark"]) for run in one["recent_runs"]] == [("2.0", "known"), ("1.0", "new")]
    example = one["example"]
    assert (example["text"], example["url"]) == ("no price on page 8", "https://shop.example/sale/7")
    assert example["position"] == "1-4711"


def test_lists_are_filtered_sorted_and_paged(shop: Shop) -> None:
    shop.run(found_error("no price", 9), ago=3)
    shop.run(found_error("no stock"), found_error("HTTP 503 Service Unavailable", kind="status"), ago=2)
    shop.run(found_error("no colour"), spider="other", ago=1)
    titles = [one["title"] for one in shop.list()]
    assert titles[0] == "ValueError: no colour"
    assert shop.list(sort="count")[0]["title"] == "ValueError: no price"
    assert shop.list(sort="first_seen")[0]["title"] == "ValueError: no price"
    for query, number in (
        ({"project": "shop"}, 4),
        ({"project": "nothing"}, 0),
        ({"spider": "other"}, 1),
        ({"kind": "status"}, 1),
        ({"state": "resolved"}, 0),
        ({"q": "STOCK"}, 1),
        ({"since": to_iso(utc_now() - 1.5 * HOUR)}, 1),
        ({"new_since": to_iso(utc_now() - 2.5 * HOUR)}, 3),
        ({"new_since": to_iso(utc_now() - 2.5 * HOUR), "until": to_iso(utc_now() - 1.5 * HOUR)}, 2),
    ):
        assert len(shop.list(**query)) == number, query
    for sort in ("last_seen", "count", "first_seen"):
        told, after = [], {}
        while True:
            params = {"user_id": shop.user, "sort": sort, "limit": 1, **after}
            page = shop.client.get("/errors", params=params).raise_for_status().json()
            told += [one["error_id"] for one in page["errors"]]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert len(told) == len(set(told)) == 4


def test_an_error_is_resolved_and_back_again(shop: Shop) -> None:
    shop.run(found_error("no price"), ago=5)
    (error,) = shop.list()
    path = f"/errors/{error['error_id']}"
    resolved = shop.client.patch(path, json={"state": "resolved", "version": "2.0"}).raise_for_status().json()
    assert (resolved["state"], resolved["resolved_version"], resolved["back"]) == ("resolved", "2.0", None)
    began = utc_now() + HOUR / 60
    again = shop.run(found_error("no price"), created_at=began, started_at=began, finished_at=began, version="2.0")
    back = shop.one(error)
    assert (back["state"], back["back"]["job_id"], back["back"]["version"]) == ("open", again.id, "2.0")
    (told,) = shop.of_job(again)["errors"]
    assert (told["mark"], told["runs"], told["first_seen"]["version"]) == ("back", 2, "1.0")
    assert shop.client.get(f"/jobs/{again.id}").json()["new_errors"] == 1
    reopened = shop.client.patch(path, json={"state": "open"}).raise_for_status().json()
    assert (reopened["resolved_at"], reopened["back"]) == (None, None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"state": "gone"}, "state"),
        ({}, "state"),
        ({"state": "open", "version": "2.0"}, "version"),
        ({"state": "resolved", "version": ""}, "version"),
        ({"state": "resolved", "by": "me"}, "by"),
    ],
)
def test_what_cannot_be_said_of_an_error_names_the_field(shop: Shop, body: dict[str, Any], field: str) -> None:
    shop.run(found_error("no price"))
    answer = shop.client.patch(f"/errors/{shop.list()[0]['error_id']}", json=body)
    assert answer.status_code == 422
    assert field in answer.text


@pytest.mark.parametrize(
    ("query", "field"),
    [({"sort": "name"}, "sort"), ({"state": "x"}, "state"), ({"since": "today"}, "since"), ({"after": "x"}, "after"),
     ({"after": "x", "sort": "count"}, "after"), ({"kind": "x"}, "kind"), ({"limit": 0}, "limit")],
)  # fmt: skip
def test_a_wrong_filter_is_named(shop: Shop, query: dict[str, Any], field: str) -> None:
    answer = shop.client.get("/errors", params=query)
    assert answer.status_code == 422
    assert field in answer.text


def test_the_errors_of_a_job_say_what_is_new(shop: Shop) -> None:
    shop.run(found_error("no price"), ago=3)
    job = shop.run(found_error("no price", 2), found_error("no stock", 5))
    told = shop.of_job(job)
    assert [(one["title"], one["mark"], one["count"]) for one in told["errors"]] == [
        ("ValueError: no stock", "new", 5),
        ("ValueError: no price", "known", 2),
    ]
    assert told["left_out"] == 0
    assert shop.client.get(f"/jobs/{job.id}").json()["new_errors"] == 1
    # a job that goes on after a failed attempt
    running = shop.run(status=JobStatus.RUNNING, finished_at=None)
    errors = [found_error("no price"), found_error("no colour")]
    AttemptErrorStore(shop.database).save(AttemptId(running.id, 1), RunErrors(errors, 7))
    marks = {one["title"]: (one["mark"], one["state"]) for one in shop.of_job(running)["errors"]}
    assert marks == {"ValueError: no price": ("known", "open"), "ValueError: no colour": ("new", None)}
    assert shop.of_job(running)["left_out"] == 7


def test_a_deleted_job_stays_in_the_groups_and_its_own_errors_go(shop: Shop) -> None:
    job = shop.run(found_error("no price"))
    assert shop.client.delete(f"/jobs/{job.id}").status_code == 204
    assert shop.client.get(f"/jobs/{job.id}/errors").status_code == 404
    assert not AttemptErrorStore(shop.database).of_jobs([job.id])
    assert shop.list()[0]["runs"] == 1


def test_what_came_first_in_a_night_comes_first(shop: Shop) -> None:
    old, new = found_error("no price"), found_error("no stock", name="KeyError")
    shop.run(old, ago=30)
    shop.run(new, ago=9)
    again = shop.run(old, ago=6)
    shop.run(old, new, ago=2)
    night = {"since": to_iso(utc_now() - 8 * HOUR), "sort": "oldest"}
    assert shop.list(**night)[0]["first_since"]["job_id"] == again.id
    assert len(shop.list(**night)) == 2
    assert [one["first_since"] for one in shop.list(sort="oldest")] == [None, None]


def test_the_console_takes_the_beginning_of_an_id(shop: Shop) -> None:
    shop.run(found_error(f"no price of {shop.user}"))
    (error,) = shop.list()
    short = shop.client.get(f"/console/errors/{error['error_id'][:12]}")
    assert (short.status_code, short.headers["location"]) == (307, f"/console/errors/{error['error_id']}")
    assert shop.client.get(f"/console/errors/{'0' * 12}").status_code == 404


def test_addresses_of_the_console_with_a_slash_at_the_end_lead_on(shop: Shop) -> None:
    for typed, address in (("/console/", "/"), ("/console/errors/?state=open", "/console/errors?state=open")):
        answer = shop.client.get(typed, headers={"Accept": "text/html"})
        assert (answer.status_code, answer.headers["location"]) == (307, address)
