from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from jobs import OURS, claim, make_job, placed
from pymongo.database import Database

from gateway.domain.clock import utc_now
from gateway.domain.job import CrawlSpec, Job, Placement, WaitingReason
from gateway.domain.room import Egg, Room
from gateway.services.turns import Turns
from gateway.services.user_limit import UserLimit
from gateway.storage.job_queue import JobQueue
from gateway.storage.job_sweeps import JobSweeps
from gateway.storage.jobs import JobStore
from gateway.storage.lanes import LaneStore
from gateway.storage.user_slots import UserSlotStore


def test_claims_take_the_best_eligible_job_once(jobs: JobStore, queue: JobQueue) -> None:
    now = utc_now()
    old = make_job(created_at=now - timedelta(minutes=5))
    urgent = make_job(priority=9)
    later = make_job(priority=99, not_before=now + timedelta(hours=1))
    for job in (make_job(), old, urgent, later):
        jobs.insert(job)
    first, second = queue.claim(claim(), OURS), queue.claim(claim(), OURS)
    assert first is not None
    assert second is not None
    assert (first.id, second.id) == (urgent.id, old.id)


def of_shop(version: str, **fields: Any) -> Job:
    spec = CrawlSpec(project="shop", version=version, spider="offers", start_urls=("http://shop.example/",))
    return make_job(spec=spec, **fields)


@pytest.mark.parametrize(
    ("room", "names"),
    [
        (Room(), ["plain"]),
        (Room(render_eggs=frozenset()), ["rendered", "plain"]),
        (Room(frozenset({Egg("shop", "2"), Egg("other", "1")})), ["shop 2", "plain"]),
        (
            Room(frozenset({Egg("shop", "1"), Egg("shop", "2")}), frozenset()),
            ["shop 1", "shop 2", "rendered", "plain"],
        ),
        (Room(frozenset({Egg("shop", "1")}), frozenset({Egg("shop", "1")})), ["both", "shop 1", "rendered", "plain"]),
    ],
)
def test_only_what_there_is_room_for_is_claimed_the_best_first(
    jobs: JobStore, queue: JobQueue, database: Database[dict[str, Any]], room: Room, names: list[str]
) -> None:
    made = {
        "both": of_shop("1", render=True, priority=9),
        "shop 1": of_shop("1", priority=8),
        "shop 2": of_shop("2", priority=7),
        "rendered": make_job(render=True, priority=6),
        "plain": make_job(),
    }
    for job in made.values():
        jobs.insert(job)
    lanes = LaneStore(database)
    assert {head.job_id for head in lanes.heads(utc_now(), room.fits)} == {made[name].id for name in names}
    look = Turns(queue, lanes, UserLimit(0, UserSlotStore(database), jobs, queue, lanes)).look()
    claimed = [found.id for _ in made if (found := look.claim(claim(), room))]
    assert claimed == [made[name].id for name in names]


def test_a_job_on_its_way_is_found_and_claimed_by_its_name(
    jobs: JobStore, queue: JobQueue, database: Database[dict[str, Any]]
) -> None:
    job, other = make_job(), make_job()
    for made in (job, other):
        jobs.insert(made)
    placement = placed(queue, job)
    sweeps = JobSweeps(database)
    assert sweeps.placed(utc_now(), 9) == [job.id]
    assert queue.claim_placed(job.id, claim()) is None
    queue.dispatch_failed(job.id, claim(), "no answer", utc_now(), keep=True)
    assert queue.claim_placed(other.id, claim()) is None
    assert queue.claim_placed(job.id, claim()) is not None
    running = jobs.mark_running(job.id, placement)
    assert running is not None
    assert running.placement is None
    assert sweeps.placed(utc_now(), 9) == []


def test_an_expired_claim_frees_the_job(jobs: JobStore, queue: JobQueue) -> None:
    jobs.insert(make_job())
    assert queue.claim(claim(seconds=-1), OURS) is not None
    assert queue.claim(claim(), OURS) is not None
    assert queue.claim(claim(), OURS) is None


def test_a_placement_needs_the_claim(jobs: JobStore, queue: JobQueue) -> None:
    job = make_job()
    jobs.insert(job)
    placement = Placement(attempt=1, node="n1", not_after=utc_now())
    assert queue.place(job.id, claim(), placement) is None
    assert queue.claim(claim(), OURS) is not None
    assert queue.place(job.id, claim(), placement) is not None
    assert jobs.get(job.id).attempt == 1


def test_a_job_that_cannot_be_started_says_why_and_can_be_claimed_again(jobs: JobStore, queue: JobQueue) -> None:
    job = make_job()
    jobs.insert(job)
    queue.claim(claim(), OURS)
    assert queue.note_waiting(job.id, WaitingReason.CAPACITY) is None
    waiting = queue.wait(job.id, claim(), WaitingReason.CAPACITY)
    assert waiting is not None
    assert waiting.waiting_reason is WaitingReason.CAPACITY
    noted = queue.note_waiting(job.id, WaitingReason.NO_NODE)
    assert noted is not None
    assert queue.note_waiting(job.id, WaitingReason.NO_NODE) is None
    assert queue.claim(claim(), OURS) is not None


@pytest.mark.parametrize("keep", [True, False])
def test_a_failed_dispatch_keeps_its_placement_only_while_the_answer_is_unknown(
    jobs: JobStore, queue: JobQueue, *, keep: bool
) -> None:
    job = make_job()
    jobs.insert(job)
    placement = placed(queue, job)
    failed = queue.dispatch_failed(job.id, claim(), "no answer", utc_now(), keep=keep)
    assert failed is not None
    assert failed.placement == (placement if keep else None)
    assert (failed.dispatch_failures, failed.claim) == (1, None)


def test_an_abandoned_placement_frees_the_job_for_its_next_attempt(jobs: JobStore, queue: JobQueue) -> None:
    job = make_job()
    jobs.insert(job)
    placement = placed(queue, job)
    assert queue.abandon_placement(job.id, claim().model_copy(update={"token": "late"}), placement) is None
    abandoned = queue.abandon_placement(job.id, claim(), placement)
    assert abandoned is not None
    assert (abandoned.placement, abandoned.attempt) == (None, 1)
