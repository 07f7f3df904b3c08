"""Alert rules. A rule compares one figure with a bound: a figure of a run that has ended, or a figure of the present,
such as the length of the queue. The rule has one alert for each group (`Grouping`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, time, timedelta
from enum import StrEnum
from typing import Annotated, NamedTuple, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from gateway.errors import InvalidRequestError
from gateway.jobs.run_days import spider_subject
from gateway.schedules.next_run import parse_time_zone
from gateway.signals.endpoints import EndpointFilter
from gateway.signals.events import Subject, event_id

#: A user has at most this many rules: all of them are checked when a crawl of the user ends.
MOST_RULES = 50
#: A rule asks for at most this many runs in a row, and compares with at most this many earlier runs. Together they
#: are fewer than the runs that an alert keeps (`run_figures.KEPT`).
MOST_IN_A_ROW, MOST_USUAL = 20, 20
#: A rule that compares with earlier runs needs at least this many.
FEWEST_USUAL = 3
_LONGEST = timedelta(days=366).total_seconds()
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


class AlertMeasure(StrEnum):
    """What an alert's rule measures."""

    # --- of a run that has ended
    #: 1 for a run that ended in `error`, else 0.
    FAILED = "failed"
    #: 1 for a run that ended in `error` or `partial`, else 0.
    INCOMPLETE = "incomplete"
    #: 1 for an occurrence of a schedule that was skipped or missed, 0 for a run of it.
    NOT_STARTED = "not_started"
    #: The number of error groups of the run that are new, or are back after they were resolved.
    NEW_ERRORS = "new_errors"
    # only of runs that ended in `finished` or `partial`
    ITEMS = "items"
    PAGES = "pages"
    ERRORS = "errors"
    #: errors / (pages + errors), from 0 to 1.
    ERROR_SHARE = "error_share"
    #: Seconds.
    DURATION = "duration"
    # --- of the present
    #: Seconds since a run last ended well.
    IDLE = "idle"
    #: Seconds for which the longest-waiting job has waited, of the jobs that could start.
    WAITING = "waiting"
    #: The number of waiting jobs.
    QUEUE = "queue"
    #: Seconds since the last sign of life of a node that is down.
    NODE_DOWN = "node_down"
    #: 1 for a node with too little free disk for new work.
    DISK_FULL = "disk_full"
    #: The number of held runs of a dataset.
    HELD = "held"


#: Measures that are 0 or 1, and need no bound.
YES_OR_NO = frozenset(
    {
        AlertMeasure.FAILED,
        AlertMeasure.INCOMPLETE,
        AlertMeasure.NOT_STARTED,
        AlertMeasure.DISK_FULL,
        AlertMeasure.HELD,
        AlertMeasure.NODE_DOWN,
    }
)
#: Measures that can be compared with earlier runs (`of_usual`).
COMPARABLE = frozenset(
    {AlertMeasure.ITEMS, AlertMeasure.PAGES, AlertMeasure.ERRORS, AlertMeasure.ERROR_SHARE, AlertMeasure.DURATION}
)
#: Measures of single runs.
OF_RUNS = COMPARABLE | {
    *(AlertMeasure.FAILED, AlertMeasure.INCOMPLETE, AlertMeasure.NOT_STARTED, AlertMeasure.NEW_ERRORS)
}
#: Measures that are checked when runs end. All others are measures of the present.
NOTED = OF_RUNS | {AlertMeasure.IDLE}
#: Measures of the platform, which do not belong to a user.
OF_PLATFORM = frozenset({AlertMeasure.NODE_DOWN, AlertMeasure.DISK_FULL})


class Grouping(StrEnum):
    """How a rule groups what it is about: each group has an alert of its own."""

    SPIDER = "spider"
    SCHEDULE = "schedule"
    SITE = "site"
    PROJECT = "project"
    #: The rule has one alert for everything.
    RULE = "rule"
    # --- the grouping of some measures, which a rule cannot choose
    DATASET = "dataset"
    NODE = "node"


_BROUGHT = {
    AlertMeasure.NODE_DOWN: Grouping.NODE,
    AlertMeasure.DISK_FULL: Grouping.NODE,
    AlertMeasure.HELD: Grouping.DATASET,
    AlertMeasure.NOT_STARTED: Grouping.SCHEDULE,
    AlertMeasure.WAITING: Grouping.RULE,
    AlertMeasure.QUEUE: Grouping.RULE,
}


class AlertCondition(BaseModel, extra="forbid", frozen=True):
    """What is measured, and from which value on there is an alert."""

    measure: AlertMeasure
    above: Annotated[float, Field(ge=0, le=1e12)] | None = None
    below: Annotated[float, Field(gt=0, le=1e12)] | None = None
    #: If set, the bound is a multiple of the median of this many earlier runs.
    of_usual: Annotated[int, Field(ge=FEWEST_USUAL, le=MOST_USUAL)] | None = None
    runs: Annotated[
        int, Field(ge=1, le=MOST_IN_A_ROW, description="The condition must hold for this many runs in a row.")
    ] = 1
    #: The condition must hold for this many seconds.
    for_seconds: Annotated[float, Field(ge=0, le=_LONGEST)] = 0.0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.measure in YES_OR_NO:
            if self.above is not None or self.below is not None:
                raise ValueError(f"`{self.measure}` takes no bound")
        elif (self.above is None) == (self.below is None):
            raise ValueError("needs one bound: `above` or `below`")
        if self.of_usual is not None and self.measure not in COMPARABLE:
            raise ValueError(f"`{self.measure}` is not compared with what is usual")
        if self.runs > 1 and self.measure not in OF_RUNS:
            raise ValueError(f"`runs` is of runs, and `{self.measure}` of what is so now: use `for_seconds`")
        if self.for_seconds and self.measure in NOTED:
            raise ValueError(f"`for_seconds` is of what is so now: use `runs` with `{self.measure}`")
        return self

    def is_beyond(self, value: float, usual: float | None = None) -> bool:
        """Whether the value is beyond the bound. `usual`: the bound is a multiple of this; if this is 0, no value is
        beyond the bound.
        """
        if self.of_usual is not None and not usual:
            return False
        factor = 1.0 if usual is None else usual
        if self.below is not None:
            return value < self.below * factor
        return value > (self.above or 0.0) * factor


class QuietHours(BaseModel, extra="forbid", frozen=True):
    """No alerts are sent between these times of day. An alert that still fires at the end is sent then."""

    since: str = Field(examples=["22:00"])
    until: str = Field(examples=["07:00"])
    timezone: str = "UTC"

    @field_validator("since", "until")
    @classmethod
    def _time(cls, given: str) -> str:
        if not _TIME.fullmatch(given):
            raise ValueError("must be a time of day, such as 22:00")
        return given

    @field_validator("timezone")
    @classmethod
    def _zone(cls, given: str) -> str:
        try:
            parse_time_zone(given)
        except InvalidRequestError as error:
            raise ValueError(str(error)) from None
        return given

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.since == self.until:
            raise ValueError("must end at another time than they begin: pause the rule if nobody is to be told")
        return self

    def end(self, now: datetime) -> datetime | None:
        """The end of the quiet hours if `now` is within them, else `None`."""
        zone = parse_time_zone(self.timezone)
        local = now.astimezone(zone)
        since, until = time.fromisoformat(self.since), time.fromisoformat(self.until)
        for day in (local.date() - timedelta(days=1), local.date()):
            begin = datetime.combine(day, since, zone)
            end = datetime.combine(day if until > since else day + timedelta(days=1), until, zone)
            if begin <= local < end:
                return end.astimezone(now.tzinfo)
        return None


class AlertGroup(NamedTuple):
    kind: Grouping
    #: A spider of a project is `project/spider`. If the rule is about the crawls of all users, a dataset is
    #: `user/name`, because several users may have a dataset of this name.
    name: str


class AlertRule(BaseModel, extra="ignore", populate_by_name=True):
    id: str = Field(alias="_id")
    #: The owner; empty for the operator's rules, and for the built-in rules, which all users have.
    user_id: str
    name: str
    when: AlertCondition
    filter: EndpointFilter = EndpointFilter()
    group_by: Grouping = Grouping.SPIDER
    #: The endpoints that receive the alerts. If empty: all endpoints of the user that ask for alerts.
    to: tuple[str, ...] = ()
    quiet: QuietHours | None = None
    silenced_until: datetime | None = None
    #: While an alert fires, a reminder is sent each time this many seconds have passed.
    remind_seconds: float | None = None
    paused: bool = False
    #: Whether the rule is about the crawls of all users; true or absent.
    of_all_users: bool | None = None
    #: The id of the built-in rule that this rule replaces for its user.
    builtin: str | None = None
    created_at: datetime

    @property
    def known_as(self) -> str:
        """The `rule_id` of its alerts. A built-in rule keeps its id when a user changes it."""
        return self.builtin or self.id

    @property
    def grouping(self) -> Grouping:
        return _BROUGHT.get(self.when.measure, self.group_by)

    @property
    def needs_good_runs(self) -> bool:
        """Whether runs without a fault must be stored, too, because the rule compares with them."""
        return self.when.of_usual is not None or self.when.measure is AlertMeasure.IDLE

    def admits(self, subject: Subject) -> bool:
        is_ones_own = self.of_all_users or self.user_id in {"", subject.user_id}
        return bool(is_ones_own) and self.filter.admits(subject)

    def group_of(self, subject: Subject) -> AlertGroup | None:
        """The group of the subject; `None` if the rule is not about it, for example if the rule groups by sites and
        the run has none.
        """
        if not self.admits(subject):
            return None
        names = {
            Grouping.SPIDER: spider_subject(subject.project or "", subject.spider) if subject.spider else None,
            Grouping.SCHEDULE: subject.schedule_id,
            Grouping.SITE: subject.site,
            Grouping.PROJECT: subject.project,
            Grouping.DATASET: subject.dataset,
            Grouping.RULE: self.name,
        }
        name = names.get(self.grouping)
        return AlertGroup(self.grouping, name) if name else None

    def owner(self, subject: Subject) -> str:
        """The user who owns the alert: the rule's user, or for a built-in rule, the user of the crawl."""
        return self.user_id or subject.user_id

    def alert_id(self, owner: str, group: AlertGroup) -> str:
        # the rule's name is left out, so that its alert stays the same when the rule is renamed
        name = "" if group.kind is Grouping.RULE else group.name
        return event_id("alert", self.known_as, owner, group.kind, name)


_FIRST = datetime.fromisoformat("2026-01-01T00:00:00+00:00")


def _builtin(name: str, words: str, group_by: Grouping = Grouping.SPIDER, **when: object) -> AlertRule:
    condition = AlertCondition.model_validate(when)
    return AlertRule(
        id=name, user_id="", name=words, when=condition, group_by=group_by, builtin=name, created_at=_FIRST
    )


#: The built-in rules, which all users have.
BUILT_IN: dict[str, AlertRule] = {
    rule.id: rule
    for rule in (
        _builtin("crawl-failed", "a crawl failed", measure="failed"),
        _builtin(
            "schedule-failing", "a schedule failed three times in a row", Grouping.SCHEDULE, measure="failed", runs=3
        ),
        _builtin("node-down", "a node is down", measure="node_down"),
        _builtin("disk-full", "a node's disk is nearly full", measure="disk_full"),
    )
}


def own_form_id(user_id: str, builtin: str) -> str:
    """The id of the rule that replaces a built-in rule for this user."""
    return event_id("rule", user_id, builtin)


def forms(rule_id: str, user_id: str) -> list[str]:
    """The ids under which a rule may be stored for this user. The first that exists applies: for a built-in rule, the
    user's version, then the operator's version, then the built-in rule itself.
    """
    if rule_id not in BUILT_IN:
        return [rule_id]
    return [*dict.fromkeys((own_form_id(user_id, rule_id), own_form_id("", rule_id))), rule_id]


def form_of(rule: AlertRule, user_id: str) -> str:
    """The id under which this user's changes of the rule are stored. A rule that a user has made has its own id. Of a
    built-in rule there is a copy for each user, or one copy for all users if it is about the platform.
    """
    if rule.builtin is None:
        return rule.id
    return own_form_id("" if BUILT_IN[rule.builtin].when.measure in OF_PLATFORM else user_id, rule.builtin)


def with_built_in(user_id: str, stored: Sequence[AlertRule], *, of_platform: bool) -> list[AlertRule]:
    """The stored rules and the built-in rules. Of each built-in rule: the user's version if there is one, else the
    operator's, else the rule itself. `of_platform`: include the rules about nodes.
    """
    mine = {rule.builtin for rule in stored if rule.user_id == user_id}
    known = [rule for rule in stored if rule.user_id == user_id or rule.builtin is None or rule.builtin not in mine]
    there = {rule.builtin for rule in known}
    rules = [*known, *(rule for rule in BUILT_IN.values() if rule.id not in there)]
    return [rule for rule in rules if of_platform or not (rule.builtin and rule.when.measure in OF_PLATFORM)]
