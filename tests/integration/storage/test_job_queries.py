from __future__ import annotations

from datetime import timedelta
from itertools import count
from operator import attrgetter
from typing import Any

import pytest
from jobs import make_job
from pymongo.database import Database
from stores import REAL_BACKENDS

from gateway.clock import utc_now
from gateway.contract.records import Progress
from gateway.errors import InvalidRequestError
from gateway.jobs.hosts import CrawledHost
from gateway.jobs.job import Decision, Job, JobStatus, WaitingReason, new_job_id
from gateway.jobs.queries import FIRST_LOOK, JobFilter, JobOrder, JobQueries
from gateway.jobs.store import JobStore

Documents = Database[dict[str, Any]]
NOW = utc_now()
#: mongomock does not follow a list's projection.
on_servers = pytest.mark.parametrize("database", REAL_BACKENDS, indirect=True)


def keep(database: Documents, *, age: int = 0, **fields: Any) -> Job:
    job = make_job(created_at=NOW - timedelta(seconds=age), **fields)
    JobStore(database).insert(job)
    return job


@on_servers
def test_pages_are_newest_first_and_meet_without_gap(database: Documents) -> None:
    made = [keep(database, age=n // 2) for n in range(5)]
    expected = sorted(made, key=lambda job: (job.created_at, job.id), reverse=True)
    queries = JobQueries(database)
    first, cursor, _ = queries.page(JobFilter(), 3)
    second, end, _ = queries.page(JobFilter(), 3, cursor)
    assert [job.id for job in first + second] == [job.id for job in expected]
    assert end is None


@pytest.mark.parametrize("cursor", ["", "x", "1-2", f"{'9' * 15}-{'0' * 32}"])
def test_a_cursor_of_nobodys_making_is_refused(database: Documents, cursor: str) -> None:
    with pytest.raises(InvalidRequestError, match="after"):
        JobQueries(database).page(JobFilter(), 3, cursor)


@on_servers
def test_filters_are_all_to_be_met(database: Documents) -> None:
    ours = keep(database, user_id="ada", tags=["daily"], message="50% (a+b)")
    keep(database, user_id="ada", age=60, status=JobStatus.ERROR, live_key=None)
    keep(database, user_id="bob", tags=["daily"])
    queries = JobQueries(database)

    def found(**wanted: Any) -> list[str]:
        return [job.id for job in queries.page(JobFilter(user_id="ada", **wanted), 10)[0]]

    waiting = (JobStatus.PENDING, JobStatus.RUNNING)
    assert found(status=waiting) == found(tag="daily") == found(since=NOW) == found(q="% (A+") == [ours.id]
    assert found(status=(JobStatus.ERROR,)) == found(until=NOW)
    assert len(found(until=NOW)) == 1
    assert found(spider="other") == []
    assert found(id_prefix=ours.id[:8]) == found(id_prefix=ours.id) == [ours.id]
    assert found(id_prefix=ours.id[:8], status=(JobStatus.ERROR,)) == []
    assert found(job_id=(ours.id, "5f" * 16)) == [ours.id]
    assert found(job_id=(ours.id,), status=(JobStatus.ERROR,)) == []


@on_servers
@pytest.mark.parametrize("few", [1, 500])
@pytest.mark.parametrize(
    "wanted",
    [
        {"tag": "daily"},
        {"spider": "rare"},
        {"tag": "daily", "user_id": "ada"},
        {"tag": "daily", "q": "SITE.example"},
        {"spider": "seo", "user_id": "bob", "since": NOW - timedelta(seconds=30)},
        {"status": (JobStatus.PENDING, JobStatus.FINISHED)},
        {"status": (JobStatus.PENDING, JobStatus.FINISHED), "tag": "daily", "until": NOW - timedelta(seconds=5)},
        {"project": "theirs"},
        {"project": "theirs", "spider": "seo"},
        {"project": "theirs", "spider": "seo", "user_id": "ada"},
        {"waiting_reason": WaitingReason.CAPACITY, "user_id": "ada"},
        {"started_since": NOW - timedelta(seconds=20), "started_until": NOW - timedelta(seconds=4)},
        {"finished_since": NOW - timedelta(seconds=20), "project": "theirs"},
        {"finished_until": NOW - timedelta(seconds=20), "user_id": "bob"},
    ],
    ids="+".join,
)
def test_lists_are_the_same_by_any_index(
    database: Documents, wanted: dict[str, Any], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.jobs.queries.FEW", few)
    monkeypatch.setattr("gateway.jobs.queries.FIRST_LOOK", 2)
    jobs = [
        keep(
            database, age=n // 2, user_id=("ada", "bob")[n % 2], tags=["daily", "x"][: n % 3],
            spider=("seo", "rare")[n % 5 == 0], status=[*JobStatus][n % 7], project=("default", "theirs")[n % 3 == 0],
            waiting_reason=(WaitingReason.CAPACITY, WaitingReason.NO_NODE)[n % 2],
            started_at=NOW - timedelta(seconds=n // 2 - 1), finished_at=NOW - timedelta(seconds=n // 2 - 2 - n % 8),
        )
        for n in range(80)
    ]  # fmt: skip
    expected = [
        job.id for job in sorted(jobs, key=lambda job: (job.created_at, job.id), reverse=True) if meets(job, **wanted)
    ]
    # of an occurrence that may never become a real one
    held = {"id": new_job_id(), "live_key": None, "held": Decision.RUN}
    JobStore(database).insert(next(job for job in jobs if job.id == expected[1]).model_copy(update=held))
    assert 5 < len(expected) < 80
    queries, asked = JobQueries(database), JobFilter(**wanted)
    assert list_all(queries, asked, 4) == expected
    assert list_all(queries, asked, 4, JobOrder.OLDEST) == expected[::-1]
    assert list_all(queries, asked, 4, JobOrder.STARTED) == by_time(jobs, expected, "started_at")
    assert list_all(queries, asked, 4, JobOrder.ENDED) == by_time(jobs, expected, "finished_at") != expected
    assert queries.count(asked) == len(expected)
    assert queries.count(asked, 3) == 3
    first = queries.places(asked, 3)
    rest = queries.places(asked, 80, first[-1].cursor)
    assert [place.job_id for place in first + rest] == expected


def by_time(jobs: list[Job], wanted: list[str], field: str) -> list[str]:
    some = [job for job in jobs if job.id in wanted]
    return [job.id for job in sorted(some, key=attrgetter(field, "id"), reverse=True)]


def meets(job: Job, **wanted: Any) -> bool:
    own = {"tag": job.tags, "spider": [job.spec.spider], "user_id": [job.user_id], "project": [job.spec.project]}
    own["waiting_reason"] = [job.waiting_reason]
    by_name = all(wanted[name] in values for name, values in own.items() if name in wanted)
    in_time = all(
        wanted.get(f"{prefix}since", NOW - timedelta(days=1))
        <= at
        < wanted.get(f"{prefix}until", NOW + timedelta(days=1))
        for prefix, at in (("", job.created_at), ("started_", job.started_at), ("finished_", job.finished_at))
    )
    return by_name and job.status in wanted.get("status", JobStatus) and in_time


def list_all(queries: JobQueries, wanted: JobFilter, limit: int, order: JobOrder = JobOrder.NEWEST) -> list[str]:
    found, cursor = list[str](), None
    while True:
        jobs, cursor, _ = queries.page(wanted, limit, cursor, order)
        found += [job.id for job in jobs]
        if cursor is None:
            return found


@pytest.mark.parametrize("read_for_points", [4, 1], ids=["thinned", "by id"])
def test_points_are_of_all_that_have_started_or_a_fair_sample(
    database: Documents, read_for_points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.jobs.queries.READ_FOR_POINTS", read_for_points)
    jobs = [keep(database, age=n, started_at=NOW - timedelta(seconds=n), status=JobStatus.RUNNING) for n in range(60)]
    keep(database, user_id="bob", started_at=NOW)
    keep(database)
    queries, wanted = JobQueries(database), JobFilter(user_id="ada")
    every = queries.points(wanted, 70)
    assert [point.job_id for point in every.points] == [job.id for job in reversed(jobs)]
    assert (every.is_sample, every.points[0].finished_at) == (False, None)
    some = queries.points(wanted, 20)
    assert some.is_sample
    assert 0 < len(some.points) <= 20
    assert {point.job_id for point in some.points} < {job.id for job in jobs}


@on_servers
def test_a_search_that_takes_long_says_how_far_it_came_and_goes_on_from_there(database: Documents) -> None:
    jobs = [keep(database, age=n, tags=["last"] if n == FIRST_LOOK + 9 else []) for n in range(FIRST_LOOK + 10)]
    seconds = count()
    queries = JobQueries(database, lambda: float(next(seconds)))
    found, cursor, searched_to = queries.page(JobFilter(q="LAST"), 5)
    assert (found, searched_to) == ([], jobs[FIRST_LOOK - 1].created_at)
    found, cursor, searched_to = queries.page(JobFilter(q="LAST"), 5, cursor)
    assert ([job.id for job in found], cursor, searched_to) == ([jobs[-1].id], None, None)


def test_the_queue_is_by_priority_then_age(database: Documents) -> None:
    late, early = keep(database, age=1), keep(database, age=2)
    urgent = keep(database, priority=5)
    ended = keep(database, age=9, status=JobStatus.FINISHED, live_key=None)
    queries = JobQueries(database)
    assert [queries.queue_position(job, dict) for job in (urgent, early, late, ended)] == [1, 2, 3, None]
    assert queries.oldest_waiting() == early.created_at
    counted = [queries.in_status(status) for status in (JobStatus.PENDING, JobStatus.FINISHED, JobStatus.RUNNING)]
    assert counted == [3, 1, 0]


def test_an_empty_queue_has_no_oldest(database: Documents) -> None:
    assert JobQueries(database).oldest_waiting() is None


@on_servers
def test_the_jobs_of_a_host_are_found_by_their_urls_their_requests_and_their_spiders(database: Documents) -> None:
    def with_urls(*urls: str, **fields: Any) -> Job:
        spec = make_job(**{name: fields.pop(name) for name in ("spider", "project") if name in fields}).spec
        return keep(database, spec=spec.model_copy(update={"start_urls": urls}), **fields)

    named = [with_urls(url) for url in ("http://shop.example", "https://ada:x@WWW.shop.example:8443/a?b#c")]
    strange = ("https://shop.example.com/", "https://other.example/shop.example", "https://myshop.example/")
    for url in strange:
        with_urls(url)
    both = Progress(hosts=["a.example", "cdn.shop.example"])
    has_asked = with_urls(spider="own", schedule_id="5f" * 16, progress=both)
    waits = with_urls(spider="own")
    elsewhere = with_urls(spider="own", progress=Progress(hosts=["a.example"]))
    with_urls(spider="own", project="others")
    queries = JobQueries(database)
    spiders, schedules = queries.that_asked("shop.example")
    assert (spiders, schedules) == ({("default", "own")}, {"5f" * 16})

    def found(host: CrawledHost) -> set[str]:
        wanted = JobFilter(host=host)
        page = {job.id for job in queries.page(wanted, 20).jobs}
        assert queries.count(wanted) == queries.count_part(wanted, 20).number == len(page)
        assert {place.job_id for place in queries.places(wanted, 20)} == page
        return page

    by_themselves = {*(job.id for job in named), has_asked.id}
    assert found(CrawledHost("shop.example")) == by_themselves
    assert found(CrawledHost("shop.example", tuple(spiders))) == {*by_themselves, waits.id}
    assert found(CrawledHost("a.example", tuple(spiders))) == {has_asked.id, elsewhere.id, waits.id}
