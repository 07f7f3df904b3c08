"""Alerts and their rules in MongoDB. An alert is the state of one rule for one group of runs.

Two fields decide what is sent: `firing` is the state of the alert, and `told` is the state that its receivers were
sent last. While both are equal, nothing is sent; so nothing is sent twice, and an alert that ended before it was sent
is never sent. `told` changes before the calls are made, and `telling` is set until the calls are stored. So receivers
of the beginning also receive the end, even if a worker dies in between. Each change is a compare-and-set by `rev`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field
from pymongo import ASCENDING, DESCENDING
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.crash_points import state_change
from gateway.signals.alert_rules import OF_RUNS, AlertGroup, AlertMeasure, AlertRule, Grouping
from gateway.signals.events import EventType, Subject
from gateway.signals.run_figures import ComparedRun
from gateway.stores.documents import Documents, page, reader
from gateway.stores.mongo import Document, Repeating

#: Past incidents that an alert keeps.
MOST_PAST = 20


class PastIncident(BaseModel, extra="ignore", frozen=True):
    since: datetime
    until: datetime
    message: str


class AlertSubject(BaseModel, extra="ignore", frozen=True):
    """The facts by which endpoints choose alerts. They stay as they were when the incident began, so that the same
    endpoints receive its beginning and its end.
    """

    #: The user of the crawl; empty for an alert about the platform.
    user_id: str = ""
    project: str | None = None
    spider: str | None = None
    site: str | None = None
    dataset: str | None = None
    schedule_id: str | None = None
    tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, subject: Subject) -> AlertSubject:
        return cls.model_validate(subject._asdict())


class Alert(BaseModel, extra="ignore", populate_by_name=True):
    id: str = Field(alias="_id")
    #: The rule's id; for a built-in rule that a user has changed, the id of the built-in rule.
    rule_id: str
    #: The owner; empty for an alert about the platform.
    user_id: str
    measure: AlertMeasure
    group_by: Grouping
    group: str
    subject: AlertSubject = AlertSubject()
    #: The newest runs, the oldest first.
    recent: list[ComparedRun] = Field(default_factory=list)
    #: Only for rules about idle groups: when a run last ended well, or when the first run ended if none has ended
    #: well.
    idle_since: datetime | None = None
    #: Since when the condition has held, for rules whose condition must hold for a while before the alert fires.
    holds_since: datetime | None = None
    firing: bool = False
    #: When it began to fire the last time.
    since: datetime | None = None
    #: When it ended the last time.
    until: datetime | None = None
    message: str = ""
    #: The run that it is about.
    job_id: str | None = None
    #: The usual figure when it began.
    usual: float | None = None
    told: bool = False
    told_at: datetime | None = None
    #: The type of the event whose deliveries are still to be stored; `None` if there is none.
    telling: EventType | None = None
    #: How many reminders were sent since it began.
    reminded: int = 0
    silenced_until: datetime | None = None
    past: list[PastIncident] = Field(default_factory=list)
    #: When it has to be checked again, even without any further run; absent if it need not be.
    due_at: datetime | None = None
    created_at: datetime
    updated_at: datetime
    rev: int = 0

    @classmethod
    def new(
        cls, rule: AlertRule, owner: str, group: AlertGroup, now: datetime, about: Subject | None = None
    ) -> Alert:
        return cls(
            id=rule.alert_id(owner, group),
            rule_id=rule.known_as,
            user_id=owner,
            measure=rule.when.measure,
            group_by=group.kind,
            group=group.name,
            subject=AlertSubject.of(about) if about else AlertSubject(),
            created_at=now,
            updated_at=now,
        )

    @property
    def about(self) -> Subject | None:
        """The subject by which endpoints choose. `None`: all endpoints of the user that ask for alerts receive it."""
        facts = self.subject.model_dump(exclude_defaults=True)
        return Subject(**{"user_id": self.user_id, **facts, "job_id": self.job_id}) if facts else None

    def fires(self, since: datetime, message: str, job_id: str | None, usual: float | None) -> Alert:
        # a new incident begins after the last one ended, even if its cause (a waiting job) is older
        since = max(since, self.until or since)
        began: dict[str, Any] = {} if self.firing else {"since": since, "until": None, "usual": usual}
        return self.model_copy(update={**began, "firing": True, "message": message, "job_id": job_id})

    def promises(self, kind: EventType, now: datetime) -> Alert:
        """The alert as it is stored before this event is sent to its receivers."""
        reminded = {EventType.ALERT_FIRING: 0, EventType.ALERT_STILL_FIRING: self.reminded + 1}
        return self.model_copy(
            update={
                "telling": kind,
                "told": kind is not EventType.ALERT_RESOLVED,
                "told_at": now,
                "reminded": reminded.get(kind, self.reminded),
            }
        )

    def ends(self, at: datetime) -> Alert:
        if not self.firing or self.since is None:
            return self.model_copy(update={"holds_since": None})
        past = [*self.past, PastIncident(since=self.since, until=at, message=self.message)][-MOST_PAST:]
        return self.model_copy(
            update={"firing": False, "until": at, "past": past, "usual": None, "holds_since": None}
        )


class AlertRuleStore:
    """The `alert_rules` collection."""

    def __init__(self, database: Database[Document]) -> None:
        self._rules = database["alert_rules"]
        self._documents = Documents(self._rules, reader(AlertRule))

    def get(self, rule_id: str) -> AlertRule | None:
        return self._documents.find_one({"_id": rule_id})

    def many(self, rule_ids: Collection[str]) -> dict[str, AlertRule | None]:
        """By id: the rules that exist; `None` for a rule that cannot be read, for example one of a newer version."""
        found: Iterable[Document] = self._rules.find({"_id": {"$in": list(rule_ids)}}) if rule_ids else []
        return {document["_id"]: rule for document, rule in self._documents.each(found)}

    def of_user(self, user_id: str, limit: int) -> list[AlertRule]:
        return self._documents.find({"user_id": user_id}, limit, [("created_at", ASCENDING), ("_id", ASCENDING)])

    def of_operator(self, limit: int) -> list[AlertRule]:
        """The rules that an operator without a key sees: those of all users, without their versions of built-in
        rules.
        """
        wanted: Document = {"$or": [{"user_id": ""}, {"builtin": {"$exists": False}}]}
        return self._documents.find(wanted, limit, [("created_at", ASCENDING), ("_id", ASCENDING)])

    def about(self, user_id: str) -> list[AlertRule]:
        """All rules about crawls of this user, including other users' rules about the crawls of all users."""
        found = self._rules.find({"$or": [{"user_id": {"$in": [user_id, ""]}}, {"of_all_users": True}]})
        return self._documents.many(found)

    def of_measures(self, measures: Collection[AlertMeasure], after: str, limit: int) -> list[AlertRule]:
        """The next rules with one of these measures, of all users, in the order of their ids."""
        query = {"_id": {"$gt": after}, "when.measure": {"$in": [one.value for one in measures]}}
        return self._documents.find(query, limit, [("_id", ASCENDING)])

    def with_form(self, builtin: str) -> list[str]:
        """The users who have a version of their own of this built-in rule."""
        return self._rules.distinct("user_id", {"builtin": builtin, "user_id": {"$ne": ""}})

    def count(self, user_id: str) -> int:
        return self._rules.count_documents({"user_id": user_id})

    @state_change("alert_rules.save")
    def save(self, rule: AlertRule) -> None:
        self._rules.replace_one({"_id": rule.id}, rule.model_dump(by_alias=True, exclude_none=True), upsert=True)

    @state_change("alert_rules.delete")
    def delete(self, rule_id: str) -> None:
        Repeating(self._rules).delete_many({"_id": rule_id})


class AlertStore:
    """The `alerts` collection."""

    def __init__(self, database: Database[Document]) -> None:
        self._alerts = database["alerts"]
        self._documents = Documents(self._alerts, reader(Alert))

    def get(self, alert_id: str) -> Alert | None:
        return self._documents.find_one({"_id": alert_id})

    def many(self, alert_ids: Collection[str]) -> dict[str, Alert]:
        found = self._documents.many(self._alerts.find({"_id": {"$in": list(alert_ids)}})) if alert_ids else []
        return {alert.id: alert for alert in found}

    def of_rule(self, rule_id: str, user_id: str) -> list[Alert]:
        """The user's alerts of this rule that fire, or whose condition holds."""
        there = [{"firing": True}, {"holds_since": {"$exists": True}}]
        return self._documents.many(self._alerts.find({"rule_id": rule_id, "user_id": user_id, "$or": there}))

    def page(
        self,
        user_id: str | None,
        limit: int,
        after: str | None,
        *,
        firing: bool | None = None,
        but: Collection[AlertMeasure] = (),
    ) -> tuple[list[Alert], str | None]:
        """A page, as `documents.page` returns it, of the alerts that have ever fired, the latest first. Without
        `user_id`, of all users. `but`: leave out alerts about these measures.
        """
        wanted: list[Document] = [{"since": {"$exists": True}}, _seen(user_id, but)]
        if firing is not None:
            wanted.append({"firing": firing})
        return page(self._documents, wanted, limit, after, field="since")

    def count_firing(self, user_id: str | None, limit: int, *, but: Collection[AlertMeasure] = ()) -> int:
        return self._alerts.count_documents({**_seen(user_id, but), "firing": True}, limit=limit)

    def due(self, now: datetime, limit: int) -> list[Alert]:
        """The alerts that have to be checked now, the longest due first."""
        return self._documents.find({"due_at": {"$lte": now}}, limit, [("due_at", ASCENDING)])

    @state_change("alerts.save")
    def save(self, alert: Alert, read: Alert | None) -> Alert | None:
        """Store the alert if it was not changed since it was `read` (`None`: it did not exist). Returns the stored
        alert; `None` if it was changed.
        """
        changed = alert.model_copy(update={"rev": (read.rev if read else 0) + 1})
        stored = changed.model_dump(by_alias=True, exclude_none=True)
        if read is not None:
            is_stored = self._alerts.replace_one({"_id": alert.id, "rev": read.rev}, stored).matched_count == 1
            return changed if is_stored else None
        try:
            self._alerts.insert_one(stored)
        except DuplicateKeyError:
            return None
        return changed

    @state_change("alerts.look_later")
    def look_later(self, alert_id: str, due_at: datetime) -> None:
        self._alerts.update_one({"_id": alert_id, "due_at": {"$exists": True}}, {"$set": {"due_at": due_at}})

    @state_change("alerts.delete")
    def delete(self, alert_ids: Sequence[str]) -> None:
        Repeating(self._alerts).delete_many({"_id": {"$in": list(alert_ids)}})

    @state_change("alerts.delete_of_rule")
    def delete_of_rule(self, rule_id: str, user_id: str | None, but: Collection[str] = ()) -> None:
        """Delete the user's alerts of this rule. Without `user_id`, the alerts of all users except `but`."""
        whose = {"$nin": list(but)} if user_id is None else user_id
        Repeating(self._alerts).delete_many({"rule_id": rule_id, "user_id": whose})

    @state_change("alerts.forget")
    def forget(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` alerts that were not updated since `before`: alerts that are over, and alerts about
        runs even if they fire, because without further runs they would fire forever. Returns how many were deleted.
        """
        over: Document = {"firing": False, "due_at": {"$exists": False}}
        of_runs = {"measure": {"$in": [one.value for one in OF_RUNS]}}
        old: Document = {"updated_at": {"$lt": before}, "$or": [over, of_runs]}
        found = [one["_id"] for one in self._alerts.find(old, {"_id": 1}).sort("updated_at", DESCENDING).limit(limit)]
        return Repeating(self._alerts).delete_many({"_id": {"$in": found}, **old}).deleted_count


def _seen(user_id: str | None, but: Collection[AlertMeasure]) -> Document:
    of: Document = {} if user_id is None else {"user_id": user_id}
    return {**of, "measure": {"$nin": [one.value for one in but]}} if but else of
