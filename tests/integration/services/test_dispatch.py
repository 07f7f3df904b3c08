from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import takewhile
from threading import Event, Thread
from typing import Any

import pytest
from conftest import Platform
from jobs import make_job
from node_double import NodeDouble, node_double
from pymongo.errors import AutoReconnect, PyMongoError, WriteError
from relay import MongoRelay
from stack import wait_until

from gateway.contract.crawl import CrawlSpec
from gateway.dispatch.dispatcher import MAX_DISPATCH_FAILURES, OVERDUE_SECONDS
from gateway.jobs.job import Job, JobStatus, WaitingReason
from gateway.stores.mongo import connect
from gateway.stores.redis import job_channel


def submitted(platform: Platform, count: int = 1, **fields: object) -> list[Job]:
    jobs = [make_job(**fields) for _ in range(count)]
    for job in jobs:
        platform.jobs.insert(job)
    return jobs


def test_free_slots_are_filled_with_the_best_jobs_whoever_was_named(platform: Platform) -> None:
    platform.heartbeat(slots=2)
    (plain,) = submitted(platform)
    best = submitted(platform, 2, priority=5)
    assert platform.dispatch.fill(plain.id) == 2
    assert set(platform.double.posted) == {f"{job.id}-1" for job in best}
    waiting = platform.jobs.get(plain.id)
    assert (waiting.status, waiting.waiting_reason) == (JobStatus.PENDING, WaitingReason.CAPACITY)


def test_without_a_living_node_a_job_says_so_and_waits(platform: Platform) -> None:
    (job,) = submitted(platform)
    assert platform.dispatch.fill(job.id) == 0
    assert platform.jobs.get(job.id).waiting_reason is WaitingReason.NO_NODE
    platform.heartbeat()
    assert platform.dispatch.fill(job.id) == 1
    assert platform.jobs.get(job.id).waiting_reason is None


@pytest.mark.parametrize(("mode", "told"), [("refuse", "no such spider"), ("halves", "no spider ?")])
def test_a_refusal_frees_the_slot_and_in_the_end_gives_the_job_up(platform: Platform, mode: str, told: str) -> None:
    platform.heartbeat()
    platform.double.mode = mode
    (job,) = submitted(platform)
    for _ in range(MAX_DISPATCH_FAILURES):
        platform.dispatch.fill()
        assert platform.slots() == []
        platform.ahead += timedelta(minutes=10)
        platform.heartbeat()
    ended = platform.jobs.get(job.id)
    assert (ended.status, ended.dead) == (JobStatus.ERROR, True)
    assert told in (ended.message or "")
    assert len(platform.double.posted) == MAX_DISPATCH_FAILURES
    (node,) = platform.nodes.all()
    assert node.failures == 0


def test_a_lost_answer_is_followed_by_the_same_attempt_at_the_same_node(platform: Platform) -> None:
    platform.heartbeat("n1")
    platform.double.mode = "lost"
    (job,) = submitted(platform)
    assert platform.dispatch.fill() == 0
    unsure = platform.jobs.get(job.id)
    assert unsure.assignment is not None
    assert platform.slots() == [f"{job.id}-1"]
    platform.double.mode = "ok"
    platform.ahead += timedelta(seconds=10)
    platform.heartbeat("n0", slots=50)
    platform.heartbeat("n1")
    platform.reconcile()
    assert platform.dispatch.fill() == 1
    assert set(platform.double.posted) == {f"{job.id}-1"}
    assert platform.jobs.get(job.id).attempts["1"].node == "n1"


def test_jobs_whose_answers_are_missing_do_not_lock_each_other_out_of_a_full_node(platform: Platform) -> None:
    platform.heartbeat(slots=2)
    platform.double.mode = "lost"
    jobs = submitted(platform, 2)
    while len(platform.slots()) < 2:
        platform.dispatch.fill()
        platform.ahead += timedelta(seconds=3)
        platform.heartbeat(slots=2)
        # forget the failure, so that the next job is posted, too, as when two workers post at the same time
        platform.nodes.succeeded("n1", platform.clock())
    platform.double.mode = "ok"
    platform.ahead += timedelta(minutes=1)
    platform.heartbeat(slots=2)
    assert platform.dispatch.fill() == 2
    assert {platform.jobs.get(job.id).status for job in jobs} == {JobStatus.RUNNING}


def test_a_look_for_nobody_asks_once_whether_anybody_waits(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.heartbeat()
    platform.dispatch.fill()
    asked: list[bool] = []
    is_empty = platform.queue.is_empty
    monkeypatch.setattr(platform.queue, "is_empty", lambda: asked.append(is_empty()) or asked[-1])
    assert platform.dispatch.fill() == 0
    assert asked == [True]


def test_a_look_that_fails_leaves_no_node_without_work(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(**_: Any) -> list[Any]:
        raise AutoReconnect("connection closed")

    platform.heartbeat()
    platform.double.mode = "lost"
    jobs = submitted(platform)
    platform.dispatch.fill()
    platform.double.mode = "ok"
    platform.ahead += timedelta(minutes=1)
    platform.heartbeat()
    platform.nodes.succeeded("n1", platform.clock())
    jobs += submitted(platform)
    with monkeypatch.context() as broken:
        broken.setattr(platform.nodes, "lately", away)
        with pytest.raises(AutoReconnect):
            platform.dispatch.fill()
    platform.dispatch.fill()
    platform.dispatch.fill()
    assert {platform.jobs.get(job.id).status for job in jobs} == {JobStatus.RUNNING}


def test_what_is_assigned_goes_to_its_node_although_the_rest_of_the_look_fails(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, failed = platform.queue.without, list[str]()

    def once(*given: Any) -> Any:
        if not failed:
            failed.append("without")
            raise AutoReconnect("connection closed")
        return whole(*given)

    platform.heartbeat(slots=1)
    running, waiting = submitted(platform, priority=5) + submitted(platform)
    monkeypatch.setattr(platform.queue, "without", once)
    with pytest.raises(AutoReconnect):
        platform.dispatch.fill(running.id, waiting.id)
    assert failed
    platform.dispatch.fill()
    assert platform.double.posted == [f"{running.id}-1"]
    assert platform.jobs.get(running.id).status is JobStatus.RUNNING
    assert platform.jobs.get(waiting.id).waiting_reason is WaitingReason.CAPACITY


def test_a_store_that_fails_while_a_start_is_recorded_keeps_no_node_from_work(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, failed = platform.jobs.mark_running, list[str]()

    def once(job_id: str, assignment: Any) -> Any:
        if failed:
            return whole(job_id, assignment)
        failed.append(job_id)
        raise AutoReconnect("connection closed")

    platform.heartbeat("n2")
    platform.double.mode = "lost"
    (unsure,) = submitted(platform)
    platform.dispatch.fill()
    platform.double.mode = "ok"
    monkeypatch.setattr(platform.jobs, "mark_running", once)
    jobs = [unsure, *submitted(platform)]
    for _ in range(3):
        platform.ahead += timedelta(seconds=20)
        platform.heartbeat("n1", slots=9)
        platform.heartbeat("n2")
        platform.nodes.succeeded("n2", platform.clock())
        with suppress(AutoReconnect):
            platform.dispatch.fill()
    assert failed
    assert {platform.jobs.get(job.id).status for job in jobs} == {JobStatus.RUNNING}


@pytest.mark.parametrize("mode", ["refuse", "full"])
def test_a_job_cancelled_while_its_node_refuses_it_has_ended_at_once(platform: Platform, mode: str) -> None:
    platform.heartbeat()
    platform.double.mode = mode
    (job,) = submitted(platform)
    platform.double.meanwhile = lambda: platform.jobs.request_cancel(job.id)
    platform.dispatch.fill()
    assert platform.jobs.get(job.id).status is JobStatus.CANCELLED
    assert platform.held() == {}


def test_a_look_that_fails_forgets_no_job_that_was_named(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise AutoReconnect("connection closed")

    platform.heartbeat(slots=1)
    platform.dispatch.fill()
    # the partitions were read when there was no job
    (job,) = submitted(platform)
    with monkeypatch.context() as broken:
        broken.setattr(platform.nodes, "lately", away)
        with pytest.raises(AutoReconnect):
            platform.dispatch.fill(job.id)
    assert platform.dispatch.fill() == 1


def test_messages_that_name_more_jobs_than_a_query_can_hold_stop_no_look(platform: Platform) -> None:
    platform.heartbeat()
    jobs = submitted(platform, 2)
    assert platform.dispatch.fill(*(f"{number:032x}" for number in range(400_000)), *(job.id for job in jobs)) == 2


def test_a_store_that_is_slow_and_not_away_keeps_no_crawl_from_its_start(
    redis_url: str, mongo_uri: str, double: NodeDouble, database: Any
) -> None:
    with MongoRelay.before(mongo_uri).running() as relay:
        slow = Platform(redis_url, double, connect(relay.url(mongo_uri)).client[database.name])
        slow.heartbeat()
        (job,) = submitted(slow)
        slow.dispatch.fill("f" * 32)
        (job,) = submitted(slow)
        # a fraction of what is usual, so that the test is short: a look takes a dozen commands
        slow.dispatch._patience.seconds, relay.delay = 0.1, 0.05
        with pytest.raises(PyMongoError):
            slow.dispatch.fill()
        slow.sweep_holds()
        slow.heartbeat()
        assert slow.dispatch.fill() == 1
        assert slow.jobs.get(job.id).status is JobStatus.RUNNING
        slow.scrapyd.close()
        slow.redis.close()
        slow.database.client.close()


def test_an_attempt_whose_node_died_before_answering_goes_elsewhere_only_when_it_can_no_longer_start(
    platform: Platform,
) -> None:
    platform.heartbeat("n1")
    platform.double.mode = "lost"
    (job,) = submitted(platform)
    platform.dispatch.fill()
    platform.double.mode = "ok"
    platform.ahead += timedelta(seconds=60)
    platform.heartbeat("n2")
    assert platform.dispatch.fill() == 0
    platform.ahead += timedelta(seconds=120)
    platform.heartbeat("n2")
    assert platform.dispatch.fill() == 1
    assert platform.jobs.get(job.id).attempts["2"].node == "n2"
    assert platform.slots("n1") == []


def test_a_worker_that_died_after_the_node_accepted_is_made_up_for_by_the_next(platform: Platform) -> None:
    platform.heartbeat()
    (job,) = submitted(platform)
    platform.dispatch.fill()
    # as the dead worker left the job: assigned and posted, but not recorded as running
    platform.database["jobs"].update_one({"_id": job.id}, {"$set": {"status": "pending"}, "$unset": {"attempts": ""}})
    left = {"attempt": 1, "node": "n1", "token": "its", "until": platform.clock()}
    platform.database["jobs"].update_one(
        {"_id": job.id}, {"$set": {"assignment": left, "attend_at": platform.clock()}}
    )
    assert platform.dispatch.fill() == 1
    assert platform.double.posted == [f"{job.id}-1"] * 2
    assert platform.jobs.get(job.id).attempt == 1


def test_a_job_cancelled_while_it_was_handed_over_is_cancelled_at_the_node(platform: Platform) -> None:
    platform.heartbeat()
    (job,) = submitted(platform)
    platform.double.mode = "lost"
    platform.dispatch.fill()
    platform.jobs.request_cancel(job.id)
    platform.double.mode = "ok"
    platform.ahead += timedelta(seconds=10)
    platform.heartbeat()
    platform.reconcile()
    platform.dispatch.fill()
    assert platform.double.cancelled == [f"{job.id}-1"]


def test_a_node_that_failed_rests_before_it_is_offered_more(platform: Platform) -> None:
    platform.heartbeat()
    platform.double.mode = "broken"
    submitted(platform, 2)
    assert platform.dispatch.fill() == 0
    # the node did not answer the probe before the post, so no job was risked
    assert (len(platform.double.probes), platform.double.posted) == (1, [])


def test_a_node_where_nobody_answers_keeps_no_job(platform: Platform) -> None:
    platform.double.url, answering = "http://127.0.0.1:9", platform.double.url
    platform.heartbeat("dead", slots=50)
    (job,) = submitted(platform)
    assert platform.dispatch.fill() == 0
    waiting = platform.jobs.get(job.id)
    assert (waiting.assignment, platform.slots("dead")) == (None, [])
    platform.double.url = answering
    platform.ahead += timedelta(seconds=2)
    platform.heartbeat("n1")
    assert platform.dispatch.fill() == 1


def test_a_refusal_after_a_lost_answer_does_not_send_the_job_elsewhere(platform: Platform) -> None:
    platform.heartbeat()
    platform.double.mode = "lost"
    (job,) = submitted(platform)
    platform.dispatch.fill()
    platform.double.mode = "refuse"
    platform.ahead += timedelta(seconds=10)
    platform.heartbeat()
    platform.reconcile()
    platform.dispatch.fill()
    assert len(platform.double.posted) == 2
    unsure = platform.jobs.get(job.id)
    assert unsure.assignment is not None
    assert unsure.attempt == 1


def test_a_node_that_refuses_for_ever_what_it_may_have_taken_gets_rid_of_the_job_in_the_end(
    platform: Platform,
) -> None:
    platform.heartbeat()
    platform.double.mode = "lost"
    (job,) = submitted(platform)
    platform.dispatch.fill()
    platform.double.mode = "refuse"
    for _ in range(20):
        platform.ahead += timedelta(seconds=10)
        platform.heartbeat()
        platform.reconcile()
        platform.dispatch.fill()
    second = platform.jobs.get(job.id)
    # the first attempt was given up, and the node has refused the next ones since
    assert (second.attempt, second.dispatch_failures) > (1, 0)
    assert (second.status, second.assignment, platform.slots()) == (JobStatus.PENDING, None, [])
    platform.double.mode = "ok"
    platform.ahead += timedelta(minutes=1)
    platform.heartbeat()
    assert platform.dispatch.fill() == 1


def test_a_node_that_has_a_folder_of_an_attempt_that_it_never_took_is_not_asked_for_ever(platform: Platform) -> None:
    """The node was killed while it took the attempt."""
    platform.heartbeat()
    platform.double.mode = "lost"
    (job,) = submitted(platform)
    platform.dispatch.fill()
    name = f"{job.id}-1"
    platform.double.mode, platform.double.taken = "refuse", set()
    for _ in range(20):
        platform.ahead += timedelta(seconds=10)
        platform.heartbeat(alive=(name,))
        platform.reconcile()
        platform.dispatch.fill()
    assert name in platform.double.barred
    assert platform.jobs.get(job.id).assignment is None


def test_what_the_node_has_but_never_queued_is_posted_again_however_late(platform: Platform) -> None:
    platform.heartbeat()
    platform.double.mode = "lost"
    (job,) = submitted(platform)
    platform.dispatch.fill()
    platform.double.mode = "ok"
    platform.ahead += timedelta(minutes=5)
    platform.heartbeat(alive=(f"{job.id}-1",))
    platform.reconcile()
    assert platform.dispatch.fill() == 1
    assert set(platform.double.posted) == {f"{job.id}-1"}


def test_who_waits_for_a_node_that_is_away_is_told_so_once(platform: Platform) -> None:
    platform.heartbeat()
    platform.double.mode = "lost"
    (job,) = submitted(platform)
    platform.dispatch.fill()
    told = platform.redis.pubsub(ignore_subscribe_messages=True)
    told.subscribe(job_channel(job.id))
    told.get_message(timeout=5)
    platform.double.mode = "vanish"
    for _ in range(5):
        platform.ahead += timedelta(seconds=10)
        platform.sweeper.sweep()
        platform.dispatch.fill()
    platform.redis.publish(job_channel(job.id), "over")
    messages = iter(partial(told.get_message, timeout=5), None)
    events = list(takewhile(lambda message: message["data"] != b"over", messages))
    told.close()
    assert len(events) == 1
    assert platform.jobs.get(job.id).waiting_reason is WaitingReason.BACKOFF


def test_a_job_that_cannot_be_read_keeps_no_other_from_its_node(platform: Platform) -> None:
    platform.heartbeat()
    poison, other = submitted(platform, 2)
    platform.database["jobs"].update_one({"_id": poison.id}, {"$set": {"max_retries": "of tomorrow"}})
    platform.dispatch.fill()
    assert platform.jobs.get(other.id).status is JobStatus.RUNNING


@pytest.mark.parametrize("lane", ["no lane", "z/b/1/ada", ["j/b/1/ada"]], ids=str)
def test_a_job_whose_partition_cannot_be_read_keeps_no_other_from_its_node(platform: Platform, lane: object) -> None:
    platform.heartbeat(slots=9)
    (first,) = submitted(platform)
    assert platform.dispatch.fill() == 1
    # several jobs that fit nowhere, so that a look goes past them to the job that cannot be read
    for project in "aaaaab":
        spec = first.spec.model_copy(update={"project": project, "version": "1"})
        (poison,) = submitted(platform, spec=spec)
    (other,) = submitted(platform)
    platform.database["jobs"].update_one({"_id": poison.id}, {"$set": {"lane": lane}})
    platform.explain()
    platform.dispatch.fill(poison.id)
    assert platform.jobs.get(other.id).status is JobStatus.RUNNING


def test_a_job_that_can_neither_be_read_nor_set_aside_keeps_no_other_from_its_node(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise WriteError("the document is refused", 121)

    monkeypatch.setattr("gateway.jobs.queue.SetAside._note", refuse)
    platform.heartbeat()
    poison, other = submitted(platform, 2)
    platform.database["jobs"].update_one({"_id": poison.id}, {"$set": {"rank": 0}})
    platform.dispatch.fill()
    assert platform.jobs.get(other.id).status is JobStatus.RUNNING


def test_a_store_that_hangs_while_a_job_goes_elsewhere_keeps_no_other_from_its_start(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job waits behind a post that hangs. The look must not wait for the step that gives the job back."""
    monkeypatch.setattr("gateway.dispatch.dispatcher.PATIENCE", 0.0)
    over = Event()
    monkeypatch.setattr(platform.queue, "release", lambda *_, **__: over.wait(60))
    platform.double.silent = {"/schedule.json"}
    platform.heartbeat(slots=2)
    submitted(platform, 2)
    platform.dispatch.loop.turn()
    wait_until(lambda: platform.double.posted, what="the post that hangs")
    with node_double() as well:
        since = platform.clock() - timedelta(hours=1)
        platform.nodes.heartbeat("n2", url=well.url, max_slots=1, alive=(), present=(), beating_since=since)
        (other,) = submitted(platform, user_id="bob")
        look = Thread(target=platform.dispatch.loop.turn, daemon=True)
        look.start()
        try:
            wait_until(lambda: well.posted == [f"{other.id}-1"], timeout=4, what="the other user's crawl")
        finally:
            over.set()
            look.join()
            platform.dispatch.wait()


def test_thousands_past_their_backoff_keep_no_other_user_from_a_retry(platform: Platform) -> None:
    platform.heartbeat()
    due = platform.clock() + timedelta(seconds=1)
    documents = [make_job(not_before=due).to_document() for _ in range(1200)]
    platform.database["jobs"].insert_many(documents)
    (other,) = submitted(platform, user_id="bob", not_before=due + timedelta(seconds=1))
    platform.ahead += timedelta(seconds=5)
    # on a busy machine a round's time can be over before it has seen all jobs; the next round takes the rest
    for _ in range(3):
        platform.ahead += timedelta(seconds=OVERDUE_SECONDS)
        platform.heartbeat()
        platform.dispatch.fill()
        if platform.jobs.get(other.id).status is JobStatus.RUNNING:
            return
    pytest.fail("the other user's job still waits")


@pytest.mark.parametrize("before", [None, WaitingReason.NO_NODE, WaitingReason.BACKOFF], ids=str)
def test_every_job_that_waits_says_why_whatever_it_said_before(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, before: WaitingReason | None
) -> None:
    """Jobs may have no reason yet: when a worker looked at them, their node was about to take them."""
    monkeypatch.setattr("gateway.dispatch.dispatcher.NOTED", 2)
    monkeypatch.setattr("gateway.dispatch.dispatcher.EXPLAINED", 1)
    platform.heartbeat(slots=1)
    spec = CrawlSpec(project="shop", spider="offers", start_urls=("http://shop.example/",))
    lacking = submitted(platform, 3, spec=spec, waiting_reason=before)
    waiting = submitted(platform, 6, waiting_reason=before)
    assert platform.dispatch.fill() == 1
    # one run for each group of jobs with the same user and requirements, and one that finds no more
    for _ in range(3):
        platform.explain()
    found = [job for job in map(platform.jobs.get, (job.id for job in waiting)) if job.status is JobStatus.PENDING]
    assert [job.waiting_reason for job in found] == [WaitingReason.CAPACITY] * 5
    assert {platform.jobs.get(job.id).waiting_reason for job in lacking} == {WaitingReason.NO_SUCH_PROJECT}


def test_what_was_meant_for_one_machine_is_not_posted_to_the_next_of_its_name(platform: Platform) -> None:
    job = make_job()
    platform.jobs.insert(job)
    platform.heartbeat()
    # the first machine has the name
    known = {"url": platform.double.url, "max_slots": 2, "alive": (), "present": ()}
    platform.nodes.heartbeat("n1", **known, beating_since=platform.clock(), instance="first")
    assert platform.dispatch.fill() == 1
    assert json.loads(platform.double.requests[-1][1]["spec"])["instance"] == "first"
    assert platform.jobs.get(job.id).attempts["1"].instance == "first"
    last = platform.nodes.get("n1")
    assert last is not None
    platform.nodes.heartbeat(
        "n1", **known, beating_since=platform.clock(), instance="second", succeeds=last.heartbeat_at
    )
    platform.dispatch.post_again(platform.jobs.get(job.id))
    assert platform.double.posted == [f"{job.id}-1"]
