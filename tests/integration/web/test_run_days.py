"""The runs by day of a spider, project, schedule or site. Admins see the runs of all users, others their own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, NamedTuple

import httpx2
import pytest
from integration.web.board import Board, Serve, open_board
from jobs import make_job
from scheduled import make_schedule

from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.records import Progress
from gateway.jobs.job import JobStatus
from gateway.jobs.run_days import RunDays
from gateway.schedules.store import ScheduleStore
from gateway.settings import Settings

ADDRESSES = ("/spiders/shop/prices", "/projects/shop", "/schedules/{}", "/sites/board")


#: Runs: the user, how the run ended, and how many days ago.
RUNS = (("ada", "finished", 0), ("ada", "error", 1), ("bob", "partial", 1), ("ada", "finished", 40))


class SummedBoard(NamedTuple):
    board: Board
    keys: dict[str, str]
    schedule_id: str
    #: When the runs were stored. Midnight may have passed since when a test asks for them.
    at: datetime

    def runs(self, *ago: int) -> dict[str, int]:
        """The expected numbers by date, of today, yesterday and so on."""
        return {str((self.at - timedelta(days=days)).date()): runs for days, runs in enumerate(ago)}

    def days(self, address: str, who: str, **query: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask(address, who, **query).raise_for_status().json()
        return answer

    def ask(self, address: str, who: str, **query: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.keys[who]}"}
        return self.board.http.get(f"{address.format(self.schedule_id)}/days", params=query, headers=headers)


@pytest.fixture(scope="module")
def summed(serve: Serve, settings: Settings) -> Iterator[SummedBoard]:
    with open_board(serve, settings, "run_days") as board:
        issue = KeyIssue(KeyStore(board.database))
        of = {"ada": Scope.CRAWL, "bob": Scope.CRAWL, "root": Scope.ADMIN}
        keys = {user: str(issue.issue(user, [scope]).token) for user, scope in of.items()}
        schedule = make_schedule(user_id="ada")
        ScheduleStore(board.database).insert(schedule)
        now = utc_now()
        for user, status, days in RUNS:
            add_run(board, user, JobStatus(status), now - timedelta(days=days), schedule.id)
        yield SummedBoard(board, keys, schedule.id, now)


def add_run(board: Board, user: str, status: JobStatus, end: datetime, schedule_id: str) -> None:
    spec = CrawlSpec(project="shop", spider="prices", start_urls=("http://a.example/",), site="board")
    times = {"started_at": end - timedelta(seconds=64), "finished_at": end}
    counts = Progress(completed_pages=30, items_count=10, errors_count=2)
    facts = {"user_id": user, "spec": spec, "status": status, "progress": counts, "schedule_id": schedule_id}
    job = make_job(**facts, **times, settled=True, live_key=None)
    board.jobs.insert(job)
    assert not RunDays(board.database).add([job])


@pytest.mark.parametrize("address", ADDRESSES)
def test_admins_get_the_days_of_all_users_and_others_their_own(summed: SummedBoard, address: str) -> None:
    for who, runs, query in (("ada", (1, 1), {}), ("root", (1, 2), {}), ("root", (1, 1), {"user_id": "ada"})):
        found = summed.days(address, who, **query)
        assert len(found["days"]) == 30
        assert {day["day"]: day["runs"] for day in found["days"] if day["runs"]} == summed.runs(*runs)
        assert found["total"]["runs"] == sum(runs)
    assert summed.ask(address, "ada", user_id="bob").status_code == HTTPStatus.FORBIDDEN


def test_the_figures_are_rounded_and_none_where_there_is_none(summed: SummedBoard) -> None:
    found = summed.days(ADDRESSES[0], "root", days=90)
    assert found["total"] == {
        "runs": 4,
        "finished": 2,
        "partial": 1,
        "error": 1,
        "cancelled": 0,
        "success_rate": 0.5,
        "pages": 120,
        "items": 40,
        "errors": 8,
        "error_share": 0.0625,
        "median_seconds": 64.0,
    }
    none = dict.fromkeys(("success_rate", "error_share", "median_seconds"))
    assert {name: found["days"][0][name] for name in none} == none
    for days in (0, 401):
        assert summed.ask(ADDRESSES[0], "root", days=days).status_code == HTTPStatus.UNPROCESSABLE_ENTITY
