"""Raises alerts, ends them, and announces both exactly once.

Rules about runs are checked when the runs end (`noted`), as a part of announcing them. Rules about the present, and
alerts that change as time passes, are checked every few seconds (`look`). Any number of workers may do both: an alert
is changed by compare-and-set, and the ids of its deliveries are made from the time at which it began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from attrs import define, field

from gateway.clock import Clock, to_iso, utc_now
from gateway.signals.alert_rules import (
    BUILT_IN,
    NOTED,
    OF_PLATFORM,
    AlertGroup,
    AlertMeasure,
    AlertRule,
    Grouping,
    form_of,
    forms,
    with_built_in,
)
from gateway.signals.alerts import Alert, AlertRuleStore, AlertStore, AlertSubject
from gateway.signals.delivery_store import DeliveryStore
from gateway.signals.endpoints import EndpointStore, deliveries_of, deliveries_to
from gateway.signals.events import EventType, SignalEvent, Subject, event_id
from gateway.signals.present_figures import PresentFigures
from gateway.signals.run_figures import ComparedRun, check, merged, said
from gateway.stores.mongo import is_passing

log = structlog.get_logger()

#: Seconds between two rounds over the rules about the present.
EVERY_SECONDS = 5.0
#: Seconds after which one call of `look` compares no further rule.
_SECONDS = 1.0
#: At most this many alerts are announced by one call of `look`, and this many rules are read at once.
_ALERTS, _RULES = 200, 200
#: How often a change of an alert is repeated because another worker has changed it meanwhile.
_TRIES = 10
#: The delay after which an alert that could not be announced is tried again.
_AGAIN = timedelta(seconds=60)


class _Noted(NamedTuple):
    rule: AlertRule
    owner: str
    group: AlertGroup
    runs: list[ComparedRun]
    #: The subject of each run.
    subjects: list[Subject]

    @property
    def newest(self) -> Subject:
        return self.subjects[max(range(len(self.runs)), key=lambda place: self.runs[place].at)]


@define(eq=False, repr=False, slots=False, kw_only=True)
class Alerting:
    _rules: AlertRuleStore
    _alerts: AlertStore
    _deliveries: DeliveryStore
    _endpoints: EndpointStore
    _figures: PresentFigures
    _public_url: str = ""
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    _looked_at: float = field(init=False, default=float("-inf"))
    #: The rules that are still to be compared with the present.
    _round: Iterator[AlertRule] | None = field(init=False, default=None)

    # --- runs

    def noted(self, user_id: str, ended: Sequence[tuple[Subject, ComparedRun]]) -> None:
        """Raise or end the alerts about these ended runs of the user. It is harmless to call this again for the same
        runs. Raises PyMongo's errors.
        """
        if not ended:
            return
        wanted: dict[str, _Noted] = {}
        for rule in self._about(user_id):
            for subject, figures in ended:
                if group := rule.group_of(subject):
                    noted = _Noted(rule, rule.owner(subject), group, [], [])
                    noted = wanted.setdefault(rule.alert_id(noted.owner, group), noted)
                    noted.runs.append(figures)
                    noted.subjects.append(subject)
        known = self._alerts.many(wanted)
        for alert_id, noted in wanted.items():
            with apart("rule_not_applied", rule=noted.rule.id, alert=alert_id):
                self._take(noted, known.get(alert_id))

    def _about(self, user_id: str) -> list[AlertRule]:
        rules = with_built_in(user_id, self._rules.about(user_id), of_platform=False)
        return [rule for rule in rules if not rule.paused and rule.when.measure in NOTED]

    def _take(self, noted: _Noted, known: Alert | None) -> None:
        for _ in range(_TRIES):
            changed = self._judged(noted, known)
            if changed is None or self._alerts.save(changed, known):
                return
            known = self._alerts.get(noted.rule.alert_id(noted.owner, noted.group))
        log.warning("alert_not_changed", rule=noted.rule.id, group=noted.group.name)

    def _judged(self, noted: _Noted, known: Alert | None) -> Alert | None:
        """The alert after these runs; `None` if nothing has to be stored."""
        rule, now = noted.rule, self._clock()
        if known is None and not rule.needs_good_runs and not any(_is_beyond(rule, run) for run in noted.runs):
            return None
        alert = known or Alert.new(rule, noted.owner, noted.group, now, noted.newest)
        runs = merged(alert.recent, noted.runs)
        if rule.when.measure is AlertMeasure.IDLE:
            alert, runs = _after_runs(alert, runs), runs[-1:]
        elif found := check(rule.when, runs, alert.usual if alert.firing else None):
            about = alert.subject if alert.firing else AlertSubject.of(noted.newest)
            alert = alert.fires(found.at, found.message, found.job_id, found.usual)
            alert = alert.model_copy(update={"subject": about})
        elif runs[-1].value(rule.when.measure) is not None:
            alert = alert.ends(runs[-1].at)
        alert = alert.model_copy(update={"recent": runs, "updated_at": now, "group": noted.group.name})
        return alert.model_copy(update={"due_at": _due(rule, alert, now)})

    # --- the present

    def look(self) -> None:
        """Raise and end the alerts that change as time passes, and announce what is due. To be called every few
        seconds. Raises PyMongo's errors.
        """
        now = self._clock()
        try:
            self._compare_some(now)
        finally:
            # also if a rule takes the database too long
            self._attend_due(now)

    def _attend_due(self, now: datetime) -> None:
        due = self._alerts.due(now, _ALERTS)
        rules = BUILT_IN | self._rules.many({one for alert in due for one in forms(alert.rule_id, alert.user_id)})
        for alert in due:
            with apart("alert_not_attended", alert=alert.id):
                if self._attend(alert, rules, now):
                    continue
            with apart("alert_not_put_off", alert=alert.id):
                self._alerts.look_later(alert.id, now + _AGAIN)

    def _compare_some(self, now: datetime) -> None:
        """Compare the next rules with the present, beginning where the last call ended. It stops after about a
        second, so that deliveries do not wait, however many rules there are.
        """
        began = self._monotonic()
        if self._round is None:
            if began - self._looked_at < EVERY_SECONDS:
                return
            self._looked_at, self._round = began, self._of_present()
        for rule in self._round:
            with apart("rule_not_compared", rule=rule.id):
                self._compare(rule, now)
            if self._monotonic() - began >= _SECONDS:
                return
        self._round = None

    def _of_present(self) -> Iterator[AlertRule]:
        built_in = {form_of(rule, ""): rule for rule in BUILT_IN.values() if rule.when.measure in OF_PLATFORM}
        replaced = self._rules.many(built_in)
        yield from (rule for form, rule in built_in.items() if form not in replaced)
        after, measures = "", set(AlertMeasure) - NOTED
        while found := self._rules.of_measures(measures, after, _RULES):
            after = found[-1].id
            yield from (rule for rule in found if not rule.paused)

    def _compare(self, rule: AlertRule, now: datetime) -> None:
        """Raise the alerts of the groups that are beyond the rule's bound now, and end the rule's other alerts."""
        found = self._figures.beyond(rule, now)
        known = {alert.id: alert for alert in self._alerts.of_rule(rule.known_as, rule.user_id)}
        for group, present in found.items():
            alert_id = rule.alert_id(rule.user_id, group)
            read = known.pop(alert_id, None) or self._alerts.get(alert_id)
            alert = read or Alert.new(rule, rule.user_id, group, now, present.subject)
            since = alert.holds_since or present.since or now
            changed = alert.model_copy(update={"holds_since": since, "group": group.name})
            if now - since >= timedelta(seconds=rule.when.for_seconds):
                changed = changed.fires(since, present.message, None, None)
            self._store(rule, changed, read, now)
        for alert in known.values():
            self._store(rule, alert.ends(now), alert, now)

    def _store(self, rule: AlertRule, alert: Alert, read: Alert | None, now: datetime) -> None:
        due = alert.model_copy(update={"due_at": _due(rule, alert, now)})
        if due != read:
            # if another worker has changed it first, that worker has come to the same result
            self._alerts.save(due.model_copy(update={"updated_at": now}), read)

    # --- announcements

    def _attend(self, alert: Alert, rules: Mapping[str, AlertRule | None], now: datetime) -> bool:
        """Announce what is due of the alert. Returns False if this version cannot read its rule: then a worker of
        another version does it.
        """
        there = [rules[one] for one in forms(alert.rule_id, alert.user_id) if one in rules]
        if there and there[0] is None:
            return False
        if there and (rule := there[0]) is not None and not rule.paused:
            self._tell_what_is_due(alert, rule, now)
            return True
        # a paused rule has no alerts: this one was made by a worker that had read the rule before it was paused
        self._alerts.delete([alert.id])
        return True

    def _tell_what_is_due(self, alert: Alert, rule: AlertRule, now: datetime) -> None:
        changed = _as_time_passed(rule, alert, now)
        if changed.telling is None and (kind := _next(rule, changed, now)) is not None:
            changed = changed.promises(kind, now)
        changed = changed.model_copy(update={"due_at": _due(rule, changed, now)})
        kept = alert if changed == alert else self._alerts.save(changed, alert)
        if kept is None or kept.telling is None:
            # another worker has changed the alert; if there is anything to announce, the alert is due again
            return
        self._tell(rule, kept, kept.telling, now)
        done = kept.model_copy(update={"telling": None})
        self._alerts.save(done.model_copy(update={"due_at": _due(rule, done, now)}), kept)

    def _tell(self, rule: AlertRule, alert: Alert, kind: EventType, now: datetime) -> None:
        event = event_of_alert(rule, alert, kind, now, self._public_url)
        # if all endpoints of the rule were deleted, the user's other endpoints receive the alert
        if named := self._endpoints.many(rule.to) if rule.to else []:
            made = deliveries_to(named, event, now)
        else:
            made = deliveries_of(event, self._endpoints.told_of(alert.user_id), now)
        self._deliveries.add(list(made))
        log.info("alert_told", alert=alert.id, type=kind.value, rule=rule.name, group=alert.group)


@contextmanager
def apart(event: str, **about: str) -> Iterator[None]:
    """Log an error of one rule, alert or event, so that it stops neither the others nor the announcement of jobs.
    Raises only errors which say that MongoDB is away or slow.
    """
    try:
        yield
    except Exception as error:
        if is_passing(error):
            raise
        log.exception(event, **about)


def event_of_alert(rule: AlertRule, alert: Alert, kind: EventType, now: datetime, public_url: str) -> SignalEvent:
    since = alert.since or now
    over = alert.until if kind is EventType.ALERT_RESOLVED and alert.until else now
    known = {
        "alert_id": alert.id,
        "rule_id": rule.known_as,
        "rule": rule.name,
        "user_id": alert.user_id or None,
        "group_by": alert.group_by.value,
        "group": rule.name if alert.group_by is Grouping.RULE else alert.group,
        "name": _label(alert),
        **alert.subject.model_dump(exclude_defaults=True, mode="json"),
        "job_id": alert.job_id,
        "since": to_iso(since),
        "until": to_iso(over) if kind is EventType.ALERT_RESOLVED else None,
        "duration_seconds": max(0.0, round((over - since).total_seconds(), 3)),
        "message": alert.message,
        "page_url": public_url + _page(alert),
    }
    data = {name: value for name, value in known.items() if value is not None}
    return SignalEvent(
        event_id(alert.id, to_iso(since), kind, alert.reminded), kind, now, alert.user_id, data, alert.about
    )


def _page(alert: Alert) -> str:
    """The console's page for the alert: of its job, of its schedule if no run started, or else the list of alerts."""
    if alert.job_id:
        return f"/console/jobs/{alert.job_id}"
    return f"/console/schedules/{alert.group}" if alert.group_by is Grouping.SCHEDULE else "/console/alerts"


def _label(alert: Alert) -> str | None:
    """A name for the alert's subject if the group's name is only an id, as for a schedule."""
    if alert.group_by is Grouping.SCHEDULE and alert.subject.spider:
        return f"Schedule {alert.group[:8]} of {alert.subject.project}/{alert.subject.spider}"
    return None


# --- when an alert is checked next, and the event to send then


def _next(rule: AlertRule, alert: Alert, now: datetime) -> EventType | None:
    """The event that is to be sent to its receivers now, if any."""
    if _quiet_until(rule, alert, now) is not None:
        return None
    if alert.firing != alert.told:
        return EventType.ALERT_FIRING if alert.firing else EventType.ALERT_RESOLVED
    remind = _remind_at(rule, alert)
    return EventType.ALERT_STILL_FIRING if remind is not None and remind <= now else None


def _as_time_passed(rule: AlertRule, alert: Alert, now: datetime) -> Alert:
    """The alert at this moment: the alert of an idle group starts to fire without any further run."""
    if (idle := _idle_at(rule, alert)) is None or idle > now:
        return alert
    last = idle - timedelta(seconds=rule.when.above or 0.0)
    return alert.fires(idle, said(rule.when, (now - last).total_seconds()), alert.recent[-1].job_id, None)


def _due(rule: AlertRule, alert: Alert, now: datetime) -> datetime | None:
    if alert.telling is not None:
        return now
    told = now if alert.firing != alert.told else _remind_at(rule, alert)
    if told is not None:
        # not before the silence ends: alerts that are due but silent would keep others from being attended to
        told = max(told, _quiet_until(rule, alert, now) or told)
    return min((moment for moment in (told, _idle_at(rule, alert)) if moment is not None), default=None)


def _quiet_until(rule: AlertRule, alert: Alert, now: datetime) -> datetime | None:
    """The end of the quiet hours or of a silence that applies now; `None` if none applies."""
    ends = (rule.quiet.end(now) if rule.quiet else None, rule.silenced_until, alert.silenced_until)
    return max((end for end in ends if end is not None and end > now), default=None)


def _remind_at(rule: AlertRule, alert: Alert) -> datetime | None:
    if not (alert.firing and alert.told and alert.told_at and rule.remind_seconds):
        return None
    return alert.told_at + timedelta(seconds=rule.remind_seconds)


def _idle_at(rule: AlertRule, alert: Alert) -> datetime | None:
    """When the group will have been idle for too long; `None` for other rules, and for an alert
    that fires already.
    """
    if rule.when.measure is not AlertMeasure.IDLE or alert.firing or alert.idle_since is None:
        return None
    return alert.idle_since + timedelta(seconds=rule.when.above or 0.0)


def _after_runs(alert: Alert, runs: Sequence[ComparedRun]) -> Alert:
    """The alert of an idle group after further runs: a run that ended well after the alert began ends the alert. Only
    the time of the last good run is stored, because any number of bad runs may follow it.
    """
    since = max([run.at for run in runs if run.is_good], default=alert.idle_since or runs[0].at)
    alert = alert.model_copy(update={"idle_since": max(since, alert.idle_since or since)})
    return alert.ends(since) if alert.since is not None and since >= alert.since else alert


def _is_beyond(rule: AlertRule, run: ComparedRun) -> bool:
    value = run.value(rule.when.measure)
    return value is not None and rule.when.is_beyond(value)
