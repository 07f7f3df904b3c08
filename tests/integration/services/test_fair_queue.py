"""Whose job is next, if each user has more jobs than there are slots."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from conftest import Platform
from forms import full_or_short
from hypothesis import given, settings
from hypothesis import strategies as st
from jobs import make_job

from gateway.clock import utc_now
from gateway.dispatch.fair_queue import FairQueue, Selection
from gateway.jobs.job import Assignment, Job, JobStatus
from gateway.jobs.queue import Capacity, JobQueue
from gateway.jobs.store import JobStore
from gateway.nodes.holds import HoldStore, Wish
from gateway.nodes.node import user_resource
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import connect

NOW = utc_now() - timedelta(days=1)
#: A user, the minute in which its job was made, and the job's priority.
jobs_of_users = st.lists(
    st.tuples(st.sampled_from("abcde"), st.integers(0, 600), st.integers(-100, 100)), min_size=2, max_size=18
)


class Queue:
    """Waiting jobs, whose holds are taken and freed without nodes."""

    def __init__(self, database: Any, made: Sequence[tuple[str, int, int]]) -> None:
        self.documents = database["jobs"]
        self.documents.delete_many({})
        database["holds"].delete_many({})
        self.jobs, self.holds, self.queue = JobStore(database), HoldStore(database), JobQueue(database)
        self.fair = FairQueue(self.queue, self.holds)
        for user, minute, priority in made:
            at = NOW + timedelta(minutes=minute)
            self.jobs.insert(make_job(user_id=user, created_at=at, priority=priority))

    def start(self, look: Selection) -> Job | None:
        candidate = look.next(Capacity())
        if candidate is None:
            return None
        look.started(candidate)
        assignment = Assignment(attempt=1, node="n1", token=uuid.uuid4().hex, until=utc_now())
        assert self.holds.take([Wish(user_resource(candidate.partition.user_id), f"{candidate.job_id}-1")], "t")
        (job,) = self.queue.assign([(candidate, assignment)])
        return self.jobs.mark_running(job.id, assignment)

    def end(self, number: int) -> None:
        running = sorted(self.documents.find({"status": JobStatus.RUNNING}), key=lambda job: job["_id"])
        job = running[number % len(running)]
        self.documents.update_one({"_id": job["_id"]}, {"$set": {"status": JobStatus.FINISHED}})
        self.holds.free(f"{job['_id']}-1", [user_resource(job["user_id"])])

    def waiting(self) -> dict[str, Any]:
        """The rank of each waiting user's best job."""
        found = self.documents.find({"status": JobStatus.PENDING}, sort=[("rank", -1)])
        return {job["user_id"]: job["rank"] for job in found}


@pytest.fixture(scope="module")
def documents(mongo_uri: str) -> Iterator[Any]:
    database = connect(mongo_uri).client["turns"]
    ensure_indexes(database)
    yield database
    database.client.close()


@pytest.fixture
def looks(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collects every look for the best job of a partition, or of several."""
    seen: list[Any] = []
    for name in ("_first", "best"):
        method = getattr(platform.queue, name)

        def counted(*args: Any, method: Callable[..., Any] = method) -> Any:
            seen.append(args)
            return method(*args)

        monkeypatch.setattr(platform.queue, name, counted)
    return seen


@settings(max_examples=full_or_short(40, 15), deadline=None)
@given(jobs_of_users, st.integers(1, 4), st.lists(st.integers(0, 3), min_size=18, max_size=18), st.integers(1, 3))
def test_no_user_is_passed_over_for_one_that_has_more_nor_longer_than_each_other_has_a_turn(
    documents: Any, made: list[tuple[str, int, int]], slots: int, ends: list[int], looks: int
) -> None:
    queue = Queue(documents, made)
    look, passed, started = queue.fair.look(), Counter[str](), 0
    while waiting := queue.waiting():
        if started >= slots:
            queue.end(ends[started % len(ends)])
            look = queue.fair.look()
        look = queue.fair.look() if started % looks == 0 else look
        running = queue.fair.running()
        job = queue.start(look)
        assert job is not None
        started += 1
        assert running[job.user_id] == min(running[user] for user in waiting)
        assert job.queue_place()["rank"] == waiting[job.user_id]
        passed.update(user for user in waiting if user != job.user_id and not running[user])
        del passed[job.user_id]
        assert max(passed.values(), default=0) < 5
    assert started == len(made)


def test_one_user_with_a_long_queue_and_one_slot_does_not_keep_the_other_waiting(documents: Any) -> None:
    queue = Queue(documents, [("a", 0, 100)] * 10 + [("b", 600, -100)] * 2)
    order = []
    for _ in range(12):
        job = queue.start(queue.fair.look())
        assert job is not None
        order.append(job.user_id)
        queue.end(0)
    assert order[:5] == ["a", "b", "a", "b", "a"]


def test_more_lanes_than_are_compared_at_once_come_round(documents: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.dispatch.fair_queue.PARTITIONS", 3)
    queue = Queue(documents, [(f"user{n}", 0, n) for n in range(10)] * 2)
    starts = Counter[str]()
    for _ in range(16):
        look = queue.fair.look()
        job = queue.start(look)
        assert job is not None
        starts[job.user_id] += 1
        queue.end(0)
    assert len(starts) == 10


def test_slots_that_become_free_one_by_one_do_not_cost_a_look_at_every_lane_each(
    platform: Platform, looks: list[Any]
) -> None:
    for n in range(60):
        platform.jobs.insert(make_job(user_id=f"user{n % 20}"))
    for slots in range(1, 31):
        platform.heartbeat(slots=slots)
        assert platform.dispatch.fill() == 1
    running = Counter(job["user_id"] for job in platform.database["jobs"].find({"status": JobStatus.RUNNING}))
    assert sorted(running.values()) == [1] * 10 + [2] * 10
    # about one look for each dispatch and 20 at first; more on a slow machine, because what was found expires
    assert len(looks) < 150


def test_who_comes_later_goes_next_where_its_message_arrives_and_elsewhere_at_the_latest_a_second_later(
    platform: Platform,
) -> None:
    for user in "aabb":
        platform.jobs.insert(make_job(user_id=user))
    platform.heartbeat(slots=1)
    assert platform.dispatch.fill() == 1
    for message, later in ((True, 0), (False, 2)):
        newcomer = make_job(user_id=f"c{later}")
        platform.jobs.insert(newcomer)
        platform.fair.count("b")
        platform.ahead += timedelta(seconds=later)
        platform.heartbeat(slots=2 + bool(later))
        assert platform.dispatch.fill(newcomer.id if message else None) == 1
        assert platform.jobs.get(newcomer.id).status is JobStatus.RUNNING


def test_who_comes_after_the_database_s_clock_was_turned_back_does_not_wait_for_that_hour(platform: Platform) -> None:
    for _ in range(9):
        platform.jobs.insert(make_job(user_id="a"))
    platform.heartbeat(slots=1)
    assert platform.dispatch.fill() == 1
    platform.turned -= timedelta(hours=1)
    newcomer = make_job(user_id="b")
    platform.jobs.insert(newcomer)
    platform.ahead += timedelta(seconds=2)
    platform.heartbeat(slots=2)
    assert platform.dispatch.fill() == 1
    assert platform.jobs.get(newcomer.id).status is JobStatus.RUNNING


def test_a_free_slot_does_not_wait_for_what_is_known_to_grow_old(platform: Platform) -> None:
    platform.heartbeat(slots=9)
    for user in ("a", "b", "c"):
        platform.jobs.insert(make_job(user_id=user))
        assert platform.dispatch.fill() == 1


def test_a_backlog_that_fits_nowhere_costs_one_look_for_what_it_needs(platform: Platform, looks: list[Any]) -> None:
    shop = make_job().spec.model_copy(update={"project": "shop", "version": "1"})
    for n in range(30):
        platform.jobs.insert(make_job(spec=shop, user_id=f"user{n}", priority=9))
    ours = make_job()
    platform.jobs.insert(ours)
    platform.heartbeat()
    assert platform.dispatch.fill(ours.id) == 1
    assert len(looks) < 10
