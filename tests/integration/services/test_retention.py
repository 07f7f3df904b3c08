from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from conftest import Platform
from ended_runs import ended_runs, error_groups
from jobs import make_job
from relay import MongoRelay, Refuse, Relay, failure
from s3 import BUCKET, KEY, SECRET, s3_server
from structlog.testing import capture_logs

from gateway.access.audit import AuditEntry, AuditFilter, AuditStore
from gateway.contract.outbox import AttemptId
from gateway.contract.records import SpiderInfo
from gateway.datasets.store import ChangeStore, DatasetStore, RunStore
from gateway.datasets.upkeep import DatasetUpkeep
from gateway.error_groups.attempt_errors import AttemptErrorStore
from gateway.errors import ConflictError, JobNotFoundError
from gateway.files.store import FileBytes, FileRecord, FilesPlace, FileStore
from gateway.items.items import Item, ItemStore
from gateway.jobs.budgets import Budgets
from gateway.jobs.dedupe import DedupeRelease
from gateway.jobs.job import Job, JobStatus
from gateway.jobs.progress import ProgressStore
from gateway.jobs.run_days import RunDay, RunDays, RunSubject
from gateway.jobs.store import IdempotencyKeys
from gateway.logs.store import LogChunk, LogStore
from gateway.nodes.health import BEAT, HeartbeatStore
from gateway.projects.eggs import SpiderStore
from gateway.requests.store import RequestChunk, RequestStore
from gateway.retention.retention import Deletion, Expiry, Keep, Retention, UnreadableStore
from gateway.retention.windows import Windows
from gateway.schedules.schedule import LedgerEntry, LedgerKind
from gateway.schedules.store import LedgerStore
from gateway.signals.alert_rules import BUILT_IN, AlertGroup, AlertMeasure, Grouping
from gateway.signals.alerts import Alert, AlertStore
from gateway.signals.delivery_store import Delivery, DeliveryStore
from gateway.stores.mongo import connect as connect_mongo
from gateway.stores.redis import connect, dedupe_key

KEEP = Keep(jobs=timedelta(days=90), items=timedelta(days=60), logs=timedelta(days=30))
#: How long after a run the next one tries again what that run could not remove.
AGAIN = timedelta(seconds=61)
Retain = Callable[..., Retention]


@pytest.fixture
def retain(platform: Platform, tmp_path: Path) -> Retain:
    """Makes a `Retention`: called with how long to keep what."""

    def make(keep: Keep = KEEP, **parts: Any) -> Retention:
        database = parts.pop("database", platform.database)
        logs, items, requests = LogStore(database), ItemStore(database), RequestStore(database)
        files = parts.pop("files", file_store(platform, tmp_path))
        dedupe = parts.pop("dedupe", DedupeRelease(platform.redis))
        of_jobs = {"dedupe": dedupe, "items": items, "requests": requests, "files": files, "logs": logs}
        progress, jobs = ProgressStore(database), platform.jobs
        deliveries = DeliveryStore(platform.database, platform.clock)
        of_jobs["ended"] = ended_runs(platform.database, platform.clock)
        deletion = Deletion(
            jobs=jobs, progress=progress, attempts=jobs.attempts, attempt_errors=AttemptErrorStore(database),
            deliveries=deliveries, **of_jobs,
        )  # fmt: skip
        windows = Windows(database, platform.clock)
        given = {
            "windows": windows, "expiry": Expiry(windows=windows, deletion=deletion, **of_jobs),
            "nodes": platform.nodes, "spiders": SpiderStore(platform.database),
            "sweeps": platform.sweeps, "heartbeats": HeartbeatStore(platform.database, platform.clock),
            "ledger": LedgerStore(platform.database), "audit": AuditStore(platform.database),
            "unreadable": UnreadableStore(platform.database), "deliveries": deliveries,
            "days": RunDays(platform.database, platform.clock),
            "budgets": Budgets(platform.database, platform.clock),
            "error_groups": error_groups(platform.database, platform.clock),
            "alerts": AlertStore(platform.database),
            "datasets": DatasetUpkeep(
                datasets=DatasetStore(platform.database),
                changes=ChangeStore(platform.database),
                runs=RunStore(platform.database),
            ),
            "keys": IdempotencyKeys(platform.database, platform.clock),
        }  # fmt: skip
        return Retention(keep=keep, clock=platform.clock, **{**given, **parts})

    return make


def file_store(platform: Platform, folder: Path) -> FileStore:
    return FileStore(platform.database, FileBytes(FilesPlace(f"file://{folder}/kept")))


def with_file(platform: Platform, job: Job, folder: Path) -> Path:
    """Where the file store has the job's file."""
    attempt, store, now = AttemptId(job.id, 1), file_store(platform, folder), platform.clock()
    store.keep(attempt, "a", [b"a"])
    store.note(FileRecord.of(attempt, "a", size=1, sha256="", modified_at=now, stored_at=now))
    return folder / "kept" / job.id / "1" / "a"


def ended(platform: Platform, *, days: float, settled: bool = True) -> Job:
    """A job that ended so many days ago, with a log and more items than are deleted at once."""
    job = make_job(
        status=JobStatus.FINISHED, finished_at=platform.clock() - timedelta(days=days), settled=settled, live_key=None
    )
    platform.jobs.insert(job)
    ItemStore(platform.database).insert([Item(job.id, 1, end, {"end": end}) for end in range(1, 1502)])
    LogStore(platform.database).append(LogChunk(job.id, 1, 0, 4, "INFO", b"log\n"))
    for start in (0, 3):
        RequestStore(platform.database).append(RequestChunk(job.id, 1, start, start + 3, b"{}\n"))
    return job


def left(platform: Platform, job: Job) -> tuple[bool, bool, bool]:
    """Whether the job's log, its items and the job are there. The record of its requests goes with the items."""
    items, logs = ItemStore(platform.database).count(job.id), LogStore(platform.database).end(job.id, 1)
    assert items in (0, 1501)
    assert bool(list(RequestStore(platform.database).chunks(job.id, None))) == bool(items)
    return bool(logs), bool(items), platform.database["jobs"].find_one({"_id": job.id}) is not None


def test_log_items_and_job_go_when_their_time_is_over_and_not_before(platform: Platform, retain: Retain) -> None:
    jobs = {days: ended(platform, days=days) for days in (29, 31, 61, 91)}
    retain().run()
    assert {days: left(platform, job) for days, job in jobs.items()} == {
        29: (True, True, True),
        31: (False, True, True),
        61: (False, False, True),
        91: (False, False, False),
    }
    kept = platform.jobs.get(jobs[61].id)
    assert kept.logs_removed_at is not None
    assert kept.items_removed_at is not None
    assert platform.jobs.get(jobs[29].id).logs_removed_at is None
    platform.ahead = timedelta(days=2)
    retain().run()
    assert left(platform, jobs[29]) == (False, True, True)


def test_a_job_that_goes_is_in_the_daily_sums(platform: Platform, retain: Retain) -> None:
    """Jobs that an earlier release has ended are added just before they go. A job whose sum cannot be read stays."""
    sums = platform.database["run_days"]
    jobs = [ended(platform, days=91), ended(platform, days=92)]
    retain().run()
    assert {one["runs"]["finished"] for one in sums.find({"kind": "spider"})} == {1}
    jobs += [ended(platform, days=91), ended(platform, days=500)]
    sums.update_many({}, {"$set": {"rev": "x"}})
    retain().run()
    assert [left(platform, job)[2] for job in jobs] == [False, False, True, False]
    with pytest.raises(ConflictError):
        retain()._expiry._deletion.delete(jobs[2].id)
    sums.update_many({}, {"$set": {"rev": 1}})
    retain()._expiry._deletion.delete(jobs[2].id)
    assert sums.count_documents({"kind": "spider", "user_id": "ada", "runs.finished": 2}) == 1


def test_sums_are_kept_for_longer_than_a_year(platform: Platform, retain: Retain) -> None:
    for days in (399, 401):
        at = platform.clock() - timedelta(days=days)
        day = RunDay.new(make_job(), RunSubject.SPIDER, "default/seo", at)
        platform.database["run_days"].insert_one(day.model_dump(by_alias=True))
    retain().run()
    (kept,) = platform.database["run_days"].find()
    assert platform.clock() - kept["day"] < timedelta(days=400)


def test_files_go_with_the_items(platform: Platform, retain: Retain, tmp_path: Path) -> None:
    files = {days: with_file(platform, ended(platform, days=days), tmp_path) for days in (59, 61, 91)}
    retain().run()
    assert {days: file.exists() for days, file in files.items()} == {59: True, 61: False, 91: False}


@pytest.mark.parametrize("days", [61, 91])
def test_what_has_files_stays_while_the_file_store_is_away(
    platform: Platform, retain: Retain, tmp_path: Path, days: int
) -> None:
    jobs = [ended(platform, days=days) for _ in range(2)]
    kept = [with_file(platform, job, tmp_path) for job in jobs]
    kept[0].parents[2].rename(tmp_path / "away")
    (tmp_path / "kept").write_text("no folder")
    retain().run()
    # the job stays because its files could not be removed; the items need not wait for that
    assert [left(platform, job) for job in jobs] == [(False, False, True)] * 2
    (tmp_path / "kept").unlink()
    (tmp_path / "away").rename(tmp_path / "kept")
    platform.ahead = AGAIN
    retain().run()
    assert [left(platform, job) for job in jobs] == [(False, False, days < 90)] * 2
    assert not any(file.exists() for file in kept)


def test_nothing_is_removed_of_what_is_kept_for_ever(platform: Platform, retain: Retain) -> None:
    job = ended(platform, days=10_000)
    retain(Keep(timedelta(), timedelta(), timedelta())).run()
    assert left(platform, job) == (True, True, True)


@pytest.mark.parametrize("status", [JobStatus.PENDING, JobStatus.RUNNING])
def test_a_job_that_has_not_ended_stays_however_old_it_is(
    platform: Platform, retain: Retain, status: JobStatus
) -> None:
    job = make_job(status=status, created_at=platform.clock() - timedelta(days=1000))
    platform.jobs.insert(job)
    retain().run()
    assert platform.jobs.get(job.id).status is status


def test_a_job_whose_end_has_consequences_left_stays(platform: Platform, retain: Retain) -> None:
    job = ended(platform, days=1000, settled=False)
    retain().run()
    assert left(platform, job) == (False, False, True)


def answered_with(platform: Platform, job: Job) -> str:
    """The key at which a repeated request finds this job."""
    key = dedupe_key(job.user_id, job.spec.spider, job.fingerprint)
    platform.redis.set(key, f"C|{job.id}|0")
    return key


def test_a_request_is_not_answered_with_a_job_that_was_removed(platform: Platform, retain: Retain) -> None:
    job = ended(platform, days=1000)
    key = answered_with(platform, job)
    retain(Keep(timedelta(days=90), timedelta(), timedelta())).run()
    assert platform.redis.get(key) is None
    with pytest.raises(JobNotFoundError):
        platform.jobs.get(job.id)


def test_a_request_is_not_answered_with_a_job_whose_items_were_removed(platform: Platform, retain: Retain) -> None:
    young, old = (ended(platform, days=days) for days in (31, 61))
    keys = [answered_with(platform, job) for job in (young, old)]
    retain().run()
    assert [platform.redis.exists(key) for key in keys] == [1, 0]
    assert left(platform, old) == (False, False, True)


def test_items_that_a_request_could_be_answered_with_stay_while_redis_is_away(
    platform: Platform, retain: Retain
) -> None:
    job = ended(platform, days=61)
    away = connect("redis://127.0.0.1:1/0", timeout=0.2)
    retain(dedupe=DedupeRelease(away)).run()
    assert left(platform, job) == (False, True, True)
    assert platform.jobs.get(job.id).items_removed_at is None
    platform.ahead = AGAIN
    retain().run()
    assert left(platform, job) == (False, False, True)


def test_jobs_that_cannot_be_read_are_told_of_once_and_keep_no_other(platform: Platform, retain: Retain) -> None:
    unreadable, good = [ended(platform, days=200 + number) for number in range(2)], ended(platform, days=100)
    for job in unreadable:
        platform.database["jobs"].update_one({"_id": job.id}, {"$set": {"unheard": "of"}, "$unset": {"spec": ""}})
    retention = retain()
    with capture_logs() as told:
        retention.run()
        retention.run()
    assert left(platform, good) == (False, False, False)
    assert [left(platform, job) for job in unreadable] == [(False, False, True)] * 2
    assert {entry["job_id"] for entry in told} == {job.id for job in unreadable}
    assert [entry["event"] for entry in told] == ["job_unreadable"] * 2


def test_a_run_ends_in_time_and_the_next_goes_on(platform: Platform, retain: Retain) -> None:
    jobs = [ended(platform, days=31 + number) for number in range(3)]
    seconds = iter(range(0, 10_000, 5))
    assert retain(monotonic=lambda: next(seconds)).run(), "it should go on at once"
    assert [left(platform, job)[0] for job in jobs] == [True, True, False]
    assert not retain().run()
    assert not any(left(platform, job)[0] for job in jobs)


def test_many_logs_leave_time_for_items_and_jobs(platform: Platform, retain: Retain) -> None:
    jobs = [ended(platform, days=91 + number) for number in range(4)]
    seconds = iter(range(0, 10_000, 5))
    assert retain(monotonic=lambda: next(seconds)).run()
    assert [left(platform, job) for job in jobs] == [(True, True, True)] * 3 + [(False, False, False)]


# --- several workers


def test_workers_take_different_windows_the_oldest_first(platform: Platform) -> None:
    jobs = [ended(platform, days=days) for days in (93, 92, 91)]
    workers, before = [Windows(platform.database, platform.clock) for _ in range(4)], platform.clock()
    for part in ("logs", "items", "jobs"):
        begun = [worker.begin(part, before) for worker in workers]
        found = [[one.job_id for batch in workers[0].batches(window) for one in batch] for window in begun if window]
        assert found == [[job.id] for job in jobs]
        assert begun[3] is None
        assert workers[3].take(part) is None


def test_what_a_killed_worker_has_left_is_removed_by_another_and_keeps_nothing_else(
    platform: Platform, retain: Retain
) -> None:
    jobs = [ended(platform, days=days) for days in (93, 92, 91)]
    killed = Windows(platform.database, platform.clock)
    for part in ("logs", "items", "jobs"):
        assert killed.begin(part, platform.clock())
    # the killed run was in the middle of this job
    ItemStore(platform.database).delete(jobs[0].id)
    RequestStore(platform.database).delete(jobs[0].id)
    retain().run()
    assert [left(platform, job) for job in jobs] == [(True, False, True), *[(False, False, False)] * 2]
    platform.ahead = AGAIN
    retain().run()
    assert left(platform, jobs[0]) == (False, False, False)
    assert platform.database["retention"].count_documents({"part": {"$exists": True}}) == 0


def test_two_workers_at_once_remove_everything(platform: Platform, retain: Retain) -> None:
    jobs = [ended(platform, days=91 + number) for number in range(6)]
    together = Barrier(2)

    def run(retention: Retention) -> None:
        together.wait(30)
        retention.run()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, (retain(), retain())))
    assert [left(platform, job) for job in jobs] == [(False, False, False)] * 6


def test_a_log_that_cannot_be_removed_keeps_no_other(platform: Platform, retain: Retain) -> None:
    jobs = [ended(platform, days=91) for _ in range(3)]
    stuck = jobs[1].id

    def refuse(command: dict[str, Any]) -> Refuse | None:
        deletes = next(iter(command)) == "delete" and command["delete"] == "logs"
        return failure(2) if deletes and stuck in str(command["deletes"]) else None

    port = platform.database.client.address[1]  # type: ignore[index]
    with MongoRelay(port, refuse).running() as relay:
        database = connect_mongo(f"mongodb://127.0.0.1:{relay.port}/{platform.database.name}")
        with capture_logs() as told:
            retain(database=database).run()
        database.client.close()
    assert [left(platform, job)[0] for job in jobs] == [False, True, False]
    assert [left(platform, job)[2] for job in jobs] == [False, True, False]
    assert {entry["job_id"] for entry in told if entry["event"] == "not_removed"} == {stuck}
    platform.ahead = AGAIN
    retain().run()
    assert left(platform, jobs[1]) == (False, False, False)


def test_a_slow_file_store_keeps_only_what_has_files(
    platform: Platform, retain: Retain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.retention.retention.RUN_SECONDS", 3.0)
    now = platform.clock()
    jobs = [make_job(status="finished", finished_at=now - timedelta(days=91), settled=True, live_key=None)
            for _ in range(24)]  # fmt: skip
    for job in jobs:
        platform.jobs.insert(job)
    with s3_server(tmp_path) as s3, Relay.before(s3).running() as relay:
        place = FilesPlace(f"s3://{BUCKET}/files", relay.url(s3), "us-east-1", KEY, SECRET)
        files = FileStore(platform.database, FileBytes(place))
        for job in jobs[12:]:
            attempt = AttemptId(job.id, 1)
            files.keep(attempt, "a", [b"a"])
            files.note(FileRecord.of(attempt, "a", size=1, sha256="", modified_at=now, stored_at=now))
        relay.delay = 0.5
        assert retain(files=files).run(), "there should be more to do"
        there = {one["_id"] for one in platform.database["jobs"].find()}
        assert there
        assert there < {job.id for job in jobs[12:]}
        relay.delay, platform.ahead = 0.0, AGAIN
        monkeypatch.undo()
        retain(files=files).run()
    assert not platform.database["jobs"].count_documents({})
    assert not platform.database["files"].count_documents({})


def test_jobs_that_ended_at_the_same_moment_do_not_hold_up_the_others(platform: Platform, retain: Retain) -> None:
    jobs = [ended(platform, days=31) for _ in range(3)]
    moment = platform.clock() - timedelta(days=31)
    platform.database["jobs"].update_many({}, {"$set": {"finished_at": moment}})
    for _ in range(2):
        retain().run()
    assert not any(left(platform, job)[0] for job in jobs)


def test_the_dead_are_forgotten_with_their_spiders_and_the_living_are_not(platform: Platform, retain: Retain) -> None:
    spiders = SpiderStore(platform.database)
    for name in ("gone", "busy", "there"):
        platform.heartbeat(name)
        spiders.publish(name, [SpiderInfo(project="default", name=f"of-{name}")])
    assert platform.take("node:busy", f"{'a' * 32}-1")
    platform.ahead = timedelta(days=8)
    platform.heartbeat("there")
    retain().run()
    assert [node.id for node in platform.nodes.all()] == ["busy", "there"]
    assert [info.name for info in spiders.all()] == ["of-busy", "of-there"]


def test_a_node_that_comes_up_meanwhile_keeps_its_spiders(platform: Platform, retain: Retain) -> None:
    class Meanwhile(SpiderStore):
        def nodes(self) -> set[str]:
            platform.heartbeat("new")
            self.publish("new", [SpiderInfo(project="default", name="seo")])
            return super().nodes()

    spiders = Meanwhile(platform.database)
    retain(spiders=spiders).run()
    assert [info.name for info in spiders.all()] == ["seo"]


def test_processes_that_are_long_gone_are_forgotten(platform: Platform, retain: Retain) -> None:
    heartbeats = HeartbeatStore(platform.database, platform.clock)
    heartbeats.beat(f"{BEAT}:old")
    platform.ahead = timedelta(days=2)
    heartbeats.beat(f"{BEAT}:new")
    retain().run()
    assert [found["_id"] for found in platform.database["heartbeats"].find()] == [f"{BEAT}:new"]


def slots_recorded(platform: Platform, *days: float) -> None:
    moments = [platform.clock() - timedelta(days=ago) for ago in days]
    platform.database["schedule_ledger"].insert_many(
        [
            LedgerEntry(
                job_id=f"{number:032x}", schedule_id="5" * 32, kind=LedgerKind.FIRED, at=moment, due=moment,
                recorded_at=moment, late_by_seconds=0, rev=1,
            ).model_dump(by_alias=True, exclude_none=True)
            for number, moment in enumerate(moments)
        ]
    )  # fmt: skip


def test_the_ledger_goes_when_the_jobs_go(
    platform: Platform, retain: Retain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.retention.retention.LEDGER_BATCH", 2)
    slots_recorded(platform, 89, 91, 92, 93, 94, 95)
    retain(KEEP._replace(jobs=timedelta())).run()
    assert len(LedgerStore(platform.database).latest(10)) == 6
    retain().run()
    assert [entry.job_id for entry in LedgerStore(platform.database).latest(10)] == [f"{0:032x}"]


def test_the_audit_trail_goes_by_its_own_time(platform: Platform, retain: Retain) -> None:
    audit = AuditStore(platform.database)
    audit.insert([AuditEntry(at=platform.clock() - timedelta(days=days)) for days in (1, 364, 366)])
    retain(KEEP).run()
    assert len(audit.page(AuditFilter(), 10)[0]) == 3
    retain(KEEP._replace(audit=timedelta(days=365))).run()
    assert len(audit.page(AuditFilter(), 10)[0]) == 2


def test_deliveries_go_by_their_own_time_and_with_their_job(platform: Platform, retain: Retain) -> None:
    facts = {"user_id": "ada", "type": "job.failed", "body": "{}", "url": "http://a.example/"}
    ages = [platform.clock() - timedelta(days=days) for days in (1, 29, 31)]
    made = [Delivery.new(f"msg_{at}", "x", at, job_id=f"{days:032x}", **facts) for days, at in enumerate(ages)]
    platform.deliveries.add(made)
    retain(KEEP).run()
    assert len(platform.deliveries.page([], 10, None)[0]) == 3
    retention = retain(KEEP._replace(deliveries=timedelta(days=30)))
    retention.run()
    assert [one.id for one in platform.deliveries.page([], 10, None)[0]] == [made[0].id, made[1].id]
    retention._expiry._deletion.delete_all([f"{1:032x}"])
    assert [one.id for one in platform.deliveries.page([], 10, None)[0]] == [made[0].id]


def test_alerts_that_are_over_go_when_what_was_told_of_them_goes(platform: Platform, retain: Retain) -> None:
    alerts = AlertStore(platform.database)
    now = platform.clock()
    for days, more in (
        (29, {}),
        (31, {}),
        (32, {"firing": True}),
        (33, {"due_at": now}),
        (34, {"firing": True, "measure": AlertMeasure.NODE_DOWN}),
    ):
        at = now - timedelta(days=days)
        made = Alert.new(BUILT_IN["crawl-failed"], "ada", AlertGroup(Grouping.SPIDER, f"shop/{days}"), at)
        alerts.save(made.model_copy(update={"measure": AlertMeasure.IDLE, "since": at, **more}), None)
    failed = Alert.new(BUILT_IN["crawl-failed"], "ada", AlertGroup(Grouping.SPIDER, "of-runs"), at)
    alerts.save(failed.model_copy(update={"firing": True, "since": at}), None)
    retain(KEEP._replace(deliveries=timedelta(days=30))).run()
    kept = [one.group for one in alerts.page(None, 9, None)[0]]
    assert kept == ["shop/29", "shop/32", "shop/33", "shop/34"]


def test_what_a_node_has_published_stays_though_the_node_cannot_be_read(platform: Platform, retain: Retain) -> None:
    platform.heartbeat()
    spiders = SpiderStore(platform.database)
    spiders.publish("n1", [SpiderInfo(project="default", name="seo")])
    platform.database["nodes"].update_one({"_id": "n1"}, {"$set": {"max_slots": "x"}})
    retain().run()
    assert spiders.nodes() == {"n1"}
