"""Which index leads each question of a list: the embedded server's planner is asked, for no server tells it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import bson
import pytest
from ended_runs import error_groups
from jobs import make_job
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.monitoring import CommandListener, CommandStartedEvent

from embedded.mongo.index import ID_INDEX, Index, IndexSpec
from embedded.mongo.plan import QueryPlan, choose
from gateway.clock import utc_now
from gateway.error_groups.error_group import ErrorGroupState
from gateway.error_groups.store import ErrorFilter, ErrorOrder
from gateway.jobs import queries
from gateway.jobs.job import Job, JobStatus, Partition, Requirements, WaitingReason
from gateway.jobs.queries import LOOKED_FOR_POINTS, JobFilter, JobOrder, JobQueries, JobSweeps
from gateway.jobs.queue import JobQueue
from gateway.jobs.store import JobStore
from gateway.retention.windows import Window, Windows
from gateway.schedules.store import ScheduleFilter, ScheduleStore
from gateway.stores.indexes import INDEXES, ensure_indexes

NOW = utc_now()
#: More than a list takes for few.
MANY = queries.FEW + 5


class Asked(CommandListener):
    """The finds that were sent, and the filters by which was counted."""

    def __init__(self) -> None:
        self.finds: list[dict[str, Any]] = []
        self.counts: list[dict[str, Any]] = []
        #: At what each count stops; `None` if it does not.
        self.limits: list[int | None] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "find":
            self.finds.append(bson.decode(bson.encode(event.command)))
        if event.command_name == "aggregate":
            pipeline = bson.decode(bson.encode(event.command))["pipeline"]
            self.counts.append(pipeline[0]["$match"])
            self.limits.append(next((stage["$limit"] for stage in pipeline if "$limit" in stage), None))

    def succeeded(self, _: Any) -> None:
        """Of no interest."""

    def failed(self, _: Any) -> None:
        """Of no interest."""


@pytest.fixture(scope="module")
def asked() -> Asked:
    return Asked()


@pytest.fixture(scope="module")
def database(embedded_uri: str, asked: Asked) -> Iterator[Database[dict[str, Any]]]:
    """Of many jobs with a tag, a spider and a user, and a few with others."""
    client = MongoClient[dict[str, Any]](embedded_uri, tz_aware=True, event_listeners=[asked])
    database = client["list_indexes"]
    ensure_indexes(database)
    database["jobs"].insert_many([one.to_document() for one in made()])
    yield database
    client.drop_database("list_indexes")
    client.close()


@pytest.fixture
def queries(database: Database[dict[str, Any]]) -> JobQueries:
    return JobQueries(database)


def made() -> Iterator[Job]:
    for number in range(MANY):
        age = {"created_at": NOW - timedelta(seconds=number)}
        yield make_job(user_id="many", tags=["many", "other"], status=JobStatus.FINISHED, **age)
    for status in (JobStatus.FINISHED, JobStatus.RUNNING):
        yield make_job(user_id="few", tags=["few"], spider="few", status=status)


def plan(find: dict[str, Any], of: str = "jobs") -> QueryPlan:
    with sqlite3.connect(":memory:") as connection:
        specs = [{"key": {"_id": 1}, "name": ID_INDEX}, *(one.document for one in INDEXES[of])]
        indexes = [Index(connection, number, IndexSpec(spec)) for number, spec in enumerate(specs)]
    for index in indexes:
        index.multikey = int(index.spec.name == "tag_newest")
    return choose(indexes, dict(find["filter"]), list(find.get("sort", {}).items()))


@pytest.mark.parametrize(
    ("wanted", "leading"),
    [
        ({}, "newest"),
        ({"tag": "many"}, "tag_newest"),
        ({"spider": "seo"}, "spider_newest"),
        ({"user_id": "many"}, "user_newest"),
        ({"status": (JobStatus.RUNNING, JobStatus.FINISHED)}, "status_newest"),
        ({"project": "default"}, "project_newest"),
        ({"project": "default", "spider": "seo"}, "project_spider_newest"),
        ({"project": "default", "spider": "seo", "user_id": "many"}, "user_project_spider_newest"),
        ({"projects": ("default",)}, "project_newest"),
        ({"projects": ("default", "shop")}, "project_newest"),
        ({"projects": ("default", "shop"), "project": "default", "spider": "seo"}, "project_spider_newest"),
        ({"projects": ("shop",), "project": "default"}, "project_newest"),
        ({"projects": ("default",), "status": (JobStatus.RUNNING, JobStatus.PENDING)}, "status_newest"),
        ({"waiting_reason": WaitingReason.CAPACITY}, "reason_newest"),
        # by what the fewest have
        ({"tag": "few", "user_id": "many"}, "tag_newest"),
        ({"tag": "many", "user_id": "few"}, "user_newest"),
        ({"spider": "few", "user_id": "many", "status": (JobStatus.FINISHED,)}, "spider_newest"),
        ({"user_id": "many", "status": (JobStatus.RUNNING, JobStatus.PENDING)}, "status_newest"),
        ({"tag": "few", "q": "text"}, "tag_newest"),
        # a look at the next of many, and at which of them fit
        ({"tag": "many", "user_id": "many", "since": NOW - timedelta(hours=1)}, "user_newest"),
        ({"spider": "seo", "status": (JobStatus.FINISHED, JobStatus.ERROR)}, "spider_newest"),
        ({"q": "text"}, "newest"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else value,
)
@pytest.mark.parametrize("after", [None, f"{int(NOW.timestamp() * 1000)}-{'f' * 32}"], ids=["first", "further"])
def test_each_question_of_a_list_is_led_by_an_index_in_its_order(
    queries: JobQueries, asked: Asked, wanted: dict[str, Any], leading: str, after: str | None
) -> None:
    asked.finds.clear()
    queries.page(JobFilter(**wanted), 10, after)
    plans = [plan(find) for find in asked.finds]
    assert asked.finds
    assert {(found.index and found.index.spec.name, found.is_sorted) for found in plans} == {(leading, True)}
    # none of them reads from the newest on for what is further down
    assert after is None or all(interval.low != b"" for found in plans for interval in found.intervals)


@pytest.mark.parametrize("wanted", [{"user_id": "drawn"}, {"user_id": "drawn", "tag": "drawn"}], ids=["one", "two"])
def test_a_picture_of_many_looks_at_a_limited_number_of_jobs(
    database: Database[dict[str, Any]], queries: JobQueries, asked: Asked, wanted: dict[str, Any]
) -> None:
    drawn = [make_job(user_id="drawn", tags=["drawn"], started_at=NOW, status=JobStatus.RUNNING) for _ in range(12)]
    database["jobs"].insert_many([one.to_document() for one in drawn])
    asked.finds.clear()
    asked.counts.clear()
    asked.limits.clear()
    assert queries.points(JobFilter(**wanted), 2).is_sample
    # undecided jobs of occurrences (`held`) are counted without a limit, because there are few
    assert all(limit for match, limit in zip(asked.counts, asked.limits, strict=True) if "held" not in str(match))
    assert all(find["limit"] for find in asked.finds)
    first = [find["filter"]["$and"][0] for find in asked.finds]
    share = max(int(one["_id"]["$lt"], 16) / 0xFFFFFFFF for one in first if "_id" in one)
    looked = database["jobs"].estimated_document_count() * share
    assert 2 < looked <= 2 * LOOKED_FOR_POINTS + 1
    database["jobs"].delete_many({"user_id": "drawn"})


@pytest.mark.parametrize(
    ("order", "leading"), [(JobOrder.STARTED, "started_newest"), (JobOrder.ENDED, "ended_newest")]
)
@pytest.mark.parametrize("wanted", [{}, {"user_id": "many", "status": (JobStatus.FINISHED,)}], ids=["all", "some"])
def test_a_list_in_another_order_is_led_by_an_index_too(
    queries: JobQueries, asked: Asked, wanted: dict[str, Any], order: JobOrder, leading: str
) -> None:
    asked.finds.clear()
    queries.page(JobFilter(**wanted), 10, f"{int(NOW.timestamp() * 1000)}-{'f' * 32}", order)
    plans = [plan(find) for find in asked.finds]
    assert {(found.index and found.index.spec.name, found.is_sorted) for found in plans} == {(leading, True)}
    assert all(interval.low != b"" for found in plans for interval in found.intervals)


@pytest.mark.parametrize(
    ("wanted", "leading"),
    [
        (ErrorFilter(), "seen"),
        (ErrorFilter(project="shop", spider="seo", state=ErrorGroupState.OPEN), "spider_project_state_seen"),
        (ErrorFilter(user_id="few"), "user_seen"),
        (ErrorFilter(projects=("shop",)), "project_seen"),
        (ErrorFilter(kind="crawl"), "kind_seen"),
        (ErrorFilter(kind="crawl", q="text"), "kind_seen"),
        (ErrorFilter(state=ErrorGroupState.RESOLVED), "state_seen"),
        (ErrorFilter(new_since=NOW), "seen"),
    ],
    ids=["all", "spider", "user", "projects", "kind", "kind and text", "state", "new"],
)
def test_lists_of_errors_are_led_by_an_index_in_their_order(
    database: Database[dict[str, Any]], asked: Asked, wanted: ErrorFilter, leading: str
) -> None:
    asked.finds.clear()
    error_groups(database).page(wanted, 10, None)
    found = plan(asked.finds[0], "error_groups")
    assert (found.index and found.index.spec.name, found.is_sorted) == (leading, True)
    # what was seen last before that time is not read
    assert wanted.new_since is None or all(interval.low != b"" for interval in found.intervals)


def test_the_most_frequent_and_the_first_errors_and_the_schedules_of_a_project_are_led_by_an_index(
    database: Database[dict[str, Any]], asked: Asked
) -> None:
    asked.finds.clear()
    error_groups(database).page(ErrorFilter(projects=("shop",)), 10, None, ErrorOrder.COUNT)
    error_groups(database).page(ErrorFilter(new_since=NOW), 10, None, ErrorOrder.FIRST_SEEN)
    ScheduleStore(database).page(ScheduleFilter(projects=("shop",)), 10)
    plans = [plan(asked.finds[number], "error_groups") for number in (0, 1)] + [plan(asked.finds[2], "schedules")]
    led = [(found.index and found.index.spec.name, found.is_sorted) for found in plans]
    assert led == [("project_count", True), ("first_seen", True), ("project_newest", True)]


@pytest.mark.parametrize("others", [{}, {"user_id": "many", "q": "seo"}], ids=["alone", "with others"])
def test_ids_and_the_beginning_of_one_are_looked_up_among_the_ids(
    queries: JobQueries, asked: Asked, others: dict[str, Any]
) -> None:
    mine = queries.page(JobFilter(user_id="many"), 1).jobs[0].id
    asked.finds.clear()
    for one in (JobFilter(id_prefix=mine[:8], **others), JobFilter(job_id=(mine,), **others)):
        found = queries.page(one, 10)
        assert ([job.id for job in found.jobs], found.searched_to) == ([mine], None)
    assert {found.index and found.index.spec.name for found in map(plan, asked.finds)} == {ID_INDEX}


@pytest.mark.parametrize(("name", "leading"), [("started", "started_newest"), ("finished", "ended_newest")])
def test_what_few_jobs_have_started_or_ended_in_is_the_time_in_which_they_are_looked_for(
    database: Database[dict[str, Any]], queries: JobQueries, asked: Asked, name: str, leading: str
) -> None:
    old = NOW - timedelta(days=1)
    mine = make_job(status=JobStatus.FINISHED, created_at=old, started_at=old, finished_at=old)
    database["jobs"].insert_one(mine.to_document())
    wanted = JobFilter(**{f"{name}_since": old, f"{name}_until": old + timedelta(hours=1)})
    asked.finds.clear()
    assert [job.id for job in queries.page(wanted, 10).jobs] == [mine.id]
    first, *others = [plan(find) for find in asked.finds]
    assert first.index is not None
    assert first.index.spec.name == leading
    assert others
    assert queries.count(wanted) == 1
    assert all(interval.low != b"" and interval.high != b"" for found in others for interval in found.intervals)
    database["jobs"].delete_one({"_id": mine.id})


@pytest.mark.parametrize(
    ("ask", "leading"),
    [
        (lambda database: Windows(database).begin("jobs", NOW), "ended_newest"),
        (lambda database: list(Windows(database).batches(Window.around("logs", NOW))), "ended_newest"),
        (lambda database: JobSweeps(database).running_on("n1"), "status_newest"),
        (lambda database: JobSweeps(database).live_attempts(), "status_newest"),
        (lambda database: JobQueries(database).last_ended(8, JobFilter()), "ended_newest"),
        (lambda database: JobQueries(database).last_ended(8, JobFilter(user_id="many"), NOW), "ended_newest"),
    ],
    ids=["first to expire", "in a window", "running on a node", "live", "last ended", "last ended of a user"],
)
def test_what_is_swept_is_led_by_an_index_that_others_need_too(
    database: Database[dict[str, Any]], asked: Asked, ask: Callable[[Database[dict[str, Any]]], Any], leading: str
) -> None:
    asked.finds.clear()
    ask(database)
    found = plan(next(find for find in asked.finds if find["find"] == "jobs"))
    assert (found.index and found.index.spec.name, found.is_sorted) == (leading, True)


@pytest.mark.parametrize(
    ("ask", "leading"),
    [
        (lambda queue: queue.partitions_of(["a", "b"]), ID_INDEX),
        (lambda queue: queue.end_backoffs(), "status_attend_at"),
        (lambda queue: queue.overdue(200), "status_attend_at"),
        (lambda queue: queue.running(200, timedelta()), "status_attend_at"),
    ],
    ids=["named by messages", "past their backoff", "overdue", "to be asked of nodes"],
)
def test_what_a_worker_asks_at_each_look_does_not_lead_over_all_jobs_that_wait(
    database: Database[dict[str, Any]], asked: Asked, ask: Callable[[JobQueue], Any], leading: str
) -> None:
    asked.finds.clear()
    ask(JobQueue(database))
    (find,) = asked.finds
    found = plan(find)
    assert found.index is not None
    assert found.index.spec.name == leading


def test_what_a_beat_sees_to_is_found_past_all_jobs_that_wait(
    database: Database[dict[str, Any]], asked: Asked
) -> None:
    """However many are past their backoff while no worker is there; and one query says that nothing is due."""
    asked.finds.clear()
    assert list(JobStore(database).to_attend(NOW, 9)) == []
    (find,) = asked.finds
    found = plan(find)
    assert found.index is not None
    assert (found.index.spec.name, found.is_exact) == ("status_attend_at", True)
    database["jobs"].update_one({"status": JobStatus.FINISHED}, {"$set": {"attend_at": NOW}})
    asked.finds.clear()
    assert len(list(JobStore(database).to_attend(NOW, 9))) == 1
    database["jobs"].update_one({"attend_at": NOW}, {"$unset": {"attend_at": ""}})
    plans = [plan(find) for find in asked.finds[1:]]
    assert {(found.index.spec.name, found.is_sorted) for found in plans if found.index} == {
        ("status_attend_at", True)
    }
    assert JobStatus.PENDING not in {find["filter"]["status"] for find in asked.finds[1:]}
    assert len(plans) == len(JobStatus) - 1


@pytest.mark.parametrize("status", [JobStatus.PENDING, JobStatus.SCHEDULED, JobStatus.PAUSED])
def test_how_many_of_a_user_wait_is_counted_without_reading_a_job(status: JobStatus) -> None:
    found = plan({"filter": {"status": str(status), "user_id": "many"}})
    assert found.index is not None
    assert found.is_exact


def test_a_place_in_the_queue_is_counted_by_keys_and_reads_one_job_of_each_user(
    database: Database[dict[str, Any]], queries: JobQueries, asked: Asked
) -> None:
    users = [f"waits-{number}" for number in range(4)]
    waiting = [
        make_job(user_id=user, created_at=NOW + timedelta(seconds=n, milliseconds=place))
        for place, user in enumerate(users)
        for n in range(50)
    ]
    database["jobs"].insert_many([job.to_document() for job in waiting])
    asked.finds.clear()
    asked.counts.clear()
    try:
        assert queries.queue_position(waiting[-1], dict) == len(waiting)
    finally:
        database["jobs"].delete_many({"user_id": {"$in": users}})
    # the job itself, each user, and that there are no more
    assert [find["limit"] for find in asked.finds] == [1] * (len(users) + 2)
    # its own user's jobs; and of each other user those before it, and those that it starts meanwhile
    assert len(asked.counts) <= 1 + 2 * (len(users) - 1)
    for counted in asked.counts:
        found = plan({"filter": counted})
        assert (found.index and found.index.spec.name, found.is_exact) == ("free_user_rank", True)


def test_only_jobs_whose_reason_changes_are_read_of_those_that_wait(
    database: Database[dict[str, Any]], asked: Asked
) -> None:
    partition = Partition(Requirements("default"), "many")
    asked.finds.clear()
    JobQueue(database).note_waiting(WaitingReason.CAPACITY, [partition], 9)
    (found,) = map(plan, asked.finds)
    assert found.index
    assert (found.index.spec.name, [one.low != b"" for one in found.intervals].count(False)) == ("lane_reason", 0)
    # one for each other reason
    assert len(found.intervals) == len(WaitingReason)
