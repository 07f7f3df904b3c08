"""Raises alerts, ends them, and tells of both, once for each.

What rules say of runs is looked at when these end (`noted`), as a part of announcing them; what they say of the
present, and what time changes, every few seconds (`look`). Workers do both, any number of them: an alert is changed
by compare-and-set, and its calls have ids that are made from when it began.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog
from attrs import define, field
from pymongo.errors import PyMongoError

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
from gateway.signals.deliveries import DeliveryStore
from gateway.signals.endpoints import EndpointStore, deliveries_of, deliveries_to
from gateway.signals.events import EventType, SignalEvent, Subject, event_id
from gateway.signals.present_figures import PresentFigures
from gateway.signals.run_figures import ComparedRun, check, merged, said

log = structlog.get_logger()

#: Seconds between two looks at what is so now.
EVERY_SECONDS = 5.0
#: Seconds after which a look compares no further rule.
_SECONDS = 1.0
#: Alerts that one look tells of, and rules that it reads at once.
_ALERTS, _RULES = 200, 200
#: How often an alert is changed anew because another worker was first.
_TRIES = 10
#: Seconds after which an alert is looked at again that could not be told of.
_AGAIN = timedelta(seconds=60)


class _Noted(NamedTuple):
    rule: AlertRule
    owner: str
    group: AlertGroup
    runs: list[ComparedRun]
    #: What each run is about.
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
        """Raise or end the alerts about these runs of the user, which may have been noted before. Raises PyMongo's
        errors.
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
            with _apart("rule_not_applied", rule=noted.rule.id, alert=alert_id):
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
        """The alert after these runs; `None` if nothing has to be kept."""
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
        """Raise and end what changes as time passes, and tell of what is to be told. To be called every few seconds.
        Raises PyMongo's errors.
        """
        now = self._clock()
        self._compare_some(now)
        due = self._alerts.due(now, _ALERTS)
        rules = BUILT_IN | self._rules.many({one for alert in due for one in forms(alert.rule_id, alert.user_id)})
        for alert in due:
            is_attended = False
            with _apart("alert_not_attended", alert=alert.id):
                is_attended = self._attend(alert, rules, now)
            if not is_attended:
                self._alerts.look_later(alert.id, now + _AGAIN)

    def _compare_some(self, now: datetime) -> None:
        """Compare rules with the present, from where the last look ended: calls that are due wait for no more than a
        second, however many rules there are.
        """
        began = self._monotonic()
        if self._round is None:
            if began - self._looked_at < EVERY_SECONDS:
                return
            self._looked_at, self._round = began, self._of_present()
        for rule in self._round:
            with _apart("rule_not_compared", rule=rule.id):
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
        """Raise the alerts of what is beyond the rule's bound now, and end the others."""
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
            # another worker may have been first, and sees the same
            self._alerts.save(due.model_copy(update={"updated_at": now}), read)

    # --- what is told

    def _attend(self, alert: Alert, rules: Mapping[str, AlertRule | None], now: datetime) -> bool:
        """Whether that could be done: a rule that cannot be read by this version is to be read by another."""
        there = [rules[one] for one in forms(alert.rule_id, alert.user_id) if one in rules]
        if there and there[0] is None:
            return False
        if there and (rule := there[0]) is not None and not rule.paused:
            self._tell_what_is_due(alert, rule, now)
            return True
        # one that is paused has none: this one was made by a worker that had read the rule before
        self._alerts.delete([alert.id])
        return True

    def _tell_what_is_due(self, alert: Alert, rule: AlertRule, now: datetime) -> None:
        changed = _as_time_passed(rule, alert, now)
        if changed.telling is None and (kind := _next(rule, changed, now)) is not None:
            changed = changed.promises(kind, now)
        changed = changed.model_copy(update={"due_at": _due(rule, changed, now)})
        kept = alert if changed == alert else self._alerts.save(changed, alert)
        if kept is None or kept.telling is None:
            # what another has changed in between is due, too, if there is anything to tell
            return
        self._tell(rule, kept, kept.telling, now)
        done = kept.model_copy(update={"telling": None})
        self._alerts.save(done.model_copy(update={"due_at": _due(rule, done, now)}), kept)

    def _tell(self, rule: AlertRule, alert: Alert, kind: EventType, now: datetime) -> None:
        event = event_of_alert(rule, alert, kind, now, self._public_url)
        # if all that it names were deleted since, it is better to tell others than nobody
        if named := self._endpoints.many(rule.to) if rule.to else []:
            made = deliveries_to(named, event, now)
        else:
            made = deliveries_of(event, self._endpoints.told_of(alert.user_id), now)
        self._deliveries.add(list(made))
        log.info("alert_told", alert=alert.id, type=kind.value, rule=rule.name, group=alert.group)


@contextmanager
def _apart(event: str, **about: str) -> Iterator[None]:
    """No rule and no alert keeps the others from being looked at, nor jobs from being announced."""
    try:
        yield
    except PyMongoError:
        raise
    except Exception:
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
    """Where the console shows it: an occurrence that was no run has no page of its own."""
    if alert.job_id:
        return f"/console/jobs/{alert.job_id}"
    return f"/console/schedules/{alert.group}" if alert.group_by is Grouping.SCHEDULE else "/console/alerts"


def _label(alert: Alert) -> str | None:
    """How people call what the alert is about, where the group's name is none of theirs."""
    if alert.group_by is Grouping.SCHEDULE and alert.subject.spider:
        return f"Schedule {alert.group[:8]} of {alert.subject.project}/{alert.subject.spider}"
    return None


# --- when an alert has to be looked at, and what has to be told then


def _next(rule: AlertRule, alert: Alert, now: datetime) -> EventType | None:
    """What its receivers are to be told now."""
    if _quiet_until(rule, alert, now) is not None:
        return None
    if alert.firing != alert.told:
        return EventType.ALERT_FIRING if alert.firing else EventType.ALERT_RESOLVED
    remind = _remind_at(rule, alert)
    return EventType.ALERT_STILL_FIRING if remind is not None and remind <= now else None


def _as_time_passed(rule: AlertRule, alert: Alert, now: datetime) -> Alert:
    """The alert as it is now: of an idle group it fires without any further run."""
    if (idle := _idle_at(rule, alert)) is None or idle > now:
        return alert
    last = idle - timedelta(seconds=rule.when.above or 0.0)
    return alert.fires(idle, said(rule.when, (now - last).total_seconds()), alert.recent[-1].job_id, None)


def _due(rule: AlertRule, alert: Alert, now: datetime) -> datetime | None:
    if alert.telling is not None:
        return now
    told = now if alert.firing != alert.told else _remind_at(rule, alert)
    if told is not None:
        # not before the end of a silence: what is due and cannot be told would keep others from being looked at
        told = max(told, _quiet_until(rule, alert, now) or told)
    return min((moment for moment in (told, _idle_at(rule, alert)) if moment is not None), default=None)


def _quiet_until(rule: AlertRule, alert: Alert, now: datetime) -> datetime | None:
    """Until when nobody is told."""
    ends = (rule.quiet.end(now) if rule.quiet else None, rule.silenced_until, alert.silenced_until)
    return max((end for end in ends if end is not None and end > now), default=None)


def _remind_at(rule: AlertRule, alert: Alert) -> datetime | None:
    if not (alert.firing and alert.told and alert.told_at and rule.remind_seconds):
        return None
    return alert.told_at + timedelta(seconds=rule.remind_seconds)


def _idle_at(rule: AlertRule, alert: Alert) -> datetime | None:
    """When it will have been idle for too long."""
    if rule.when.measure is not AlertMeasure.IDLE or alert.firing or alert.idle_since is None:
        return None
    return alert.idle_since + timedelta(seconds=rule.when.above or 0.0)


def _after_runs(alert: Alert, runs: Sequence[ComparedRun]) -> Alert:
    """The alert of an idle group after further runs: one that has ended well since it began ends it. Of the runs
    themselves nothing has to be kept: there may be any number of bad ones after the last good one.
    """
    since = max([run.at for run in runs if run.is_good], default=alert.idle_since or runs[0].at)
    alert = alert.model_copy(update={"idle_since": max(since, alert.idle_since or since)})
    return alert.ends(since) if alert.since is not None and since >= alert.since else alert


def _is_beyond(rule: AlertRule, run: ComparedRun) -> bool:
    value = run.value(rule.when.measure)
    return value is not None and rule.when.is_beyond(value)
