"""Alerts: for each incident one message at its begin and one at its end, to those concerned, and to nobody twice."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from conftest import Platform
from ended_runs import found_error
from jobs import make_job
from pymongo.errors import AutoReconnect, ExecutionTimeout, WriteError
from scheduled import make_schedule

from gateway.contract.outbox import AttemptId
from gateway.contract.records import Progress
from gateway.datasets.dataset import DatasetRun, RunState
from gateway.datasets.store import DatasetStore, RunStore
from gateway.error_groups.attempt_errors import AttemptErrorStore, RunErrors
from gateway.jobs.job import Attempt, JobStatus
from gateway.jobs.outcome import Outcome, Reason
from gateway.schedules.schedule import LedgerEntry, LedgerKind
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.signals.alert_rules import AlertCondition, AlertRule, QuietHours
from gateway.signals.alerting import Alerting
from gateway.signals.alerts import Alert, AlertRuleStore, AlertStore
from gateway.signals.delivery_store import Delivery, DeliveryStore
from gateway.signals.endpoints import Endpoint, EndpointFilter
from gateway.signals.events import Subject
from gateway.signals.node_states import DownNode, NodeStateStore
from gateway.signals.present_figures import PresentFigures
from gateway.signals.run_figures import ComparedRun
from gateway.web.schemas.event import BODIES

DONE = Outcome(JobStatus.FINISHED, Reason.COMPLETED, "3 pages")
BROKEN = Outcome(JobStatus.ERROR, Reason.PROCESS_CRASHED, "it crashed")
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


class Alerted:
    """One user's crawls, rules and endpoint, and a clock that can be moved on."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.endpoint = self.listen("alert.firing", "alert.still_firing", "alert.resolved")

    def listen(self, *events: str, user_id: str = "ada", **fields: Any) -> Endpoint:
        made, _ = self.platform.endpoints.make(user_id, "http://a.example/", events=events, **fields)
        return made

    def rule(self, user_id: str = "ada", **fields: Any) -> AlertRule:
        when = AlertCondition.model_validate(fields.pop("when"))
        number = self.platform.database["alert_rules"].count_documents({})
        given = {"name": f"rule {number}", "created_at": self.platform.clock(), **fields}
        rule = AlertRule(id=f"{number:032x}", user_id=user_id, when=when, **given)
        AlertRuleStore(self.platform.database).save(rule)
        return rule

    def only(self, **fields: Any) -> AlertRule:
        """A new rule that is the only active one: the built-in rules are paused."""
        for builtin in ("crawl-failed", "schedule-failing"):
            self.rule(when={"measure": "failed"}, builtin=builtin, paused=True)
        return self.rule(**fields)

    def ends(self, outcome: Outcome = DONE, *, items: int = 100, look: bool = True, **fields: Any) -> str:
        platform = self.platform
        attempt = Attempt(attempt=1, node="n1", dispatched_at=platform.clock())
        given = {
            "status": JobStatus.RUNNING, "attempt": 1, "attempts": {"1": attempt}, "user_id": "ada",
            "project": "shop", "spider": "prices", "started_at": platform.clock() - MINUTE,
            "progress": Progress(items_count=items, completed_pages=items), **fields,
        }  # fmt: skip
        platform.jobs.insert(job := make_job(**given))
        platform.jobs.finish(job, outcome)
        if look:
            self.look()
        return job.id

    def look(self, passed: timedelta = timedelta()) -> None:
        """Let time pass, then announce and look at alerts, as workers do again and again."""
        self.platform.ahead += passed
        self.platform.announcing().look()
        self.alerting.look()

    @property
    def alerting(self) -> Alerting:
        return self.platform.alerting()

    def told(self, endpoint: Endpoint | None = None) -> list[tuple[str, str]]:
        """The type and the message of each call, the oldest first."""
        return [(kind.removeprefix("alert."), data["message"]) for kind, data in self.calls(endpoint)]

    def calls(self, endpoint: Endpoint | None = None) -> list[tuple[str, dict[str, Any]]]:
        wanted = [{"endpoint_id": (endpoint or self.endpoint).id}]
        made, _ = self.platform.deliveries.page(wanted, 1000, None)
        return [(one.type, json.loads(one.body)["data"]) for one in made[::-1]]

    def alerts(self) -> list[Alert]:
        return AlertStore(self.platform.database).page(None, 200, None)[0]


@pytest.fixture
def watched(platform: Platform) -> Alerted:
    return Alerted(platform)


def test_without_any_rule_of_ones_own_a_crawl_that_failed_is_told_and_when_it_is_well_again(watched: Alerted) -> None:
    watched.ends()
    failed = watched.ends(BROKEN)
    watched.ends(BROKEN)
    watched.look(HOUR)
    watched.ends()
    watched.look()
    assert watched.told() == [("firing", "failed: it crashed"), ("resolved", "failed: it crashed")]
    (_, firing), (_, resolved) = watched.calls()
    assert firing["page_url"] == f"https://crawls.example.com/console/jobs/{failed}"
    assert (firing["group"], firing["group_by"], firing["rule_id"]) == ("shop/prices", "spider", "crawl-failed")
    assert resolved["duration_seconds"] >= 3600
    for kind, data in watched.calls():
        body = {"type": kind, "timestamp": "2027-06-01T09:00:00.000Z", "data": data}
        assert BODIES[kind].model_validate(body).model_dump(mode="json", exclude_unset=True)["data"] == data  # type: ignore[index]


def test_500_failing_jobs_of_one_site_are_one_message(watched: Alerted) -> None:
    watched.only(when={"measure": "failed"}, group_by="site")
    for number in range(500):
        spec = make_job(spider=f"s{number % 7}").spec.model_copy(update={"site": "shop.example"})
        watched.ends(BROKEN, look=False, spec=spec)
    while watched.platform.announcing().look():
        pass
    watched.look()
    assert watched.told() == [("firing", "failed: it crashed")]
    assert watched.calls()[0][1]["group"] == "shop.example"


def test_what_is_repeated_after_a_crash_is_told_once(watched: Alerted) -> None:
    watched.ends(BROKEN, look=False)
    jobs = watched.platform.jobs
    (job,) = jobs.to_announce("", 9)
    for _ in range(2):
        watched.platform.announcing().look()
        watched.alerting.look()
        watched.platform.database["jobs"].update_one({"_id": job.id}, {"$set": job.to_document()})
        watched.platform.database["alerts"].update_one({}, {"$set": {"told": False, "due_at": job.created_at}})
    watched.look()
    assert watched.told() == [("firing", "failed: it crashed")]
    (alert,) = watched.alerts()
    assert [run.job_id for run in alert.recent] == [job.id]


class Interrupted(DeliveryStore):
    """Calls `then` once, right after the calls of an alert were stored."""

    then: Callable[[], object] | None = None

    def add(self, made: Sequence[Delivery]) -> None:
        super().add(made)
        if (then := self.then) is not None and any(one.type == "alert.firing" for one in made):
            self.then = None
            then()


@pytest.mark.parametrize("is_killed", [False, True], ids=["another is faster", "its worker is killed"])
def test_who_was_told_of_an_incident_is_told_of_its_end_whatever_comes_between(
    watched: Alerted, *, is_killed: bool
) -> None:
    deliveries = watched.platform.deliveries = Interrupted(watched.platform.database, watched.platform.clock)

    def between() -> None:
        watched.ends(DONE, look=False)
        watched.platform.announcing().look()
        if is_killed:
            raise AutoReconnect("the worker goes no further")

    watched.ends(BROKEN, look=False)
    watched.platform.announcing().look()
    deliveries.then = between
    with suppress(AutoReconnect):
        watched.alerting.look()
    for _ in range(3):
        watched.look(HOUR)
    assert [kind for kind, _ in watched.told()] == ["firing", "resolved"]


def test_an_alert_that_cannot_be_read_keeps_no_other_from_being_told(watched: Alerted) -> None:
    watched.only(when={"measure": "queue", "above": 1})
    watched.rule(when={"measure": "failed"})
    for _ in range(2):
        watched.platform.jobs.insert(make_job(user_id="ada"))
    watched.look()
    watched.platform.database["alerts"].update_one({"measure": "queue"}, {"$set": {"past": "unreadable"}})
    watched.look(MINUTE)
    watched.ends(BROKEN)
    assert [message for _, message in watched.told()] == ["2 jobs wait, more than 1", "failed: it crashed"]


def test_an_alert_that_cannot_be_written_keeps_no_other_from_being_told(
    watched: Alerted, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = AlertStore.save

    def refuse_bobs(store: AlertStore, alert: Alert, read: Alert | None) -> Alert | None:
        if alert.user_id == "bob" and alert.telling:
            raise WriteError("it is too large", 17280)
        return save(store, alert, read)

    monkeypatch.setattr(AlertStore, "save", refuse_bobs)
    for user in ("bob", "ada"):
        watched.rule(user, when={"measure": "failed"})
        watched.ends(BROKEN, look=False, user_id=user)
        watched.platform.announcing().look()
    watched.look()
    assert ("firing", "failed: it crashed") in watched.told()


def test_a_rule_that_takes_the_database_too_long_keeps_no_alert_from_being_told(
    watched: Alerted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(*_: object) -> None:
        raise ExecutionTimeout("it takes too long", 50)

    watched.rule(when={"measure": "queue", "above": 1})
    watched.only(when={"measure": "failed"})
    watched.ends(BROKEN, look=False)
    watched.platform.announcing().look()
    monkeypatch.setattr(PresentFigures, "beyond", too_slow)
    with pytest.raises(ExecutionTimeout):
        watched.look()
    assert watched.told() == [("firing", "failed: it crashed")]


def test_the_alerts_of_a_rule_that_only_a_newer_version_reads_stay_for_it(watched: Alerted) -> None:
    rule = watched.only(when={"measure": "failed"})
    watched.ends(BROKEN, look=False)
    watched.platform.announcing().look()
    rules = watched.platform.database["alert_rules"]
    rules.update_one({"_id": rule.id}, {"$set": {"when.measure": "luck"}})
    watched.look()
    assert watched.told() == []
    rules.update_one({"_id": rule.id}, {"$set": {"when.measure": "failed"}})
    watched.look(2 * MINUTE)
    assert watched.told() == [("firing", "failed: it crashed")]


def test_alerts_that_are_silenced_keep_no_others_from_being_told(
    watched: Alerted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.signals.alerting._ALERTS", 1)
    rule = watched.only(when={"measure": "failed"}, remind_seconds=300)
    watched.ends(BROKEN)
    silenced = rule.model_copy(update={"silenced_until": watched.platform.clock() + 9 * HOUR})
    AlertRuleStore(watched.platform.database).save(silenced)
    for _ in range(2):
        watched.look(HOUR)
    watched.ends(BROKEN, user_id="bob")
    watched.rule("bob", when={"measure": "failed"})
    bob = watched.listen("alert.firing", user_id="bob")
    watched.ends(BROKEN, user_id="bob", spider="other")
    for _ in range(4):
        watched.look()
    assert watched.told(bob)
    watched.look(8 * HOUR)
    assert [kind for kind, _ in watched.told()] == ["firing", "still_firing"]


def test_a_rule_that_was_paused_while_a_run_was_noted_has_no_alert(watched: Alerted) -> None:
    rule = watched.only(when={"measure": "failed"})
    watched.ends(BROKEN, look=False)
    watched.platform.announcing().look()
    AlertRuleStore(watched.platform.database).save(rule.model_copy(update={"paused": True}))
    watched.look()
    assert watched.platform.database["alerts"].count_documents({}) == 0


def test_another_name_of_a_rule_is_no_other_alert(watched: Alerted) -> None:
    rule = watched.only(when={"measure": "failed"}, group_by="rule", name="before")
    watched.ends(BROKEN)
    AlertRuleStore(watched.platform.database).save(rule.model_copy(update={"name": "after"}))
    watched.ends(BROKEN)
    watched.ends(DONE)
    assert [(kind, data["group"]) for kind, data in watched.calls()] == [
        ("alert.firing", "before"),
        ("alert.resolved", "after"),
    ]


def test_an_error_that_no_run_has_had_before_is_told_also_of_a_run_that_failed(watched: Alerted) -> None:
    rule = watched.only(when={"measure": "new_errors", "above": 0})
    errors = AttemptErrorStore(watched.platform.database)
    for outcome, texts in ((DONE, ()), (BROKEN, ("no price", "no stock")), (DONE, ("no price",)), (DONE, ("gone",))):
        job_id = watched.ends(outcome, look=False)
        if texts:
            errors.save(AttemptId(job_id, 1), RunErrors([found_error(text) for text in texts]))
        watched.look(MINUTE)
    assert watched.told() == [
        ("firing", "new kinds of error: 2, more than 0"),
        ("resolved", "new kinds of error: 2, more than 0"),
        ("firing", "new kinds of error: 1, more than 0"),
    ]
    since = watched.platform.clock() - HOUR
    read, _ = PresentFigures.history(watched.alerting._figures, rule, since)
    assert sorted(run.new_errors for _, run in read) == [0, 0, 1, 2]


def test_some_runs_in_a_row_are_one_alert_that_a_single_good_one_ends(watched: Alerted) -> None:
    watched.only(when={"measure": "failed", "runs": 3}, group_by="schedule")
    schedule = "5" * 32
    for outcome in (BROKEN, BROKEN, DONE, BROKEN, BROKEN):
        watched.ends(outcome, schedule_id=schedule)
    assert watched.told() == []
    watched.ends(BROKEN, schedule_id=schedule)
    watched.ends(BROKEN)
    watched.ends(DONE, schedule_id=schedule)
    said = "failed 3 times in a row: it crashed"
    assert watched.told() == [("firing", said), ("resolved", said)]
    assert watched.calls()[0][1]["name"] == "Schedule 55555555 of shop/prices"


def test_far_fewer_items_than_usual_stay_unusual_however_long_it_lasts(watched: Alerted) -> None:
    watched.only(when={"measure": "items", "below": 0.5, "of_usual": 5})
    for items in (200, 210, 190, 205, 195):
        watched.ends(items=items)
    for _ in range(30):
        watched.ends(items=40)
        watched.look(HOUR)
    watched.ends(BROKEN, items=0)
    assert watched.told() == [("firing", "40 items, usually 200")]
    watched.ends(items=180)
    assert watched.told()[1:] == [("resolved", "40 items, usually 200")]


def test_quiet_hours_tell_in_the_morning_what_is_still_so(watched: Alerted) -> None:
    now = watched.platform.clock()
    quiet = QuietHours(since=f"{now - HOUR:%H:%M}", until=f"{now + 2 * HOUR:%H:%M}")
    watched.only(when={"measure": "failed"}, quiet=quiet)
    watched.ends(BROKEN, spider="over-soon")
    watched.ends(DONE, spider="over-soon")
    watched.ends(BROKEN, spider="lasting")
    watched.look(HOUR)
    assert watched.told() == []
    watched.look(HOUR + MINUTE)
    assert [data["spider"] for _, data in watched.calls()] == ["lasting"]


def test_a_silence_ends_by_itself(watched: Alerted) -> None:
    watched.only(when={"measure": "failed"}, silenced_until=watched.platform.clock() + HOUR)
    watched.ends(BROKEN)
    watched.look(HOUR - MINUTE)
    assert watched.told() == []
    watched.look(2 * MINUTE)
    assert watched.told() == [("firing", "failed: it crashed")]


def test_who_was_told_is_reminded_while_it_lasts(watched: Alerted) -> None:
    watched.only(when={"measure": "failed"}, remind_seconds=3600)
    watched.ends(BROKEN)
    for _ in range(9):
        watched.look(20 * MINUTE)
    watched.ends(DONE)
    watched.look(3 * HOUR)
    assert [kind for kind, _ in watched.told()] == ["firing", *["still_firing"] * 3, "resolved"]


def test_where_nothing_has_ended_well_for_too_long(watched: Alerted) -> None:
    watched.only(when={"measure": "idle", "above": 26 * 3600})
    watched.ends(DONE)
    watched.look(25 * HOUR)
    watched.ends(BROKEN)
    assert watched.told() == []
    watched.look(HOUR + MINUTE)
    assert watched.told() == [("firing", "nothing has ended well for 1 d 2 h")]
    watched.ends(BROKEN)
    watched.ends(DONE)
    assert [kind for kind, _ in watched.told()] == ["firing", "resolved"]
    watched.look(27 * HOUR)
    assert [kind for kind, _ in watched.told()] == ["firing", "resolved", "firing"]


def test_however_many_runs_have_failed_since_the_last_good_one(watched: Alerted) -> None:
    watched.only(when={"measure": "idle", "above": 3600})
    watched.ends(DONE)
    for _ in range(55):
        watched.look(MINUTE)
        watched.ends(BROKEN, look=False)
    watched.look()
    assert watched.told() == []
    watched.look(6 * MINUTE)
    assert watched.told() == [("firing", "nothing has ended well for 1 h 1 min")]


def test_where_not_even_the_first_run_has_ended_well(watched: Alerted) -> None:
    watched.only(when={"measure": "idle", "above": 3600})
    watched.ends(BROKEN)
    watched.look(HOUR + MINUTE)
    assert watched.told() == [("firing", "nothing has ended well for 1 h 1 min")]


def test_a_good_run_that_was_noted_before_the_bad_one_ends_it_too(watched: Alerted) -> None:
    """As if one worker read the bad run alone and was slower than another one, which read both runs."""
    subject = Subject("ada", "shop", "prices")
    now = watched.platform.clock()
    bad = (subject, ComparedRun(job_id="0" * 32, at=now, status="error"))
    good = (subject, ComparedRun(job_id="1" * 32, at=now + MINUTE, status="finished"))
    watched.alerting.noted("ada", [bad, good])
    watched.alerting.noted("ada", [bad])
    watched.look(MINUTE)
    assert watched.told() == []


def test_jobs_that_wait_for_too_long_and_too_many_of_them(watched: Alerted) -> None:
    watched.only(when={"measure": "waiting", "above": 600}, filter=EndpointFilter(projects=("shop",)))
    watched.rule(when={"measure": "queue", "above": 2, "for_seconds": 60})
    jobs = [make_job(project="shop", created_at=watched.platform.clock()) for _ in range(3)]
    for job in jobs:
        watched.platform.jobs.insert(job)
    watched.look()
    watched.look(2 * MINUTE)
    assert watched.told() == [("firing", "3 jobs wait, more than 2")]
    watched.look(9 * MINUTE)
    ((_, message),) = watched.told()[1:]
    # not equal, because the test itself takes some seconds
    assert message.startswith("a job that could start has waited for 11 min")
    watched.platform.database["jobs"].delete_many({})
    watched.look(MINUTE)
    watched.look()
    assert [kind for kind, _ in watched.told()] == ["firing", "firing", "resolved", "resolved"]


def test_nodes_that_are_down_are_told_to_whoever_is_told_of_all_users(watched: Alerted) -> None:
    operator = watched.listen("alert.firing", "alert.resolved", user_id="root", of_all_users=True)
    down = DownNode("n7", watched.platform.clock() - MINUTE)
    states = NodeStateStore(watched.platform.database)
    states.put(down)
    watched.look()
    watched.look(MINUTE)
    states.remove(down)
    watched.look(MINUTE)
    watched.look()
    said = "it gives no sign of life"
    assert watched.told(operator) == [("firing", said), ("resolved", said)]
    assert watched.told() == []


def test_many_rules_about_the_present_let_others_have_their_turn(
    watched: Alerted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.signals.alerting._SECONDS", 0)
    watched.only(when={"measure": "queue", "above": 1}, name="first")
    for _ in range(3):
        watched.rule(when={"measure": "queue", "above": 1})
    for _ in range(2):
        watched.platform.jobs.insert(make_job(user_id="ada"))
    alerting, seen = watched.alerting, []
    for _ in range(8):
        alerting.look()
        seen.append(len(watched.told()))
    assert (seen[-1], len(set(seen))) == (4, 5)


def test_one_users_many_rules_let_others_be_announced(watched: Alerted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.signals.announcing._TURN", 0)
    for user in ("ada", "bob"):
        for _ in range(60):
            watched.ends(BROKEN, look=False, user_id=user)
    assert watched.platform.announcing().look()
    assert Counter(job.user_id for job in watched.platform.jobs.to_announce("", 99)) == {"ada": 35, "bob": 35}


def test_a_held_run_is_told_until_somebody_decides(watched: Alerted) -> None:
    watched.only(when={"measure": "held"})
    platform = watched.platform
    dataset = DatasetStore(platform.database, platform.clock).ensure("ada", "prices", {})
    runs, now = RunStore(platform.database, platform.clock), platform.clock()
    facts = {"dataset": dataset.id, "scope": "s", "started_at": now, "ended_at": now, "at": now}
    run = DatasetRun(job_id="0" * 32, state=RunState.HELD, **facts)
    runs.save(run)
    watched.look()
    watched.look(MINUTE)
    runs.change(run, RunState.PUBLISHED)
    watched.look(MINUTE)
    watched.look()
    assert watched.told() == [("firing", "a run is held"), ("resolved", "a run is held")]
    assert watched.calls()[0][1]["dataset"] == "prices"


def test_held_runs_of_two_users_are_two_alerts_and_those_of_one_hide_none(watched: Alerted) -> None:
    watched.only(when={"measure": "held"})
    watched.rule("root", when={"measure": "held"}, of_all_users=True)
    operator = watched.listen("alert.firing", user_id="root")
    platform, now = watched.platform, watched.platform.clock()
    datasets, runs = (kind(platform.database, platform.clock) for kind in (DatasetStore, RunStore))
    for user, count in (("ada", 1), ("bob", 1100)):
        dataset = datasets.ensure(user, "prices", {})
        facts = {"dataset": dataset.id, "scope": "s", "ended_at": now, "at": now}
        for number in range(count):
            at = now + number * timedelta(seconds=1)
            runs.save(DatasetRun(job_id=f"{count:016x}{number:016x}", state=RunState.HELD, started_at=at, **facts))
    watched.look()
    assert watched.told() == [("firing", "a run is held")]
    said = {data["group"]: data["message"] for _, data in watched.calls(operator)}
    assert said == {"ada/prices": "a run is held", "bob/prices": "1100 runs are held"}


def test_occurrences_that_did_not_run_are_counted_beside_runs(watched: Alerted) -> None:
    watched.only(when={"measure": "not_started", "runs": 2})
    platform = watched.platform
    schedule = make_schedule(user_id="ada", created_at=platform.clock())
    ScheduleStore(platform.database, platform.clock).insert(schedule)
    for number in range(2):
        now = platform.clock()
        times = {"at": now, "due": now, "recorded_at": now, "announce_due": now, "late_by_seconds": 0.0, "rev": 1}
        entry = LedgerEntry(
            job_id=f"{number:032x}", schedule_id=schedule.id, kind=LedgerKind.MISSED, reason="no beat", **times
        )
        LedgerStore(platform.database).record([entry])
        watched.look(HOUR)
    watched.ends(schedule_id=schedule.id)
    said = "did not run 2 times in a row: no beat"
    assert watched.calls()[0][1]["page_url"].endswith(f"/console/schedules/{schedule.id}")
    assert watched.told() == [("firing", said), ("resolved", said)]


def test_a_rule_may_name_who_is_told_and_others_are_told_only_if_they_ask_for_alerts(watched: Alerted) -> None:
    everything, named = watched.listen(), watched.listen("job.failed")
    watched.only(when={"measure": "failed"}, to=(named.id,))
    watched.ends(BROKEN)
    assert [kind for kind, _ in watched.calls(named)] == ["job.failed", "alert.firing"]
    assert [kind for kind, _ in watched.calls(everything)] == ["job.failed"]
    assert watched.told() == []


def test_a_rule_whose_receivers_were_all_deleted_tells_those_that_want_alerts(watched: Alerted) -> None:
    watched.only(when={"measure": "failed"}, to=("0" * 32,))
    watched.ends(BROKEN)
    assert watched.told() == [("firing", "failed: it crashed")]


def test_no_rule_sees_the_crawls_of_others_unless_it_is_of_all_users(watched: Alerted) -> None:
    watched.only(when={"measure": "failed"})
    watched.rule("root", when={"measure": "failed"}, of_all_users=True, name="all")
    operator = watched.listen("alert.firing", user_id="root")
    watched.ends(BROKEN, user_id="bob")
    assert watched.told() == []
    assert [data["rule"] for _, data in watched.calls(operator)] == ["all"]


def test_an_incident_is_about_the_crawl_with_which_it_began(watched: Alerted) -> None:
    watched.only(when={"measure": "failed"})
    watched.rule("root", when={"measure": "failed"}, of_all_users=True, name="all")
    nightly = watched.listen("alert.firing", "alert.resolved", filter=EndpointFilter(tags=("nightly",)))
    of_ada, of_bob = (
        watched.listen("alert.firing", user_id="root", filter=EndpointFilter(users=(user,)))
        for user in ("ada", "bob")
    )
    for tag, outcome in (("hourly", BROKEN), ("hourly", DONE), ("nightly", BROKEN), ("hourly", DONE)):
        watched.ends(outcome, tags=(tag,))
    assert [(kind, data["tags"]) for kind, data in watched.calls(nightly)] == [
        ("alert.firing", ["nightly"]),
        ("alert.resolved", ["nightly"]),
    ]
    assert watched.calls(of_bob) == []
    assert [data["user_id"] for _, data in watched.calls(of_ada) if data["rule"] == "all"] == ["ada"] * 2


def test_what_waits_again_is_another_incident(watched: Alerted) -> None:
    watched.only(when={"measure": "waiting", "above": 600})
    job = make_job(user_id="ada", created_at=watched.platform.clock())
    watched.platform.jobs.insert(job)
    jobs = watched.platform.database["jobs"]
    for passed in (11 * MINUTE, HOUR):
        watched.look(passed)
        jobs.update_one({"_id": job.id}, {"$set": {"blocked": True}})
        watched.look(MINUTE)
        jobs.update_one({"_id": job.id}, {"$unset": {"blocked": ""}})
    assert [kind for kind, _ in watched.told()] == ["firing", "resolved"] * 2


def test_sixty_days_with_incidents_are_as_many_alerts_and_ends(watched: Alerted) -> None:
    """Three schedules with six runs a day. A single failure is no incident, and the first thirty days have none."""
    watched.only(when={"measure": "failed", "runs": 3}, group_by="schedule")
    watched.rule(when={"measure": "items", "below": 0.5, "of_usual": 10}, group_by="schedule")
    chance = random.Random(26)
    start = datetime(2026, 6, 1, tzinfo=UTC)
    watched.platform.ahead += start - watched.platform.clock()
    schedules = [f"{number:032x}" for number in range(3)]
    expected: Counter[str] = Counter()
    failing, short = dict.fromkeys(schedules, 0), dict.fromkeys(schedules, 0)
    rested = dict.fromkeys(schedules, 12)
    for hour in range(60 * 6):
        watched.platform.ahead += start + 4 * hour * HOUR - watched.platform.clock()
        for one in schedules:
            quiet = failing[one] == short[one] == 0 and rested[one] > 12 and hour < 340
            if quiet and hour >= 180 and chance.random() < 0.05:
                failing[one], rested[one] = chance.randint(3, 9), 0
                expected["failed"] += 1
            elif quiet and hour >= 180 and chance.random() < 0.05:
                short[one], rested[one] = chance.randint(1, 15), 0
                expected["items"] += 1
            rested[one] += 1
            is_single = hour % 17 == 5 and not failing[one] and not short[one] and rested[one] > 2
            outcome = BROKEN if failing[one] or is_single else DONE
            items = 20 if short[one] else chance.randint(180, 220)
            failing[one], short[one] = max(0, failing[one] - 1), 0 if failing[one] else max(0, short[one] - 1)
            watched.ends(outcome, items=items, schedule_id=one, look=False)
        watched.look()
        if hour == 179:
            assert watched.told() == []
    for one in schedules:
        watched.ends(schedule_id=one, items=200)
    told = Counter((kind, "failed" if "failed" in message else "items") for kind, message in watched.told())
    assert expected["failed"] > 5
    assert expected["items"] > 5
    assert told == {(kind, measure): count for measure, count in expected.items() for kind in ("firing", "resolved")}
