from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from jobs import assigned, make_job
from pymongo.database import Database
from stores import REAL_BACKENDS

from gateway.clock import utc_now
from gateway.contract.crawl import CrawlSpec, Egg
from gateway.dispatch.egg_delivery import EggNeed, EggNeeds
from gateway.dispatch.fair_queue import FairQueue
from gateway.jobs.job import Assignment, Job, WaitingReason
from gateway.jobs.queries import JobQueries, JobSweeps
from gateway.jobs.queue import Capacity, JobQueue
from gateway.jobs.store import JobStore
from gateway.nodes.holds import HoldStore, Wish
from gateway.nodes.node import user_resource

#: mongomock does not follow the bulk writes of PyMongo.
pytestmark = pytest.mark.parametrize("database", REAL_BACKENDS, indirect=True)

Documents = Database[dict[str, Any]]


def of(project: str, version: str | None, **fields: Any) -> Job:
    spec = CrawlSpec(project=project, version=version, spider="offers", start_urls=("http://shop.example/",))
    return make_job(spec=spec, **fields)


def of_shop(version: str, **fields: Any) -> Job:
    return of("shop", version, **fields)


def keep(database: Documents, jobs: Sequence[Job]) -> None:
    for job in jobs:
        JobStore(database).insert(job)


# --- who waits


def test_the_best_of_a_lane_come_in_order_without_those_whose_time_has_not_come(
    database: Documents, queue: JobQueue
) -> None:
    now = utc_now()
    old, urgent, plain = make_job(created_at=now - timedelta(minutes=5)), make_job(priority=9), make_job()
    later = make_job(priority=99, not_before=now + timedelta(hours=1))
    keep(database, [plain, old, urgent, later])
    assert [found.job_id for found in queue.best(old.partition, 9)] == [urgent.id, old.id, plain.id]
    assert [found.job_id for found in queue.best(old.partition, 1)] == [urgent.id]


@pytest.mark.parametrize(
    ("room", "names"),
    [
        (Capacity(), ["plain"]),
        (Capacity(render_eggs=frozenset()), ["rendered", "plain"]),
        (Capacity(frozenset({Egg("shop", "2"), Egg("other", "1")})), ["shop 2", "plain"]),
        (
            Capacity(frozenset({Egg("shop", "1"), Egg("shop", "2")}), frozenset()),
            ["shop 1", "shop 2", "rendered", "plain"],
        ),
        (
            Capacity(frozenset({Egg("shop", "1")}), frozenset({Egg("shop", "1")})),
            ["both", "shop 1", "rendered", "plain"],
        ),
    ],
)
def test_only_what_there_is_room_for_goes_the_best_first(
    queue: JobQueue, database: Documents, room: Capacity, names: list[str]
) -> None:
    made = {
        "both": of_shop("1", render=True, priority=9),
        "shop 1": of_shop("1", priority=8),
        "shop 2": of_shop("2", priority=7),
        "rendered": make_job(render=True, priority=6),
        "plain": make_job(),
    }
    keep(database, list(made.values()))
    assert {heads.candidates[0].job_id for heads in queue.fronts(room.fits)} == {made[name].id for name in names}
    look = FairQueue(queue, HoldStore(database)).look()
    order = [found.job_id for _ in made if (found := look.next(room))]
    assert order == [made[name].id for name in names]


def test_each_lane_that_fits_shows_its_best_job_that_could_be_started(database: Documents, queue: JobQueue) -> None:
    now = utc_now()
    ours = [make_job(), make_job(priority=5), make_job(priority=9, not_before=now + timedelta(hours=1))]
    bobs = [make_job(user_id="bob"), make_job(user_id="bob", render=True)]
    shops = [of("shop", "1"), of("shop", "2"), of("shop", None), of("other", "1")]
    keep(database, [*ours, *bobs, *shops, make_job(user_id="carl", blocked=True)])

    def heads(room: Capacity, after: str = "") -> set[str]:
        return {heads.candidates[0].job_id for heads in queue.fronts(room.fits, after)}

    assert heads(Capacity()) == {ours[1].id, bobs[0].id}
    assert heads(Capacity(), str(ours[0].partition)) == {bobs[0].id}
    assert heads(Capacity(render_eggs=frozenset())) == {ours[1].id, bobs[0].id, bobs[1].id}
    assert heads(Capacity(frozenset({Egg("shop", "2")}))) == {ours[1].id, bobs[0].id, shops[1].id, shops[2].id}
    assert queue.partitions_of([ours[0].id, ours[2].id]) == {ours[0].partition}
    assert queue.partitions_of([ours[2].id]) == set()


def test_eggs_that_no_node_with_room_has_are_named_once_where_there_is_room_for_their_jobs(
    database: Documents,
) -> None:
    keep(database, [of("shop", "1", user_id=user) for user in ("ada", "bob", "carl")])
    keep(database, [make_job(), of("shop", "2", render=True), of("shop", None), of("x", "1", blocked=True)])
    keep(database, [of("here", "1")])

    def lacking(room: Capacity) -> set[EggNeed]:
        return set(EggNeeds(database).lacking(room, lambda _, user: user not in busy))

    busy: set[str] = set()
    here, shops = frozenset({Egg("here", "1")}), EggNeed(Egg("shop", "1"), render=False, user_id="ada")
    assert lacking(Capacity(here)) == {shops}
    assert lacking(Capacity(here, frozenset())) == {shops, EggNeed(Egg("shop", "2"), render=True, user_id="ada")}
    busy |= {"ada", "bob"}
    assert lacking(Capacity(here)) == {shops._replace(user_id="carl")}
    busy.add("carl")
    assert lacking(Capacity(here)) == set()


def test_jobs_of_one_version_are_told_why_it_does_not_come(database: Documents) -> None:
    told = [of("shop", "1"), of("shop", "1", user_id="bob", render=True), of("shop", "1", user_id="carl")]
    keep(database, [*told, of("shop", "1-1"), of("shop", "11"), of("shop", "1", blocked=True), make_job()])
    needs, egg = EggNeeds(database), Egg("shop", "1")
    first, rest = needs.tell(egg, "broken", 2), needs.tell(egg, "broken", 2)
    assert {job.id for job in (*first, *rest)} == {job.id for job in told}
    assert (len(first), len(rest), needs.tell(egg, "broken", 2)) == (2, 1, [])


def test_users_who_wait_take_turns_also_in_the_count(database: Documents) -> None:
    now = utc_now()
    crowd = [make_job(user_id="bob", created_at=now - timedelta(minutes=9 - n)) for n in range(5)]
    mine = [make_job(user_id="ada", created_at=now + timedelta(seconds=n)) for n in range(2)]
    keep(database, [*crowd, *mine, make_job(user_id="bob", blocked=True), make_job(user_id="zoe")])
    queries = JobQueries(database)
    assert [queries.queue_position(job, dict) for job in mine] == [2, 5]
    assert [queries.queue_position(job, dict) for job in crowd] == [1, 4, 6, 7, 8]


def test_a_user_with_fewer_running_crawls_is_before_those_with_more_in_the_count(database: Documents) -> None:
    now = utc_now()
    crowd = [make_job(user_id="bob", created_at=now - timedelta(minutes=9 - n)) for n in range(2)]
    mine = [make_job(user_id="ada", created_at=now + timedelta(seconds=n)) for n in range(3)]
    keep(database, [*crowd, *mine])
    queries = JobQueries(database)

    def places(**running: int) -> list[int | None]:
        return [queries.queue_position(job, lambda: running) for job in (*crowd, *mine)]

    assert places(bob=2) == [3, 5, 1, 2, 4]
    assert places(bob=9) == [4, 5, 1, 2, 3]
    assert places(bob=1, ada=1, carl=7) == places() == [1, 3, 2, 4, 5]


def test_the_count_is_the_order_in_which_the_queue_starts_them(database: Documents, queue: JobQueue) -> None:
    now = utc_now()
    waiting = [make_job(user_id=user, created_at=now + timedelta(seconds=n)) for n, user in enumerate("bbbaaaac")]
    keep(database, waiting)
    fair = FairQueue(queue, HoldStore(database))
    HoldStore(database).take([Wish(user_resource(user), f"{number}-1") for number, user in enumerate("bba")], "token")
    places = {JobQueries(database).queue_position(job, fair.running): job.id for job in waiting}
    selection, started = fair.look(), list[str]()
    while candidate := selection.next(Capacity()):
        selection.started(candidate)
        started.append(candidate.job_id)
    assert [places[place] for place in range(1, 9)] == started


def test_a_job_says_why_it_waits_and_says_it_once(database: Documents, queue: JobQueue) -> None:
    job, other = make_job(), make_job(blocked=True)
    keep(database, [job, other])
    partitions = list(queue.partitions())
    told = queue.note_waiting(WaitingReason.CAPACITY, partitions, 9)
    assert [(one.id, one.waiting_reason) for one in told] == [(job.id, WaitingReason.CAPACITY)]
    assert queue.note_waiting(WaitingReason.CAPACITY, partitions, 9) == []
    new = make_job()
    keep(database, [new])
    assert [one.id for one in queue.note_waiting(WaitingReason.CAPACITY, partitions, 9)] == [new.id]
    assert len(queue.note_waiting(WaitingReason.NO_NODE, partitions, 9)) == 2


# --- the way to a node


def test_an_attempt_is_assigned_once_and_leaves_the_queue(
    jobs: JobStore, queue: JobQueue, database: Documents
) -> None:
    job = make_job()
    jobs.insert(job)
    (candidate,) = queue.best(job.partition, 9)
    assignment = assigned(queue, job)
    other = assignment.model_copy(update={"token": "other", "node": "n2"})
    assert queue.assign([(candidate, other)]) == []
    stored = jobs.get(job.id).assignment
    assert stored is not None
    assert (stored.token, stored.node) == ("token", "n1")
    assert queue.is_empty()
    (live,) = JobSweeps(database).live_attempts()
    assert (str(live.id), live.node, live.is_running) == (f"{job.id}-1", "n1", False)
    running = jobs.mark_running(job.id, assignment)
    assert running is not None
    assert running.assignment is None
    # it has to show a sign of life by then
    assert running.attend_at == running.attempts["1"].dispatched_at + timedelta(seconds=10)
    started = jobs.record_started(job.id, 1, utc_now())
    assert started is not None
    assert started.attend_at is None


def test_of_many_jobs_those_are_assigned_that_nobody_else_has(jobs: JobStore, queue: JobQueue) -> None:
    made = [make_job() for _ in range(3)]
    for job in made:
        jobs.insert(job)
    candidates = queue.best(made[0].partition, 9)
    assigned(queue, made[1])
    mine = Assignment(attempt=1, node="n1", token="mine", until=utc_now())
    found = queue.assign([(candidate, mine) for candidate in candidates])
    assert {job.id for job in found} == {made[0].id, made[2].id}


def test_who_takes_an_assignment_over_leaves_the_one_before_nothing_to_say(jobs: JobStore, queue: JobQueue) -> None:
    job = make_job()
    jobs.insert(job)
    assigned(queue, job)
    mine = jobs.get(job.id)
    theirs = queue.take_over(mine, "theirs")
    assert theirs is not None
    assert queue.take_over(mine, "late") is None
    assert queue.release(mine, not_before=utc_now()) is None
    assert queue.ask_later(mine, "no answer", utc_now()) is None
    later = queue.ask_later(theirs, "no answer", utc_now())
    assert later is not None
    assert (later.dispatch_failures, later.waiting_reason) == (1, WaitingReason.BACKOFF)
    assert [found.id for found in queue.overdue(9)] == [job.id]
    assert queue.overdue(9, busy=["n1"]) == queue.overdue(9, but=[job.id]) == []
    assert len(queue.overdue(9, busy=["n2"], but=["another"])) == 1


def test_a_released_job_waits_for_its_next_attempt_once_its_back_off_is_over(jobs: JobStore, queue: JobQueue) -> None:
    job = make_job()
    jobs.insert(job)
    assigned(queue, job)
    released = queue.release(jobs.get(job.id), not_before=utc_now(), message="refused")
    assert released is not None
    assert (released.assignment, released.attempt, released.dispatch_failures) == (None, 1, 1)
    assert queue.is_empty()
    assert queue.overdue(9) == []
    queue.end_backoffs()
    (candidate,) = queue.best(job.partition, 9)
    assert (candidate.attempt, candidate.avoid) == (1, ())


def test_a_job_that_was_released_for_its_nodes_fault_remembers_the_node_and_is_not_to_blame(
    jobs: JobStore, queue: JobQueue
) -> None:
    job = make_job()
    jobs.insert(job)
    assigned(queue, job)
    released = queue.release(jobs.get(job.id), not_before=utc_now(), message="a full disk", avoid=True)
    assert released is not None
    assert (released.message, released.dispatch_failures, released.avoid) == ("a full disk", 0, ["n1"])


def test_a_job_in_its_back_off_is_in_no_lane(jobs: JobStore, queue: JobQueue) -> None:
    job = make_job()
    jobs.insert(job)
    assigned(queue, job)
    queue.release(jobs.get(job.id), not_before=utc_now() + timedelta(hours=1), message="refused")
    queue.end_backoffs()
    assert queue.is_empty()


def test_an_attempt_that_was_used_up_is_never_assigned(jobs: JobStore, queue: JobQueue) -> None:
    job = make_job()
    jobs.insert(job)
    (candidate,) = queue.best(job.partition, 9)
    assert queue.use_up(job.id, 1)
    assert not queue.use_up(job.id, 1)
    late = Assignment(attempt=1, node="n1", token="late", until=utc_now())
    assert queue.assign([(candidate, late)]) == []
    assert queue.best(job.partition, 9)[0].attempt == 1


def test_thousands_of_jobs_that_wait_for_one_resource_keep_no_other_from_being_seen(
    jobs: JobStore, queue: JobQueue
) -> None:
    for site in ("a", "b", "c"):
        for _ in range(9):
            jobs.insert(make_job(exclusive=f"site:{site}", blocked=True))
    assert queue.blocked_for(4) == ["site:a", "site:b", "site:c"]
    assert queue.blocked_for(2) == ["site:a", "site:b"]
    assert queue.blocked_for(2, "site:b") == ["site:c"]


def test_who_is_blocked_is_looked_at_again_once_it_is_let_go(
    database: Documents, jobs: JobStore, queue: JobQueue
) -> None:
    first, second = make_job(exclusive="site:a", priority=1), make_job(exclusive="site:a")
    for job in (second, first):
        jobs.insert(job)
        assert queue.block(job.id, WaitingReason.SITE_BUSY) is not None
    assert queue.is_empty()
    assert queue.block(first.id, WaitingReason.SITE_BUSY) is None
    assert queue.blocked_for(9) == ["site:a"]
    for _ in range(9):
        odd = make_job(exclusive="site:a", priority=2, blocked=True)
        jobs.insert(odd)
        database["jobs"].update_one({"_id": odd.id}, {"$set": {"tags": 5}})
    let_go = queue.unblock("site:a")
    assert let_go is not None
    assert (let_go.id, let_go.blocked, let_go.waiting_reason) == (first.id, None, None)
    assert [found.job_id for found in queue.best(first.partition, 9)] == [first.id]
    assert queue.unblock("site:b") is None


@pytest.mark.parametrize(
    "odd", [{"attempt": "x"}, {"rank": "x"}, {"avoid": [{}]}, {"prefer": ["x"]}, {"exclusive": 5}]
)
def test_a_job_with_an_odd_field_keeps_no_other_from_its_turn(
    queue: JobQueue, database: Documents, odd: dict[str, Any]
) -> None:
    spoiled, sound = make_job(priority=9), make_job(user_id="bob")
    keep(database, [spoiled, sound])
    database["jobs"].update_one({"_id": spoiled.id}, {"$set": odd})
    fronts = queue.fronts(Capacity().fits)
    assert [one.job_id for front in fronts for one in front.candidates] == [sound.id]
