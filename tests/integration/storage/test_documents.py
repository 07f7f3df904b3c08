"""Documents of newer versions, and of no version at all, in every collection."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import warm
from bson.datetime_ms import DatetimeMS
from ended_runs import error_groups
from jobs import make_job
from killed import killed_everywhere
from pymongo.database import Database
from pymongo.errors import WriteError
from scheduled import HOUR, make_schedule
from site_records import make_site, make_target
from stores import embedded_mongo

from gateway.access.audit import AuditEntry, AuditFilter, AuditStore
from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.saved_views import ListName, ViewStore
from gateway.clock import utc_now
from gateway.contract.crawl import Egg
from gateway.contract.error_fingerprint import group as new_group
from gateway.contract.outbox import AttemptId
from gateway.contract.records import SpiderInfo
from gateway.datasets.dataset import ChangeType, DatasetRun, ItemChange, RunState, change_id
from gateway.datasets.store import ChangeStore, DatasetStore, RecordStore, RunStore
from gateway.error_groups.attempt_errors import AttemptErrorStore, FoundErrors, RunErrors
from gateway.error_groups.error_group import ErrorGroup
from gateway.error_groups.store import ErrorFilter
from gateway.errors import UnreadableError
from gateway.files.store import FileBytes, FileRecord, FilesPlace, FileStore
from gateway.items.fields import FieldCounts, FieldCountStore
from gateway.items.items import Item, ItemStore
from gateway.jobs.budgets import BudgetDay, BudgetLeft, Budgets
from gateway.jobs.job import Job, JobStatus, KeyBudget
from gateway.jobs.progress import ProgressSeries, ProgressStore
from gateway.jobs.queries import JobFilter, JobQueries, JobStatistics
from gateway.jobs.queue import JobQueue
from gateway.jobs.run_days import DayTotals, RunDay, RunDays, RunSubject, day_of
from gateway.jobs.store import JobStore
from gateway.nodes.health import BEAT, HeartbeatStore
from gateway.nodes.holds import HoldStore, Wish
from gateway.nodes.store import NodeStore
from gateway.projects.eggs import EggCopies, EggStore, SpiderStore
from gateway.projects.environment import ProjectConfig, ProjectStore, SecretBox
from gateway.requests.store import RequestChunk, RequestStore
from gateway.retention.retention import READERS, UnreadableStore
from gateway.schedules.occurrences import OccurrenceStore
from gateway.schedules.schedule import LedgerEntry, LedgerKind
from gateway.schedules.store import LedgerStore, ScheduleFilter, ScheduleStore, StaticEntryStore
from gateway.signals.alert_rules import AlertCondition, AlertGroup, AlertMeasure, AlertRule, Grouping
from gateway.signals.alerts import Alert, AlertRuleStore, AlertStore
from gateway.signals.delivery_store import Delivery, DeliveryStore
from gateway.signals.endpoints import Endpoint, EndpointStore
from gateway.signals.node_states import DownNode, NodeStateStore
from gateway.signals.signatures import WebhookSecrets
from gateway.sites.store import SiteStore, TargetStore
from gateway.stores.mongo import connect

Mongo = Database[dict[str, Any]]
#: Hours that are over.
NINE = utc_now().replace(microsecond=0) - 100 * HOUR
STORY = """
from pymongo import MongoClient
from gateway.stores.documents import Unreadable
from gateway.jobs.queue import JobDocuments
from gateway.retention.retention import UnreadableStore

def tell(uri):
    database = MongoClient(uri, tz_aware=True).get_default_database()
    jobs = database["jobs"]
    jobs.update_one({"_id": "bad"}, {"$set": {"status": 7}}, upsert=True)
    JobDocuments(database).optional(jobs.find_one({"_id": "bad"}))
    assert jobs.find_one({"_id": "bad"})["set_aside"] and UnreadableStore(database).all(9)
    jobs.delete_one({"_id": "bad"})
    UnreadableStore(database).look_again()
    assert not UnreadableStore(database).all(9)
"""


class Kind(NamedTuple):
    """Makes the document number so-and-so, and lists all there are."""

    make: Callable[[Mongo, int], object]
    list: Callable[[Mongo], list[Any]]
    #: What every document of the kind needs.
    spoilt: str
    #: Whether lists end with the newest, or with the last by name.
    ascending: bool = False


def _entry(number: int) -> LedgerEntry:
    at = NINE + number * HOUR
    return LedgerEntry(
        job_id=f"{number:032x}", schedule_id="s", kind=LedgerKind.FIRED, at=at, due=at, recorded_at=at,
        late_by_seconds=0, rev=1,
    )  # fmt: skip


def _node(database: Mongo, number: int) -> object:
    url = f"http://127.0.0.1:{6800 + number}"
    given: dict[str, Any] = {"alive": [], "present": [], "beating_since": utc_now()}
    return NodeStore(database).heartbeat(f"n{number}", url=url, max_slots=1, **given)


def _egg(database: Mongo, number: int) -> object:
    (file := Path(f"/tmp/{id(database)}.egg")).write_bytes(b"egg")
    try:
        content = EggStore(database).write(file)
    finally:
        file.unlink()
    return EggStore(database).put(Egg("p", f"v{number}"), content, None)


def _ended(database: Mongo, number: int) -> object:
    spec = make_job().spec.model_copy(update={"site": "board"})
    times = {"created_at": NINE, "finished_at": NINE + number * HOUR}
    return JobStore(database).insert(make_job(status=JobStatus.FINISHED, spec=spec, **times))


def _sum(database: Mongo, number: int) -> object:
    day = RunDay.new(make_job(), RunSubject.SPIDER, "default/seo", day_of(NINE) - number * 24 * HOUR)
    return database["run_days"].insert_one({**day.model_dump(by_alias=True), "rev": 1, "runs": {"finished": 1}})


def _sums(database: Mongo) -> list[DayTotals]:
    (found,) = RunDays(database).histories(RunSubject.SPIDER, ["default/seo"], 30, make_job().user_id).values()
    return [day for day in found.days if day.totals.ended]


def _budget_day(database: Mongo, number: int) -> object:
    name = f"k{number}/{day_of(NINE):%Y-%m-%d}"
    day = BudgetDay(id=name, key_id=f"k{number}", day=day_of(NINE), used={"pages": 1})
    return database["budget_days"].insert_one(day.model_dump(by_alias=True))


def _budgets_used(database: Mongo) -> list[BudgetLeft]:
    keys = {f"k{number}": KeyBudget(pages=9) for number in range(9)}
    return [one for one in Budgets(database, lambda: NINE).left(keys).values() if one.used["pages"]]


def _error_group(number: int) -> ErrorGroup:
    run = make_job(status=JobStatus.FINISHED, finished_at=NINE + number * HOUR)
    made = new_group("log", "ERROR", f"shop/spider.py:parse_{number}", "no price")
    return ErrorGroup.new(run, FoundErrors(**made, count=1)).model_copy(update={"rev": 1})


def _file(database: Mongo, number: int) -> object:
    facts = {"size": 1, "sha256": "0" * 64, "modified_at": NINE, "stored_at": NINE}
    record = FileRecord.of(AttemptId("j", 1), f"page{number}.html", **facts)
    return FileStore(database, FileBytes(FilesPlace("file:///nowhere"))).note(record)


def _change(database: Mongo, number: int) -> object:
    facts = {"dataset": "d", "plan": "p", "run": "j", "key_hash": f"{number:032x}", "hash": "0", "hashed_by": "1"}
    change = ItemChange(
        id=change_id("d", number, "p"), seq=number, type=ChangeType.NEW, at=NINE, first_seen=NINE, **facts
    )
    ChangeStore(database).write([change])
    return RecordStore(database).apply([change])


def _dataset_run(database: Mongo, number: int) -> object:
    times = {"started_at": NINE + number * HOUR, "ended_at": NINE + number * HOUR, "at": NINE}
    facts = {"job_id": f"{number:032x}", "dataset": "d", "scope": "s"}
    return RunStore(database).save(DatasetRun(state=RunState.PUBLISHED, **facts, **times))


BOX = SecretBox(lambda: ["k" * 32])


def _rule(number: int) -> AlertRule:
    when = AlertCondition(measure=AlertMeasure.FAILED)
    return AlertRule(id=f"{number:032x}", user_id="ada", name="failed", when=when, created_at=NINE + number * HOUR)


def _alert(db: Any, number: int) -> None:
    at = NINE + number * HOUR
    made = Alert.new(_rule(number), "ada", AlertGroup(Grouping.RULE, "failed"), at).fires(at, "failed", None, None)
    AlertStore(db).save(made.model_copy(update={"due_at": at}), None)


def _delivery(database: Mongo, number: int) -> None:
    made = {"user_id": "ada", "type": "t", "body": "{}", "url": "http://a.example/"}
    DeliveryStore(database).add([Delivery.new(f"msg_{number}", "x", NINE + number * HOUR, **made)])


def _valid(database: Mongo, user_id: str) -> list[str]:
    try:
        return WebhookSecrets(database, BOX).valid(user_id)
    except UnreadableError:
        return []


KINDS = {
    "jobs": Kind(
        lambda db, number: JobStore(db).insert(make_job(created_at=NINE + number * HOUR)),
        lambda db: JobQueries(db).page(JobFilter(), 2)[0],
        "spec.spider",
    ),
    "jobs, due": Kind(
        lambda db, number: JobStore(db).insert(make_job(created_at=NINE + number * HOUR)),
        lambda db: JobStatistics(db).waiting_since(utc_now(), 3),
        "user_id",
    ),
    "jobs, of occurrences": Kind(
        lambda db, number: JobStore(db).insert(make_job(status="scheduled", created_at=NINE + number * HOUR)),
        lambda db: OccurrenceStore(db).scheduled(utc_now(), 3),
        "user_id",
    ),
    "jobs, ended": Kind(_ended, lambda db: JobStatistics(db).ended(NINE, 3), "status"),
    "jobs, ended of sites": Kind(_ended, lambda db: JobStatistics(db).ended(NINE, 3, of_sites=True), "status"),
    "schedules": Kind(
        lambda db, number: ScheduleStore(db).insert(make_schedule(created_at=NINE + number * HOUR)),
        lambda db: ScheduleStore(db).page(ScheduleFilter(), 2)[0],
        "timing",
    ),
    "schedules, due": Kind(
        lambda db, _: ScheduleStore(db).insert(make_schedule()),
        lambda db: ScheduleStore(db).due(utc_now() + timedelta(days=999), 3).schedules,
        "rev",
    ),
    "run_days": Kind(_sum, _sums, "runs"),
    "budget_days": Kind(_budget_day, _budgets_used, "open"),
    "attempt_errors": Kind(
        lambda db, number: AttemptErrorStore(db).save(AttemptId(f"{number:032x}", 1), RunErrors([])),
        lambda db: list(AttemptErrorStore(db).of_jobs([f"{number:032x}" for number in range(9)]).values()),
        "groups",
    ),
    "error_groups": Kind(
        lambda db, number: db["error_groups"].insert_one(
            _error_group(number).model_dump(by_alias=True, exclude_none=True)
        ),
        lambda db: error_groups(db).page(ErrorFilter(), 2, None)[0],
        "first",
    ),
    "schedule_ledger": Kind(
        lambda db, number: LedgerStore(db).record([_entry(number)]),
        lambda db: LedgerStore(db).page("s", 2)[0],
        "kind",
    ),
    "schedule_ledger, latest": Kind(
        lambda db, number: LedgerStore(db).record([_entry(number)]), lambda db: LedgerStore(db).latest(2), "kind"
    ),
    "sites": Kind(
        lambda db, number: SiteStore(db).insert(make_site(name=f"board{number}")),
        lambda db: SiteStore(db).page(2),
        "search_url",
        ascending=True,
    ),
    "sites, all": Kind(
        lambda db, number: SiteStore(db).insert(make_site(name=f"board{number}")),
        lambda db: SiteStore(db).all(),
        "search_url",
    ),
    "targets": Kind(
        lambda db, number: TargetStore(db).insert(make_target(number=number)),
        lambda db: TargetStore(db).page(2),
        "site",
        ascending=True,
    ),
    "targets, of a site": Kind(
        lambda db, number: TargetStore(db).insert(make_target(number=number)),
        lambda db: TargetStore(db).of_site("board"),
        "schedule_id",
    ),
    "nodes": Kind(_node, lambda db: NodeStore(db).all(), "url"),
    "holds": Kind(
        lambda db, number: HoldStore(db).take([Wish(f"user:u{number}", "j-1")], "token"),
        lambda db: HoldStore(db).all(),
        "holders",
    ),
    "keys": Kind(lambda db, _: KeyIssue(KeyStore(db)).issue("ada", []), lambda db: KeyStore(db).all(), "sha256"),
    "audit": Kind(
        lambda db, number: AuditStore(db).insert([AuditEntry(at=NINE + number * HOUR)]),
        lambda db: AuditStore(db).page(AuditFilter(), 2)[0],
        "kind",
    ),
    "spiders": Kind(
        lambda db, number: SpiderStore(db).publish(f"n{number}", [SpiderInfo(name=f"s{number}", project="default")]),
        lambda db: SpiderStore(db).all(),
        "info",
    ),
    "spiders, of a node": Kind(
        lambda db, number: SpiderStore(db).publish(f"n{number}", [SpiderInfo(name=f"s{number}", project="default")]),
        lambda db: sorted(SpiderStore(db).nodes()) if SpiderStore(db).all() else [],
        "node",
    ),
    "datasets": Kind(
        lambda db, number: DatasetStore(db, lambda: NINE + number * HOUR).ensure("ada", f"d{number}", {}),
        lambda db: DatasetStore(db).of_user("ada", 2)[0],
        "rev",
    ),
    "dataset_records": Kind(_change, lambda db: RecordStore(db).page("d", "", 9)[0], "hash", ascending=True),
    "dataset_changes": Kind(_change, lambda db: ChangeStore(db).page("d", "d:", 9, 9)[0], "type", ascending=True),
    "dataset_runs": Kind(_dataset_run, lambda db: RunStore(db).of_dataset("d", 2)[0], "state"),
    "eggs": Kind(
        _egg, lambda db: list(EggStore(db).find(Egg("p", f"v{number}") for number in range(1, 4))), "content"
    ),
    "eggs, described": Kind(_egg, lambda db: EggStore(db).described(), "spiders"),
    "egg_copies": Kind(
        lambda db, number: EggCopies(db).agree("n1", Egg("p", f"v{number}"), "0" * 64),
        lambda db: list(EggCopies(db).of_node("n1")),
        "known",
    ),
    "projects": Kind(
        lambda db, number: ProjectStore(db).put(ProjectConfig(id=f"p{number}", rev=1)),
        lambda db: ProjectStore(db).all(),
        "env",
    ),
    "attempts": Kind(
        lambda db, number: db["attempts"].insert_one(
            {"_id": f"j:{number:06d}", "attempt": number, "node": "n1", "dispatched_at": NINE}
        ),
        lambda db: list(JobStore(db).attempts.complete(make_job(id="j", superseded=3)).attempts.values()),
        "node",
    ),
    "progress": Kind(
        lambda db, number: ProgressStore(db).save(ProgressSeries(id=f"j:{number:04d}")),
        lambda db: list(ProgressStore(db).of_job("j", 9)),
        "points",
    ),
    "items": Kind(
        lambda db, number: ItemStore(db).insert([Item("j", 1, number, {})]),
        lambda db: ItemStore(db).page("j", 1, None, 2),
        "_id",
        ascending=True,
    ),
    "item_fields": Kind(
        lambda db, number: FieldCountStore(db).keep(FieldCounts("j", number)),
        lambda db: [found for number in (1, 2, 3) if (found := FieldCountStore(db).find("j", number))],
        "items",
    ),
    "requests": Kind(
        lambda db, number: RequestStore(db).append(RequestChunk("j", 1, number, number + 1, b"{}")),
        lambda db: list(RequestStore(db).chunks("j", None)),
        "data",
        ascending=True,
    ),
    "files": Kind(
        _file, lambda db: FileStore(db, FileBytes(FilesPlace("file:///nowhere"))).page("j", None, None, 2)[0], "size"
    ),
    "heartbeats": Kind(
        lambda db, number: HeartbeatStore(db).beat(f"{BEAT}:{number}"), lambda db: HeartbeatStore(db).all(BEAT), "at"
    ),
    "saved_views": Kind(
        lambda db, number: ViewStore(db).put("ada", ListName.JOBS, f"the {number}th", {"query": "q=x"}),
        lambda db: ViewStore(db).of_user("ada"),
        "list",
        ascending=True,
    ),
    "endpoints": Kind(
        lambda db, number: EndpointStore(db).insert(
            Endpoint(id=f"{number:032x}", user_id="ada", url="http://a.example/", created_at=NINE + number * HOUR)
        ),
        lambda db: EndpointStore(db).page(None, 2)[0],
        "url",
    ),
    "endpoints, told of": Kind(
        lambda db, number: EndpointStore(db).insert(
            Endpoint(id=f"{number:032x}", user_id="ada", url="http://a.example/", created_at=NINE + number * HOUR)
        ),
        lambda db: EndpointStore(db).told_of("ada"),
        "filter.tags",
    ),
    "alert_rules": Kind(
        lambda db, number: AlertRuleStore(db).save(_rule(number)), lambda db: AlertRuleStore(db).about("ada"), "when"
    ),
    "alerts": Kind(_alert, lambda db: AlertStore(db).page("ada", 2, None)[0], "recent"),
    "alerts, due": Kind(_alert, lambda db: AlertStore(db).due(NINE + 9 * HOUR, 3), "rev", ascending=True),
    "deliveries": Kind(_delivery, lambda db: DeliveryStore(db).page([], 2, None)[0], "body"),
    "deliveries, due": Kind(_delivery, lambda db: DeliveryStore(db).due("ada", 3), "url", ascending=True),
    "node_states": Kind(
        lambda db, number: NodeStateStore(db).put(DownNode(f"n{number}", NINE)),
        lambda db: list(NodeStateStore(db).down()),
        "since",
    ),
    "webhook_secrets": Kind(
        lambda db, number: WebhookSecrets(db, BOX).renew(f"u{number}", timedelta()),
        lambda db: [valid for number in (1, 2, 3) if (valid := _valid(db, f"u{number}"))],
        "secrets",
    ),
    "static_entries": Kind(
        lambda db, number: StaticEntryStore(db).claim(f"e{number}", None, NINE),
        lambda db: list(StaticEntryStore(db).last_sent()),
        "sent_at",
    ),
}


def _spoil(documents: Any, kind: Kind) -> Any:
    """Of three documents the one that a list begins with; its id, and what it was."""
    old = (min if kind.ascending else max)(documents.find(), key=_place)
    if kind.spoilt == "_id":
        documents.delete_one({"_id": old["_id"]})
        documents.insert_one({**old, "_id": "j:0001:000000000000000x"})
        return "j:0001:000000000000000x", None
    documents.update_one({"_id": old["_id"]}, {"$set": {kind.spoilt: {"un": "known"}}})
    return old["_id"], old


def _place(document: dict[str, Any]) -> tuple[datetime, str]:
    moments = (document.get(name) for name in ("finished_at", "created_at", "due", "at", "published_at"))
    return next((moment for moment in moments if moment), NINE), str(document.get("number", document["_id"]))


@pytest.mark.parametrize("name", KINDS)
def test_one_that_cannot_be_read_is_left_out_and_noted(served: Mongo, name: str) -> None:
    collection, kind = name.partition(",")[0], KINDS[name]
    for number in (1, 2, 3):
        kind.make(served, number)
    identity, old = _spoil(served[collection], kind)
    unreadable = UnreadableStore(served)
    for _ in range(2):
        assert len(kind.list(served)) == 2
    assert [found[:2] for found in unreadable.all(9)] == [(collection, identity)]
    unreadable.look_again()
    assert unreadable.all(9)
    assert served[collection].find_one({"_id": identity})
    if old is None:
        served[collection].delete_one({"_id": identity})
    else:
        served[collection].replace_one({"_id": identity}, old)
    unreadable.look_again()
    assert not unreadable.all(9)


#: One of each shape that a field may have by mistake.
SHAPES = ({"un": "known"}, [7], "x", -7, None, True)


@pytest.mark.parametrize("name", KINDS)
def test_whatever_shape_a_field_has_all_other_documents_are_listed(served: Mongo, name: str) -> None:
    documents, kind = served[name.partition(",")[0]], KINDS[name]
    for number in (1, 2, 3):
        kind.make(served, number)
    (old, *_) = documents.find()
    for field in old.keys() - {"_id"}:
        for shape in SHAPES:
            with suppress(WriteError):
                documents.update_one({"_id": old["_id"]}, {"$set": {field: shape}})
            assert len(kind.list(served)) >= 2, (field, shape)
        documents.replace_one({"_id": old["_id"]}, old)


def test_every_collection_of_which_models_are_made_has_a_kind_here() -> None:
    assert {name.partition(",")[0] for name in KINDS} == set(READERS)


@pytest.mark.parametrize("name", ["jobs", "schedules", "schedule_ledger", "sites", "targets", "nodes", "audit"])
def test_fields_of_a_newer_version_are_ignored(served: Mongo, name: str) -> None:
    kind = KINDS[name]
    kind.make(served, 1)
    served[name].update_many({}, {"$set": {"of_tomorrow": 1}})
    if name == "jobs":
        served[name].update_many({}, {"$set": {"spec.of_tomorrow": 1, "spec.fetch": {"of_tomorrow": 1}}})
    assert len(kind.list(served)) == 1
    assert not UnreadableStore(served).all(9)


def test_a_list_of_which_most_cannot_be_read_leads_to_its_end(served: Mongo) -> None:
    good = []
    for number in range(30):
        job = make_job(created_at=NINE + number * HOUR)
        JobStore(served).insert(job)
        if number % 10:
            served["jobs"].update_one({"_id": job.id}, {"$set": {"tags": 7}})
        else:
            good.append(job.id)
    queries, seen, cursor = JobQueries(served), [], None
    while True:
        jobs, cursor, _ = queries.page(JobFilter(), 2, cursor)
        seen += [job.id for job in jobs]
        if cursor is None:
            break
    assert seen == good[::-1]


@pytest.mark.parametrize("time", [None, 5, DatetimeMS(10**17)], ids=str)
def test_a_waiting_job_whose_times_are_none_hides_no_other_from_what_is_said_of_the_queue(
    served: Mongo, time: object
) -> None:
    jobs = JobStore(served)
    bad, good = (make_job(created_at=NINE) for _ in range(2))
    for job in (bad, good):
        jobs.insert(job)
    served["jobs"].update_one({"_id": bad.id}, {"$set": {"created_at": time, "not_before": time}})
    assert JobQueries(served).oldest_waiting() == NINE
    assert JobStatistics(served).oldest_due(utc_now()) == NINE


def test_a_job_that_cannot_be_read_is_offered_to_dispatchers_once(served: Mongo) -> None:
    jobs, queue = JobStore(served), JobQueue(served)
    bad, good = make_job(created_at=NINE), make_job(created_at=NINE + HOUR)
    for job in (bad, good):
        jobs.insert(job)
    served["jobs"].update_one({"_id": bad.id}, {"$set": {"waiting_reason": "of tomorrow"}})
    assert _offered(queue, good) == [bad.id, good.id]
    with pytest.raises(UnreadableError, match=r"waiting_reason.*doctor"):
        jobs.get(bad.id)
    assert _offered(queue, good) == [good.id]
    # a newer version knows what to do with it
    served["jobs"].update_one({"_id": bad.id}, {"$unset": {"waiting_reason": ""}})
    UnreadableStore(served).look_again()
    queue.end_backoffs()
    assert _offered(queue, good) == [bad.id, good.id]


def test_a_job_without_a_place_in_its_lane_keeps_no_other_from_being_found(served: Mongo) -> None:
    bad, good = make_job(created_at=NINE), make_job()
    for job in (bad, good):
        JobStore(served).insert(job)
    served["jobs"].update_one({"_id": bad.id}, {"$set": {"rank": 0, "avoid": 7}})
    assert [heads.candidates[0].job_id for heads in JobQueue(served).fronts(lambda _: True)] == [good.id]


def _offered(queue: JobQueue, job: Job) -> list[str]:
    return [found.job_id for found in queue.best(job.partition, 9)]


def test_what_is_missing_is_not_taken_for_what_cannot_be_read(served: Mongo) -> None:
    """A target whose site is gone goes, too."""
    sites, targets = SiteStore(served), TargetStore(served)
    sites.insert(make_site())
    target = make_target()
    targets.insert(target)
    served["sites"].update_one({}, {"$set": {"number": "x"}})
    served["targets"].update_one({}, {"$set": {"number": "x"}})
    assert not sites.named(["gone"])
    for ask in (lambda: sites.named(["board"]), lambda: targets.identified([target.id])):
        with pytest.raises(UnreadableError):
            ask()


def test_no_chunk_of_an_egg_that_cannot_be_read_is_removed(served: Mongo) -> None:
    for number in (1, 2):
        _egg(served, number)
    served["eggs"].update_one({}, {"$set": {"content": "x"}})
    assert EggStore(served).sweep(utc_now() + timedelta(days=1)) == 0
    assert served["egg_chunks"].count_documents({}) == 2


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with embedded_mongo(tmp_path_factory.mktemp("mongo")) as url:
        yield url


def test_doctor_names_what_cannot_be_read(uri: str, tmp_path: Path) -> None:
    database = connect(uri)
    database["sites"].insert_one({"_id": "bad", "number": "x"})
    SiteStore(database).all()
    variables = {**os.environ, "MONGO_URI": uri, "DISCOVERYBOT_HOME": str(tmp_path), "COLUMNS": "200"}
    done = warm.run("gateway.cli.main", "doctor", env=variables)
    database.client.drop_database(database.name)
    database.client.close()
    assert (done.returncode, "sites/bad: number: Input should be" in done.stdout) == (1, True), done.stdout


def test_doctor_names_the_processes_that_an_upgrade_has_left(uri: str, tmp_path: Path) -> None:
    database = connect(uri)
    for name in ("worker:left:1", "beat:new:2"):
        HeartbeatStore(database).beat(name)
    # as 0.1.0 does
    database["heartbeats"].update_one({"_id": "worker:left:1"}, {"$unset": {"version": "", "version_at": ""}})
    variables = {**os.environ, "MONGO_URI": uri, "DISCOVERYBOT_HOME": str(tmp_path), "COLUMNS": "200"}
    done = warm.run("gateway.cli.main", "doctor", env=variables)
    database.client.drop_database(database.name)
    database.client.close()
    assert f"worker left:1 runs 0.1.0, others run {version('discoverybot')}" in done.stdout
    assert "beat new:2" not in done.stdout


def test_a_time_that_no_calendar_holds_keeps_no_other_from_being_read(uri: str) -> None:
    database = connect(uri)
    jobs = [make_job(created_at=NINE + number * HOUR) for number in range(2)]
    for job in jobs:
        JobStore(database).insert(job)
    database["jobs"].update_one({"_id": jobs[0].id}, {"$set": {"started_at": DatetimeMS(10**15)}})
    assert [job.id for job in JobQueries(database).page(JobFilter(), 9)[0]] == [jobs[1].id]
    assert [found.id for found in UnreadableStore(database).all(9)] == [jobs[0].id]
    database.client.drop_database(database.name)
    database.client.close()


def test_whoever_is_killed_may_note_it_again(uri: str, tmp_path: Path) -> None:
    points = ("unreadable.note", "jobs.set_aside", "unreadable.forget")
    killed_everywhere(tmp_path, points, STORY, uri, beside=__file__)
