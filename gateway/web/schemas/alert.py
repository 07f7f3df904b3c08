"""How the API shows alerts and their rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field
from pydantic.config import JsonDict
from typing_extensions import TypeAliasType

from gateway.signals.alert_rules import AlertCondition, AlertRule, Grouping, QuietHours, form_of
from gateway.signals.alerts import Alert
from gateway.signals.rule_book import RulePreview
from gateway.web.schemas.endpoint import CrawlFilter
from gateway.web.schemas.types import Body, Cursor, Name, Open, QueryBoolean, QueryModel, QueryTime, Timestamp, UserId

_RULE_ID = "4d0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_ALERT_ID = "3e0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_ENDPOINT_ID = "7d0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"
_FILTER: JsonDict = {"projects": ["shop"]}
_WHEN: JsonDict = {"measure": "items", "below": 0.5, "of_usual": 10}
_QUIET: JsonDict = {"since": "22:00", "until": "07:00", "timezone": "Europe/Berlin"}
_WISH: JsonDict = {
    "name": "far fewer prices",
    "when": _WHEN,
    "filter": _FILTER,
    "group_by": "spider",
    "to": [_ENDPOINT_ID],
    "quiet": _QUIET,
}
_RULE: JsonDict = {
    **_WISH,
    "rule_id": _RULE_ID,
    "user_id": "abc123",
    "silenced_until": None,
    "remind_seconds": None,
    "paused": False,
    "all_users": False,
    "builtin": None,
    "is_changed": False,
    "created_at": "2027-06-01T09:00:00.000Z",
}
_ALERT: JsonDict = {
    "alert_id": _ALERT_ID,
    "rule_id": _RULE_ID,
    "rule": "far fewer prices",
    "user_id": "abc123",
    "group_by": "spider",
    "group": "shop/prices",
    "firing": True,
    "since": "2027-06-01T09:03:41.000Z",
    "until": None,
    "message": "40 items, usually 200",
    "job_id": "5f0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a",
    "told": True,
    "silenced_until": None,
    "past": [
        {
            "since": "2027-05-12T09:03:20.000Z",
            "until": "2027-05-13T09:03:55.000Z",
            "message": "12 items, usually 204",
        }
    ],
}
_INCIDENT: JsonDict = {
    "group_by": "spider",
    "group": "shop/prices",
    "since": "2027-05-30T09:03:41.000Z",
    "until": "2027-05-31T09:03:30.000Z",
    "message": "40 items, usually 200",
}

_ID = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
#: The groupings that a rule can choose. The other ones are fixed by the measure.
RuleGrouping = TypeAliasType(
    "RuleGrouping",
    Annotated[
        Literal["spider", "schedule", "site", "project", "rule"], Field(description="What a rule groups crawls by.")
    ],
)
Reminder = Annotated[float, Field(ge=300, le=30 * 86400)]
Receivers = Annotated[list[_ID], Field(max_length=20)]


class AlertRuleCreate(Body, json_schema_extra={"examples": [_WISH]}):
    """A new rule: what it measures, of which runs, and who is called."""

    name: Name = Field(description="Stands in each message, if it is about nothing more specific.")
    when: AlertCondition
    user_id: UserId | None = Field(default=None, description="Whose rule; by default the caller's.")
    filter: CrawlFilter = Field(default=CrawlFilter(), description="About which crawls; by default all.")
    group_by: RuleGrouping = Field(
        default="spider", description="What the runs are grouped by: each group has an alert of its own."
    )
    to: Receivers = Field(
        default=[], description="The endpoints to notify; by default those whose `events` name alerts."
    )
    quiet: QuietHours | None = None
    silenced_until: QueryTime | None = Field(default=None, description="Nobody is notified until then.")
    remind_seconds: Reminder | None = Field(default=None, description="Tell again so long after, while it lasts.")
    all_users: bool = Field(default=False, strict=True, description="About the crawls of all users; for admins.")
    paused: bool = Field(default=False, strict=True)


class AlertRuleUpdate(Body, json_schema_extra={"examples": [{"silenced_until": "2027-06-01T12:00:00Z"}]}):
    """The fields to change. A new `when`, `filter` or `group_by` deletes the rule's alerts, which begin anew."""

    name: Name | None = None
    when: AlertCondition | None = None
    filter: CrawlFilter | None = None
    group_by: RuleGrouping | None = None
    to: Receivers | None = None
    quiet: QuietHours | None = Field(default=None, description="`null` ends them.")
    silenced_until: QueryTime | None = Field(default=None, description="`null` ends a silence.")
    remind_seconds: Reminder | None = Field(default=None, description="`null`: nobody is reminded.")
    paused: bool | None = Field(default=None, strict=True)


class AlertRuleView(BaseModel, json_schema_extra={"examples": [_RULE]}):
    """When an alert begins, and who is called."""

    rule_id: str
    user_id: str = Field(description="Empty for one that everybody has.")
    name: str
    when: AlertCondition
    filter: CrawlFilter
    group_by: Open[Grouping]
    to: list[str]
    quiet: QuietHours | None
    silenced_until: Timestamp | None = Field(description="`null` unless it is silenced now.")
    remind_seconds: float | None
    paused: bool
    all_users: bool
    builtin: str | None = Field(description="The built-in rule that this is, or is a version of.")
    is_changed: bool = Field(
        description="Whether this is a form of one that everybody has; deleting it takes it back."
    )
    created_at: Timestamp

    @classmethod
    def of(cls, rule: AlertRule, user_id: str, now: datetime) -> Self:
        """The rule as this user sees it now."""
        shown = rule.model_dump(include=set(cls.model_fields))
        also = {"rule_id": rule.builtin or rule.id, "all_users": bool(rule.of_all_users), "group_by": rule.grouping}
        also["silenced_until"] = _lasting(rule.silenced_until, now)
        also["is_changed"] = rule.builtin is not None and rule.id == form_of(rule, user_id)
        return cls.model_validate(shown | also)


class AlertRuleList(BaseModel):
    """All rules."""

    rules: list[AlertRuleView]


class OfUserQuery(QueryModel):
    user_id: UserId | None = Field(default=None, description="As this user; by default the caller.")


class RulePreviewQuery(QueryModel):
    days: float = Field(default=7, gt=0, le=90, description="How far back.")


class IncidentView(BaseModel, json_schema_extra={"examples": [_INCIDENT]}):
    """When a rule would have found something, and what."""

    group_by: Open[Grouping]
    group: str
    since: Timestamp
    until: Timestamp | None = Field(description="`null` while it lasts.")
    message: str


class AlertRulePreviewView(BaseModel, json_schema_extra={"examples": [{
    "since": "2027-05-25T09:00:00.000Z", "runs": 168, "count": 1, "incidents": [_INCIDENT]}]}):  # fmt: skip
    """What a rule would have found."""

    since: Timestamp = Field(description="From when on runs were looked at: later than asked for if there are many.")
    runs: int
    count: int = Field(description="How often it would have fired.")
    incidents: list[IncidentView] = Field(description="The latest 200, the newest first.")

    @classmethod
    def of(cls, found: RulePreview) -> Self:
        told = [
            IncidentView(group_by=one.group.kind, group=one.group.name, **one.incident._asdict())
            for one in found.incidents
        ]
        return cls(since=found.since, runs=found.runs, count=found.times, incidents=told)


class PastAlertView(BaseModel):
    """A time at which an alert fired before."""

    since: Timestamp
    until: Timestamp
    message: str


class AlertView(BaseModel, json_schema_extra={"examples": [_ALERT]}):
    """What a rule has found: since when, of what, and in which words."""

    alert_id: str
    rule_id: str
    rule: str = Field(description="The rule's name.")
    user_id: str = Field(description="The user; empty for an alert about the platform.")
    group_by: Open[Grouping]
    group: str
    firing: bool
    since: Timestamp | None = Field(description="Since when it is so, or was at last.")
    until: Timestamp | None = Field(description="When it ended.")
    message: str
    job_id: str | None = Field(description="The last run that it is about.")
    told: bool = Field(description="Whether the receivers were notified of the alert, and not of its end since.")
    silenced_until: Timestamp | None = Field(description="`null` unless it is silenced now.")
    past: list[PastAlertView] = Field(description="Earlier incidents of this alert: the last 20, the oldest first.")

    @classmethod
    def of(cls, alert: Alert, names: Mapping[str, str], now: datetime) -> Self:
        shown, name = alert.model_dump(include=set(cls.model_fields)), names.get(alert.id, "")
        shown["silenced_until"] = _lasting(alert.silenced_until, now)
        if alert.group_by is Grouping.RULE and name:
            shown["group"] = name
        return cls.model_validate(shown | {"alert_id": alert.id, "rule": name})


def _lasting(silenced_until: datetime | None, now: datetime) -> datetime | None:
    """The end of the silence; `None` if it is over."""
    return silenced_until if silenced_until is not None and silenced_until > now else None


class AlertPage(BaseModel):
    """A page of alerts."""

    alerts: list[AlertView]
    next: str | None = Field(description="The `after` of the next page; `null` on the last one.")


class AlertsQuery(QueryModel):
    user_id: UserId | None = Field(default=None, description="Only alerts of this user.")
    firing: QueryBoolean | None = Field(
        default=None, description="Only those that fire now, or only those that do not."
    )
    limit: int = Field(default=50, ge=1, le=200, description="The size of a page.")
    after: Cursor | None = Field(default=None, description="The `next` of the previous page.")


class SilenceRequest(Body, json_schema_extra={"examples": [{"until": "2027-06-01T12:00:00Z"}]}):
    """Until when an alert calls nobody."""

    until: QueryTime | None = Field(description="Nobody is notified of the alert until then; `null` ends a silence.")
