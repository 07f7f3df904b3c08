"""What tailers, workers and beats write beside the steps of a job. Each write is repeated until it succeeds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from ended_runs import ended_runs, error_groups
from jobs import assigned, make_job
from pymongo.database import Database
from pymongo.errors import PyMongoError

from gateway.access.audit import AuditEntry, AuditStore
from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import Scope
from gateway.access.saved_views import ListName, ViewStore
from gateway.clock import utc_now
from gateway.contract.crawl import Egg
from gateway.contract.error_fingerprint import group as new_group
from gateway.contract.outbox import AttemptId
from gateway.contract.records import ExitReport, FilesKept, Progress, SpiderInfo
from gateway.datasets.store import DatasetStore, RunStore
from gateway.error_groups.attempt_errors import AttemptErrorStore, FoundErrors, RunErrors
from gateway.error_groups.error_group import ErrorGroupState
from gateway.error_groups.store import ErrorFilter
from gateway.errors import BudgetSpentError, JobExistsError, NameTakenError, UnavailableError, UnreadableError
from gateway.files.store import FileBytes, FileRecord, FilesPlace, FileStore
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import Attempt, BudgetUse, Job, JobSignal, JobStatus, KeyBudget, Turn, WaitingReason
from gateway.jobs.progress import ProgressStore
from gateway.jobs.queries import JobStatistics
from gateway.jobs.queue import JobDocuments, JobQueue
from gateway.jobs.run_days import RunDays, RunSubject
from gateway.jobs.store import JobStore
from gateway.logs.store import LogChunk, LogStore
from gateway.nodes.health import HeartbeatStore
from gateway.nodes.holds import HoldStore
from gateway.nodes.store import Failure, NodeStore
from gateway.projects.eggs import EggCopies, EggStore, SpiderStore
from gateway.projects.versions import VersionStore
from gateway.requests.store import RequestChunk, RequestStore
from gateway.retention.retention import UnreadableStore
from gateway.schedules.store import LedgerStore, ScheduleStore, StaticEntryStore
from gateway.signals.alert_rules import AlertCondition, AlertGroup, AlertMeasure, AlertRule, Grouping
from gateway.signals.alerting import Alerting
from gateway.signals.alerts import Alert, AlertRuleStore, AlertStore
from gateway.signals.announcing import Announcing
from gateway.signals.delivery_store import DeliveryState, DeliveryStore, DeliveryTry
from gateway.signals.endpoints import Endpoint, EndpointStore
from gateway.signals.node_states import DownNode, NodeStateStore
from gateway.signals.present_figures import PresentFigures
from gateway.stores.document_format import Format, enter, stored_format
from gateway.stores.mongo import Document, connect

EGG = Egg("shop", "1.0")
HOUR = timedelta(hours=1)


def until_answered(step: Callable[[], Any]) -> Any:
    """The step's result, once it succeeds. Each kind of write fails once."""
    for _ in range(6):
        try:
            return step()
        except (PyMongoError, UnavailableError):
            continue
    return step()


def tell(url: str, folder: str) -> None:
    database = connect(url)
    for name in database.list_collection_names():
        database[name].delete_many({})  # what is left of an earlier telling that failed
    begins(database)
    ships(database, FileStore(database, FileBytes(FilesPlace(folder))))
    corrects(database)
    supersedes(database)
    attends(database)
    waits(database)
    dispatches(database)
    tells_webhooks(database)
    sums(database)
    groups_errors(database)
    looks_after_endpoints(database)
    looks_after_nodes(database)
    reads_what_it_cannot(database)
    remembers_who_did_what(database)
    keeps_to_budgets(database)
    database.client.close()


def begins(database: Database[Document]) -> None:
    """The start of a newer version."""
    until_answered(lambda: enter(database, Format(2, 2)))
    assert stored_format(database) == 2


def running(**fields: Any) -> Job:
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now())
    given = {"status": JobStatus.RUNNING, "attempt": 1, "attempts": {"1": attempt}}
    return make_job(**{**given, **fields})


def ships(database: Database[Document], files: FileStore) -> None:
    """An attempt's outbox, to its end."""
    jobs, job, now = JobStore(database), running(), utc_now()
    jobs.insert(job)
    attempt, facts = AttemptId(job.id, 1), {"size": 4, "sha256": "0" * 64}
    record = FileRecord.of(attempt, "page.html", **facts, modified_at=now, stored_at=now)
    report = ExitReport(attempt=1, exit_code=0, ended_at=now)
    lost = ExitReport(attempt=1, ended_at=now, lost=True)
    progress = ProgressStore(database)
    for step in (
        lambda: jobs.record_started(job.id, 1, now),
        # a tailer that got no answer reports the start again
        lambda: jobs.record_started(job.id, 1, now),
        lambda: jobs.record_progress(job.id, 1, Progress(completed_pages=1)),
        lambda: LogStore(database).append(LogChunk(job.id, 1, 0, 4, "INFO", b"log\n")),
        lambda: ItemStore(database).insert([Item(job.id, 1, end, {"number": end}) for end in (9, 18)]),
        lambda: RequestStore(database).append(RequestChunk(job.id, 1, 0, 3, b"{}\n")),
        lambda: progress.save(progress.get(attempt)),
        lambda: files.note(record),
        lambda: jobs.record_exit(job.id, 1, lost, 0),
        lambda: jobs.record_exit(job.id, 1, report, 4),
        lambda: jobs.record_files(job.id, 1, FilesKept(count=1)),
    ):
        until_answered(step)
    ended = jobs.get(job.id).attempts["1"]
    assert (ended.started_at, ended.log_end) == (now, 4)
    assert ended.exit
    assert ended.exit.files
    assert (ended.exit.lost, ended.exit.files.count) == (False, 1)
    assert [item.row for item in ItemStore(database).page(job.id, 1, None, 9)] == [{"number": 9}, {"number": 18}]
    assert database["logs"].count_documents({}) == database["requests"].count_documents({}) == 1


def corrects(database: Database[Document]) -> None:
    """An attempt that was taken for lost, and goes on while the job waits for its next one."""
    jobs, now = JobStore(database), utc_now()
    lost = ExitReport(attempt=1, ended_at=now, lost=True)
    attempt = Attempt(attempt=1, node="n1", dispatched_at=now, exit=lost, status=JobStatus.ERROR)
    job = make_job(attempt=1, attempts={"1": attempt}, failures=1)
    jobs.insert(job)
    report = ExitReport(attempt=1, exit_code=0, ended_at=now)
    until_answered(lambda: jobs.record_exit(job.id, 1, report, 4))
    corrected = jobs.get(job.id)
    assert (corrected.status, corrected.failures) == (JobStatus.RUNNING, 0)


def supersedes(database: Database[Document]) -> None:
    """An attempt that was copied once already, before its files were kept. Then the job begins anew."""
    jobs, now = JobStore(database), utc_now()
    ends = [
        ExitReport(attempt=1, exit_code=0, ended_at=now, files=files)
        for files in (FilesKept(pending=True), FilesKept(count=1))
    ]
    before, after = (Attempt(attempt=1, node="n1", dispatched_at=now, exit=end) for end in ends)
    newest = Attempt(attempt=2, node="n1", dispatched_at=now)
    job = make_job(attempt=2, prefer="n1", attempts={"1": after, "2": newest})
    jobs.insert(job)
    database["attempts"].insert_one({"_id": f"{job.id}:000001", **before.model_dump(exclude_none=True)})
    until_answered(lambda: jobs.attempts.supersede(job.id))
    whole = jobs.attempts.complete(jobs.get(job.id))
    assert whole.attempts["1"].exit == ends[1]
    until_answered(lambda: jobs.begin_anew(job.id, "n1", "its disk was full"))
    assert jobs.get(job.id).prefer is None


def attends(database: Database[Document]) -> None:
    """A job for which nothing is to be done, and one whose cancellation has to be requested again."""
    jobs, now = JobStore(database), utc_now()
    idle, asked = make_job(attend_at=now), running(cancel_requested_at=now)
    jobs.insert(idle)
    jobs.insert(asked)
    until_answered(lambda: jobs.attended(idle))
    until_answered(lambda: jobs.attend_later(asked.id, 3600))
    assert "attend_at" not in (database["jobs"].find_one({"_id": idle.id}) or {"attend_at": 1})
    assert (jobs.get(asked.id).attend_at or now) > now


def waits(database: Database[Document]) -> None:
    queue, job = JobQueue(database), make_job()
    JobStore(database).insert(job)
    until_answered(lambda: queue.note_waiting(WaitingReason.NO_NODE, [job.partition], 1000))
    assert queue.note_waiting(WaitingReason.NO_NODE, [job.partition], 1000) == []


def dispatches(database: Database[Document]) -> None:
    """A node that may have an attempt, is asked again, and does not have it."""
    jobs, queue = JobStore(database), JobQueue(database)
    job = make_job()
    jobs.insert(job)
    assigned(queue, job)
    later = utc_now() + HOUR
    until_answered(lambda: queue.ask_later(jobs.get(job.id), "no answer", later))
    until_answered(lambda: queue.take_over(jobs.get(job.id), "other"))
    until_answered(lambda: queue.release(jobs.get(job.id), not_before=later, message="refused"))
    released = jobs.get(job.id)
    assert (released.assignment, released.status) == (None, JobStatus.PENDING)


def tells_webhooks(database: Database[Document]) -> None:
    """A webhook that answers, one that does not, and an endpoint, for a job that another process has ended."""
    now = utc_now()
    jobs, deliveries, endpoints = JobStore(database), DeliveryStore(database), EndpointStore(database)
    hooks = ["http://a.example/", "http://b.example/"]
    signal = JobSignal(turn=Turn.ENDED, at=now)
    over = {"status": JobStatus.FINISHED, "live_key": None, "finished_at": now, "signals": [signal]}
    job = make_job(**over, webhooks=hooks[:1], signals_due=now - HOUR, settled=False)
    jobs.insert(job)
    endpoint = Endpoint(id=job.id, user_id=job.user_id, url="http://c.example/", created_at=now)
    until_answered(lambda: endpoints.insert(endpoint))
    until_answered(lambda: jobs.settle(job.id))
    until_answered(lambda: jobs.add_webhook(job.id, hooks[1]))
    until_answered(lambda: jobs.announce_later(job.id, -60))
    ledger, schedules = LedgerStore(database), ScheduleStore(database)
    heard = {"deliveries": deliveries, "endpoints": endpoints, "ledger": ledger, "schedules": schedules}
    announcing = Announcing(jobs=jobs, ended=ended_runs(database), alerting=look_after_alerts(database), **heard)
    until_answered(announcing.look)
    made = {one.url: one for one in deliveries.page([{"job_id": job.id}], 9, None)[0]}
    assert made.keys() == {*hooks, endpoint.url}
    for url, problem, state in zip(hooks, (None, "no answer"), ("delivered", "failed"), strict=True):
        delivery, called = made[url], DeliveryTry(at=now, seconds=1)
        claimed = until_answered(partial(deliveries.claim, delivery.id, now + HOUR)) or delivery
        until_answered(partial(jobs.note_call, job.id, url, problem))
        until_answered(partial(deliveries.note, claimed, DeliveryState(state), None, called))
    until_answered(lambda: deliveries.call_again({"job_id": job.id, "state": "failed"}, 9))
    older = make_job(**{**over, "signals": []}, webhooks=hooks, webhooks_due=now - HOUR, settled=True)
    jobs.insert(older)
    until_answered(lambda: jobs.adopt_calls(9))
    assert [signal.url for signal in jobs.get(older.id).signals] == hooks
    told = jobs.get(job.id)
    assert (told.settled, told.webhooks_delivered, told.webhook_message) == (True, hooks[:1], "no answer")
    first = made[hooks[0]]
    deliveries.add([newer := first.model_copy(update={"id": "2" * 32, "created_at": now + HOUR, "due_at": None})])
    until_answered(lambda: deliveries.supersede(newer))
    assert not deliveries.page([{"_id": first.id}], 9, None)[0]
    until_answered(lambda: deliveries.delete_of(job_ids=[job.id], limit=9))
    until_answered(lambda: deliveries.forget(now + HOUR, 9))
    assert not deliveries.page([{"job_id": job.id}], 9, None)[0]


def look_after_alerts(database: Database[Document]) -> Alerting:
    """A rule, and an alert that is raised, ends and goes."""
    rules, alerts, now = AlertRuleStore(database), AlertStore(database), utc_now()
    when = AlertCondition(measure=AlertMeasure.FAILED)
    rule = AlertRule(id="4d" * 16, user_id="eve", name="failed", when=when, created_at=now)
    until_answered(lambda: rules.save(rule))
    made = Alert.new(rule, "eve", AlertGroup(Grouping.RULE, "failed"), now).fires(now, "failed", None, None)
    # if the answer is lost, the repeated save reports a conflict: whoever saves an alert then reads it again
    until_answered(lambda: alerts.save(made, None))
    assert alerts.count_firing("eve", 9) == 1
    until_answered(lambda: alerts.look_later(made.id, now))
    read = alerts.get(made.id)
    until_answered(lambda: alerts.save(made.ends(now), read))
    assert alerts.count_firing("eve", 9) == 0
    until_answered(lambda: alerts.forget(now - HOUR, 9))
    until_answered(lambda: alerts.delete(["none"]))
    until_answered(lambda: alerts.delete_of_rule(rule.id, "eve"))
    until_answered(lambda: rules.delete(rule.id))
    assert (alerts.get(made.id), rules.get(rule.id)) == (None, None)
    figures = PresentFigures(
        statistics=JobStatistics(database), nodes=NodeStore(database), node_states=NodeStateStore(database),
        datasets=DatasetStore(database), runs=RunStore(database),
    )  # fmt: skip
    stores = {"deliveries": DeliveryStore(database), "endpoints": EndpointStore(database)}
    return Alerting(rules=rules, alerts=alerts, figures=figures, **stores)


def sums(database: Database[Document]) -> None:
    """Jobs that ended lately, some that an earlier release has ended without counting them, and a sum of long ago."""
    days, now = RunDays(database), utc_now()
    spec = make_job().spec.model_copy(update={"spider": "summed"})
    over = {"status": JobStatus.FINISHED, "live_key": None, "spec": spec}
    jobs = [make_job(**over, finished_at=now - ago * HOUR) for ago in (*[0] * 5, 1, 24 * 300)]
    for job in jobs:
        JobStore(database).insert(job)
    assert until_answered(lambda: days.add(jobs[:5])) == set()
    until_answered(lambda: ended_runs(database).adopt(9))
    (history,) = days.histories(RunSubject.SPIDER, ["default/summed"], 400).values()
    assert history.total.ended == len(jobs)
    until_answered(lambda: days.forget(now - 24 * 200 * HOUR, 9))
    (history,) = days.histories(RunSubject.SPIDER, ["default/summed"], 400).values()
    assert history.total.ended == len(jobs) - 1


def groups_errors(database: Database[Document]) -> None:
    """Four runs with the same error, and one of long ago. The error's group is resolved, and the error comes back."""
    errors, groups, now = AttemptErrorStore(database), error_groups(database), utc_now()
    made = new_group("exception", "ValueError", "shop/spider.py:parse", "no price")
    found = RunErrors([FoundErrors(**made, count=3)])
    over = {"status": JobStatus.FINISHED, "live_key": None, "user_id": "grace"}
    jobs = [make_job(**over, finished_at=now - ago * HOUR) for ago in (24 * 500, 3, 2, 1, 0)]
    for job in jobs:
        JobStore(database).insert(job)
        until_answered(lambda job=job: errors.save(AttemptId(job.id, 1), found))
    left, _ = until_answered(lambda: groups.add(jobs))
    assert not left
    ((group,), _) = groups.page(ErrorFilter(user_id="grace"), 9, None)
    assert (group.runs, group.count, JobStore(database).get(jobs[1].id).new_errors) == (4, 12, 1)
    until_answered(lambda: groups.change(group.id, ErrorGroupState.RESOLVED, "grace", None))
    later = make_job(**over, created_at=now + HOUR, finished_at=now + HOUR)
    JobStore(database).insert(later)
    errors.save(AttemptId(later.id, 1), found)
    until_answered(lambda: groups.add([later]))
    assert (groups.get(group.id).state, groups.get(group.id).runs) == (ErrorGroupState.OPEN, 5)
    until_answered(lambda: errors.delete(later.id))
    assert not errors.of_jobs([later.id])
    until_answered(lambda: groups.forget(now + 2 * HOUR, 9))
    assert groups.page(ErrorFilter(user_id="grace"), 9, None) == ([], None)
    of_other = make_job(**{**over, "user_id": "heidi"}, finished_at=now)
    JobStore(database).insert(of_other)
    errors.save(AttemptId(of_other.id, 1), found)
    groups.add([of_other])
    ((group,), _) = groups.page(ErrorFilter(user_id="heidi"), 9, None)
    groups.change(group.id, ErrorGroupState.RESOLVED, None, None)
    until_answered(lambda: groups.give_way({"user_id": "heidi"}, 9))
    assert groups.page(ErrorFilter(user_id="heidi"), 9, None) == ([], None)


def looks_after_endpoints(database: Database[Document]) -> None:
    """An endpoint that fails, is disabled, changed and deleted; then announcements, saved views and versions."""
    endpoints, now = EndpointStore(database), utc_now()
    endpoint = Endpoint(id="7d" * 16, user_id="ada", url="http://c.example/", created_at=now)
    until_answered(lambda: endpoints.insert(endpoint))
    until_answered(lambda: endpoints.note_call(endpoint.id, now, failed=True))
    failing = endpoints.get(endpoint.id) or endpoint
    until_answered(lambda: endpoints.disable(failing, now, "it is gone"))
    changed = until_answered(lambda: endpoints.change(endpoint.id, {"paused": True}, ["disabled_at"]))
    assert (changed.paused, changed.disabled_at, changed.failing_since) == (True, None, now)
    until_answered(lambda: endpoints.note_call(changed.id, now, failed=False))
    until_answered(lambda: endpoints.delete(endpoint.id))
    until_answered(lambda: LedgerStore(database).announced(["5f" * 16]))
    views = ViewStore(database)
    view = until_answered(
        lambda: views.put("ada", ListName.JOBS, "failed", {"query": "status=error", "default_at": now})
    )
    until_answered(lambda: views.undefault("ada", ListName.JOBS))
    assert [(one.id, one.default_at) for one in views.of_user("ada")] == [(view.id, None)]
    until_answered(lambda: views.delete(view.id))
    versions = VersionStore(database)
    live = until_answered(lambda: versions.change("told", lambda known: known.with_deployed("1.0")))
    assert [one.project for one in versions.untold(9) if one.project == "told"]
    until_answered(lambda: versions.told(versions.get(live.project)))
    states, down = NodeStateStore(database), DownNode("n9", now)
    until_answered(lambda: states.put(down))
    assert states.down() == {"n9": now}
    until_answered(lambda: states.remove(down))
    assert not states.down()


def looks_after_nodes(database: Database[Document]) -> None:
    """A node that fails, is tried again, and has a rival for its name."""
    nodes = NodeStore(database)

    def beat(node: str = "n1", **fields: Any) -> bool:
        said = {"url": "http://n1", "max_slots": 1, "alive": (), "present": (), "beating_since": utc_now()}
        return nodes.heartbeat(node, **{**said, **fields})

    def now() -> Any:
        found = nodes.get("n1")
        assert found is not None
        return found

    until_answered(lambda: beat(instance="first"))
    well = now()
    until_answered(lambda: nodes.failed(well, Failure("it refused", utc_now())))
    assert now().failures == 1
    until_answered(lambda: nodes.returned(now()))
    until_answered(lambda: nodes.begin_trial(now(), "a-1"))
    until_answered(lambda: nodes.succeeded("n1", utc_now() + HOUR))
    assert (now().failures, now().rest_until) == (0, None)
    until_answered(lambda: nodes.took_egg("n1", EGG))
    assert EGG in now().eggs
    with suppress(NameTakenError):
        until_answered(lambda: beat(instance="second", url="http://n2"))
    assert now().rival_url == "http://n2"
    until_answered(lambda: beat(instance="second", url="http://n2", succeeds=now().heartbeat_at))
    assert now().url == "http://n2"
    spiders = SpiderStore(database)
    for names in (("a", "b"), ("b",), ("b",)):
        infos = [SpiderInfo(project="default", name=name) for name in names]
        until_answered(lambda infos=infos: spiders.publish("n1", infos))
    assert [info.name for info in spiders.all()] == ["b"]
    until_answered(lambda: HeartbeatStore(database).beat("beat:1"))
    eggs(database)


def eggs(database: Database[Document]) -> None:
    copies, store = EggCopies(database), EggStore(database)
    database["egg_copies"].insert_one(
        {"_id": f"n1/{EGG.project}/{EGG.version}", "node": "n1", "project": EGG.project, "version": EGG.version}
        | {"known": [], "leased_until": utc_now() + HOUR}
    )
    until_answered(lambda: copies.agree("n1", EGG, "0" * 64))
    assert copies.of_egg(EGG)["n1"].has == "0" * 64
    database["egg_chunks"].insert_one({"_id": "x:0", "written_at": utc_now() - HOUR, "data": b""})
    until_answered(lambda: store.sweep(utc_now()))
    assert database["egg_chunks"].count_documents({}) == 0


def reads_what_it_cannot(database: Database[Document]) -> None:
    """A job that is set aside until its document is repaired, and an unreadable hold."""
    job = make_job()
    JobStore(database).insert(job)
    for status, left in ((7, 1), ("pending", 0)):
        database["jobs"].update_one({"_id": job.id}, {"$set": {"status": status}})
        with suppress(UnreadableError):
            until_answered(lambda: JobDocuments(database).find_one({"_id": job.id}))
        until_answered(UnreadableStore(database).look_again)
        assert database["unreadable"].count_documents({}) == left
        aside = {"_id": job.id, "set_aside": {"$exists": True}}
        assert database["jobs"].count_documents(aside) == left
    database["holds"].insert_one({"_id": "user:x", "used": "many"})
    until_answered(HoldStore(database).all)
    assert database["holds"].count_documents({"_id": "user:x", "set_aside": True}) == 1
    database["holds"].delete_one({"_id": "user:x"})
    until_answered(UnreadableStore(database).look_again)


def remembers_who_did_what(database: Database[Document]) -> None:
    audit, now = AuditStore(database), utc_now()
    old = [AuditEntry(at=now - HOUR, route=f"GET /{number}") for number in range(2)]
    until_answered(lambda: audit.insert(old))
    assert database["audit"].count_documents({}) == 2
    until_answered(lambda: audit.forget(now, 9))
    assert database["audit"].count_documents({}) == 0
    keys = KeyStore(database)
    invitation = until_answered(lambda: KeyIssue(keys).issue("root", [Scope.JOIN])).key
    # if the answer of the use is lost, the repeated use still succeeds
    assert until_answered(lambda: keys.use_up(invitation.id))
    assert not keys.use_up(invitation.id)
    sends(StaticEntryStore(database), now)


def sends(entries: StaticEntryStore, now: datetime) -> None:
    """A claim of an entry succeeds once for each time, even if its answer was lost."""
    assert until_answered(lambda: entries.claim("hourly", None, now))
    assert until_answered(lambda: entries.claim("hourly", now, now + HOUR))
    assert not entries.claim("hourly", now, now + HOUR)


def keeps_to_budgets(database: Database[Document]) -> None:
    """A crawl with a budget: two attempts, and the pages that the first one has used."""
    budget, jobs = KeyBudget(pages=9), JobStore(database)
    key = until_answered(lambda: KeyIssue(KeyStore(database)).issue("ada", [Scope.CRAWL], budget=budget)).key.id
    job = make_job(budget=BudgetUse(key_id=key))
    # if the answer is lost, the repeated insert finds the job
    with suppress(JobExistsError):
        until_answered(lambda: jobs.insert(job))
    attempt = Attempt(attempt=1, node="n1", dispatched_at=utc_now(), exit=ExitReport(attempt=1, ended_at=utc_now()))
    ran = jobs.get(job.id).model_copy(update={"attempt": 1, "attempts": {"1": attempt}})
    assert ran.budget
    until_answered(lambda: jobs.note_budget(job.id, ran.budget))
    with suppress(BudgetSpentError):
        until_answered(lambda: jobs.budgets.allowance(ran, 2))
    until_answered(lambda: jobs.budgets.close(ran))
    until_answered(lambda: jobs.budgets.close(ran))
    left = jobs.budgets.left({key: budget})[key]
    assert (left.used, left.reserved) == ({"pages": 9}, {"pages": 0})
    until_answered(lambda: jobs.budgets.forget(utc_now() + 48 * HOUR, 9))
    assert database["budget_days"].count_documents({}) == 0
