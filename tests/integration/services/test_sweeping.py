"""If the sweep cannot handle one thing, only this thing is late: no other step and no other job waits for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from bson import BSON, DatetimeMS
from conftest import DEAD_AFTER, Platform
from jobs import assigned, make_job
from node_double import NodeDouble
from pymongo.errors import AutoReconnect, WriteError
from stores import free_port
from structlog.testing import capture_logs

from gateway.contract.outbox import AttemptId
from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport, SpiderInfo
from gateway.dispatch.sweeping import TAKEN_FOR
from gateway.errors import UnreadableError
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.outcome import Outcome
from gateway.nodes.health import NodeHealth
from gateway.nodes.node import node_resource
from gateway.nodes.store import Node
from gateway.projects.eggs import SpiderStore
from gateway.retention import retention
from gateway.retention.retention import UnreadableStore
from gateway.status.health import Health

#: A value that no field may have.
UNKNOWN = {"un": "known"}
#: Bytes that a document may have.
MOST = 16 << 20


def running(platform: Platform, **fields: Any) -> Job:
    job = make_job(**fields)
    platform.jobs.insert(job)
    platform.heartbeat(slots=4)
    assert platform.dispatch.fill() == 1
    return platform.jobs.get(job.id)


def node(platform: Platform, name: str) -> Node:
    found = platform.nodes.get(name)
    assert found is not None
    return found


def ends(platform: Platform, job: Job) -> None:
    """Record how the job's attempt has ended, without a decision."""
    facts = ExitReport(attempt=job.attempt, ended_at=platform.clock(), stopped_by="stall")
    assert platform.completion.record_exit(AttemptId(job.id, job.attempt), facts, 0)
    platform.woken.clear()


def over(platform: Platform, moment: datetime) -> Job:
    """A job whose backoff was over at that moment, and at which no worker has looked since."""
    job = make_job(created_at=moment - timedelta(seconds=5), not_before=moment)
    platform.jobs.insert(job)
    return job


def sweep_again(platform: Platform, times: int, step: float = 3.0) -> None:
    for _ in range(times):
        platform.sweeper.sweep()
        platform.ahead += timedelta(seconds=step)


# --- steps

Done = Callable[[], bool]


def on_its_node(platform: Platform, node: str) -> Job:
    (job,) = [make_job(max_retries=0)]
    platform.jobs.insert(job)
    assert platform.jobs.mark_running(job.id, assigned(platform.queue, job, node=node))
    assert platform.jobs.record_started(job.id, 1, platform.clock())
    return job


def everything(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> dict[str, Done]:
    """Gives every step of the next sweep something to do. Returns by the step's name whether it was done."""
    monkeypatch.setattr("gateway.dispatch.sweeping.ABSENT_HEARTBEATS", 1)
    ended = running(platform, max_retries=2)
    ends(platform, ended)
    for name in ("n2", "n3"):
        platform.heartbeat(name, slots=0)
    NodeHealth(platform.nodes, platform.clock).failed("n3", "it broke", platform.clock())
    platform.ahead += timedelta(seconds=1)
    gone, well = on_its_node(platform, "n2"), on_its_node(platform, "n3")
    blocked = make_job(exclusive="site:free", blocked=True)
    platform.jobs.insert(blocked)
    platform.take("user:nobody", f"{'a' * 32}-1")
    platform.take("user:unused", f"{'a' * 32}-1")
    platform.holds.free(f"{'a' * 32}-1", ["user:unused"])
    platform.ahead += TAKEN_FOR
    platform.heartbeat(slots=4)
    platform.heartbeat("n2", slots=0)
    platform.heartbeat("n3", slots=0, alive=(f"{well.id}-1",))

    def resources() -> set[str]:
        return {one.resource for one in platform.holds.all()}

    return {
        "decide": lambda: platform.jobs.get(ended.id).status is JobStatus.PENDING,
        "missing_attempts": lambda: "have disappeared" in (platform.jobs.get(gone.id).message or ""),
        "leaked_holds": lambda: "user:nobody" not in platform.held(),
        "failing_nodes": lambda: not node(platform, "n3").failures,
        "blocked_jobs": lambda: platform.jobs.get(blocked.id).blocked is None,
        "unused_holds": lambda: "user:unused" not in resources(),
    }


#: Every call of the steps, with the steps that cannot do without it.
CALLS = {
    "jobs.to_attend": {"decide"},
    "jobs.retry": {"decide", "missing_attempts"},
    "jobs.record_exit": {"missing_attempts"},
    "sweeps.live_attempts": {"missing_attempts", "leaked_holds", "failing_nodes"},
    "sweeps.jobs": {"missing_attempts", "failing_nodes"},
    "sweeps.with_holds": {"leaked_holds"},
    "nodes.beats": {"missing_attempts", "failing_nodes"},
    "nodes.failing": {"failing_nodes"},
    "nodes.succeeded": {"failing_nodes"},
    "holds.all": {"leaked_holds", "unused_holds"},
    "holds.free": {"decide", "missing_attempts", "leaked_holds"},
    "holds.free_of": {"blocked_jobs"},
    "holds.forget": {"unused_holds"},
    "queue.blocked_for": {"blocked_jobs"},
    "queue.unblock": {"blocked_jobs"},
}


def test_in_one_sweep_every_step_does_its_work(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    done = everything(platform, monkeypatch)
    platform.sweeper.sweep()
    assert [step for step, is_done in done.items() if not is_done()] == []


@pytest.mark.parametrize("error", [RuntimeError("nobody thought of it"), AutoReconnect("it was there")])
@pytest.mark.parametrize("call", CALLS)
def test_whatever_fails_in_one_step_the_others_do_their_work_in_the_same_sweep(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, call: str, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    done = everything(platform, monkeypatch)
    store, _, method = call.partition(".")
    with monkeypatch.context() as failing:
        failing.setattr(getattr(platform, store), method, fail)
        platform.start_beat()
        platform.sweeper.sweep()
    assert {step for step, is_done in done.items() if not is_done()} == CALLS[call]
    # and what failed is done later
    if store in {"sweeps", "holds"}:
        platform.start_beat()
    for _ in range(4):
        platform.ahead += timedelta(seconds=16)
        for name in ("n1", "n2"):
            platform.heartbeat(name, slots=4)
        platform.heartbeat("n3", slots=0, alive=tuple(node(platform, "n3").alive))
        platform.sweeper.sweep()
    left = {step for step in CALLS[call] if not done[step]()}
    assert left == set()


# --- documents that cannot be read


@pytest.mark.parametrize("collection", ["jobs", "nodes", "holds", "spiders"])
def test_whatever_field_cannot_be_read_the_sweep_does_the_rest(
    platform: Platform, redis_url: str, collection: str
) -> None:
    infos = [SpiderInfo(name="seo", project="default")]
    for name in ("n1", "n3"):
        SpiderStore(platform.database).publish(name, infos)
    spoilt = running(platform)
    documents = platform.database[collection]
    name = {"jobs": spoilt.id, "nodes": "n1", "holds": "user:ada"}.get(collection, "n1/default//seo")
    old = documents.find_one({"_id": name})
    assert old is not None
    health = Health(
        database=platform.database, redis=platform.redis, broker_url=redis_url, dead_after=DEAD_AFTER,
        clock=platform.clock,
    )  # fmt: skip
    with capture_logs() as logs:
        for field in old.keys() - {"_id"}:
            documents.update_one({"_id": name}, {"$set": {field: UNKNOWN}})
            platform.ahead += TAKEN_FOR
            platform.heartbeat("n3", alive=(f"{'b' * 32}-1",))
            other = make_job(user_id="bob")
            platform.jobs.insert(other)
            platform.reconcile()
            assert platform.dispatch.fill() == 1, field
            platform.completion.end_waiting(
                platform.jobs.get(other.id), Outcome(JobStatus.FINISHED, Reason.COMPLETED, "done")
            )
            documents.replace_one({"_id": name}, old)
        documents.update_one({"_id": name}, {"$set": dict.fromkeys(old.keys() - {"_id"}, UNKNOWN)})
        SpiderStore(platform.database).all()
        platform.sweeper.sweep()
        report = health.report()
    assert [one for one in logs if one["event"] in {"step_failed", "left_for_later"}] == []
    assert report.checks["nodes"].status == "ok"
    assert f"1 of {collection}" in report.checks["documents"].message
    health.close()


def test_a_resource_whose_document_cannot_be_read_is_full_until_it_is_mended(platform: Platform) -> None:
    for name in ("n1", "n2"):
        platform.heartbeat(name)
        platform.take(node_resource(name), f"{'f' * 32}-1")
    holds = platform.database["holds"]
    old = holds.find_one({"_id": "node:n1"})
    assert old is not None
    holds.update_one({"_id": "node:n1"}, {"$set": {"holders": 7}})
    platform.sweeper.sweep()
    jobs = [make_job() for _ in range(2)]
    for job in jobs:
        platform.jobs.insert(job)
    assert platform.dispatch.fill() == 1
    assert [platform.jobs.get(job.id).status for job in jobs].count(JobStatus.RUNNING) == 1
    assert platform.database["jobs"].distinct("node") == ["n2"]
    holds.update_one({"_id": "node:n1"}, {"$set": {"holders": old["holders"]}})
    UnreadableStore(platform.database).look_again()
    assert platform.dispatch.fill() == 1
    assert sorted(platform.database["jobs"].distinct("node")) == ["n1", "n2"]


# --- jobs


def test_a_blocked_job_whose_resource_cannot_be_read_keeps_no_other_blocked(platform: Platform) -> None:
    bad, good = (make_job(exclusive=f"site:{name}", blocked=True) for name in "ab")
    for job in (bad, good):
        platform.jobs.insert(job)
    platform.database["jobs"].update_one({"_id": bad.id}, {"$set": {"exclusive": ["site:a"]}})
    platform.sweeper.sweep()
    assert platform.jobs.get(good.id).blocked is None


def test_a_job_that_is_due_before_all_years_keeps_no_other_from_its_end(platform: Platform) -> None:
    jobs = [running(platform) for _ in range(2)]
    for job in jobs:
        ends(platform, job)
    odd = {"status": "paused", "attend_at": DatetimeMS(-(10**17))}
    platform.database["jobs"].update_one({"_id": jobs[0].id}, {"$set": odd})
    platform.sweeper.sweep()
    assert platform.jobs.get(jobs[1].id).status is JobStatus.PENDING


def test_a_waiting_job_that_an_older_version_has_filled_up_keeps_no_other_from_its_start(platform: Platform) -> None:
    job = running(platform)
    ends(platform, job)
    platform.sweeper.sweep()
    platform.end_back_off(job)
    platform.queue.end_backoffs()
    full = platform.database["jobs"].find_one({"_id": job.id})
    assert full is not None
    record, others = full["attempts"]["1"], [make_job() for _ in range(2)]
    inside = {str(number): {**record, "attempt": number, "message": "x" * 100_000} for number in range(2, 160)}
    full |= {"attempts": {"1": record, **inside}, "attempt": 159}
    full["attempts"]["2"]["message"] = "x" * (100_000 + MOST - len(BSON.encode(full)) - 20)
    platform.database["jobs"].replace_one({"_id": job.id}, full)
    for other in others:
        platform.jobs.insert(other)
    platform.dispatch.fill()
    assert {platform.jobs.get(one.id).status for one in (job, *others)} == {JobStatus.RUNNING}
    assert platform.jobs.get(job.id).attempt == 160


def test_a_settled_job_that_could_not_be_read_for_a_time_is_looked_at_once(platform: Platform) -> None:
    job = running(platform)
    ends(platform, job)
    platform.sweeper.sweep()
    jobs = platform.database["jobs"]
    jobs.update_one({"_id": job.id}, {"$set": {"status": "finished", "settled": True, "priority": UNKNOWN}})
    with pytest.raises(UnreadableError):
        platform.jobs.get(job.id)
    jobs.update_one({"_id": job.id}, {"$set": {"priority": 0}})
    UnreadableStore(platform.database).look_again()
    platform.sweeper.sweep()
    assert platform.jobs.get(job.id).attend_at is None


def test_documents_that_stay_unreadable_keep_no_repaired_one_aside(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_BATCH", 2)
    jobs = [make_job(id=f"{number:032x}") for number in range(5)]
    for job in jobs:
        platform.jobs.insert(job)
        platform.database["jobs"].update_one({"_id": job.id}, {"$set": {"priority": UNKNOWN}})
        with pytest.raises(UnreadableError):
            platform.jobs.get(job.id)
    platform.database["jobs"].update_one({"_id": jobs[-1].id}, {"$set": {"priority": 0}})
    unreadable = UnreadableStore(platform.database)
    for _ in range(4):
        unreadable.look_again()
    assert [found.id for found in unreadable.all(9)] == [job.id for job in jobs[:-1]]
    platform.heartbeat()
    platform.dispatch.fill()
    assert platform.jobs.get(jobs[-1].id).status is JobStatus.RUNNING


def test_a_job_whose_document_cannot_grow_keeps_no_other_from_its_end(platform: Platform) -> None:
    full, other, lost = running(platform), running(platform), running(platform)
    for job in (full, other):
        ends(platform, job)
    jobs = platform.database["jobs"]
    room = MOST - len(BSON.encode(jobs.find_one({"_id": full.id}))) - 40
    jobs.update_one({"_id": full.id}, {"$set": {"padding": "x" * room}})
    sweep_again(platform, 9, 5)
    assert platform.jobs.get(other.id).status is JobStatus.PENDING
    assert "has not been heard of" in (platform.jobs.get(lost.id).message or "")
    assert platform.jobs.get(full.id).status is JobStatus.RUNNING
    jobs.update_one({"_id": full.id}, {"$unset": {"padding": ""}})
    sweep_again(platform, 12)
    assert platform.jobs.get(full.id).status is JobStatus.PENDING


def test_what_cannot_even_be_put_off_hides_no_other(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs that are due first cannot be written, not even to put them off. The job behind them is handled all the
    same.
    """

    def refuse(*_: object) -> None:
        raise WriteError("the document is refused", 121)

    monkeypatch.setattr("gateway.dispatch.sweeping.DECIDED", 3)
    monkeypatch.setattr(platform.jobs, "attended", refuse)
    for _ in range(6):
        over(platform, platform.clock() - timedelta(hours=1))
    platform.database["jobs"].update_many({}, {"$set": {"status": "scheduled", "held": platform.clock()}})
    ended = running(platform)
    ends(platform, ended)
    sweep_again(platform, 3, 0.1)
    assert platform.jobs.get(ended.id).status is JobStatus.PENDING


def test_without_redis_a_cancelled_job_keeps_no_other_from_its_end(double: NodeDouble, database: Any) -> None:
    platform = Platform(f"redis://127.0.0.1:{free_port()}/0", double, database)
    cancelled, ended, lost = running(platform), running(platform), running(platform)
    platform.jobs.request_cancel(cancelled.id)
    for job in (cancelled, ended):
        ends(platform, job)
    platform.sweeper.sweep()
    assert platform.jobs.get(cancelled.id).status is JobStatus.CANCELLED
    assert platform.jobs.get(cancelled.id).settled is False
    assert platform.jobs.get(ended.id).status is JobStatus.PENDING
    sweep_again(platform, 8, 5)
    assert "has not been heard of" in (platform.jobs.get(lost.id).message or "")


def test_what_fails_while_another_server_with_an_earlier_clock_takes_over_is_not_left_alone_until_then(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise AutoReconnect("the primary has stepped down")

    blocked = make_job(exclusive="site:free", blocked=True)
    platform.jobs.insert(blocked)
    with monkeypatch.context() as failing:
        failing.setattr(platform.queue, "unblock", fail)
        platform.sweeper.sweep()
    platform.turned -= timedelta(minutes=5)
    sweep_again(platform, 3)
    assert platform.jobs.get(blocked.id).blocked is None


def test_jobs_past_their_backoff_hide_no_end(platform: Platform) -> None:
    ended = running(platform)
    waiting = [make_job(not_before=platform.clock() + timedelta(seconds=5)) for _ in range(450)]
    for job in waiting:
        platform.jobs.insert(job)
    ends(platform, ended)
    early = ended.created_at - timedelta(minutes=5)
    platform.database["jobs"].update_many({"lane": None, "status": "pending"}, {"$set": {"attend_at": early}})
    platform.sweeper.sweep()
    assert platform.jobs.get(ended.id).status is JobStatus.PENDING
