"""What users do with rules and alerts: make, change, try and silence them."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from attrs import define

from gateway.clock import Clock, utc_now
from gateway.errors import AlertNotFoundError, AlertRuleNotFoundError, ConflictError, InvalidRequestError
from gateway.signals.alert_rules import (
    BUILT_IN,
    MOST_RULES,
    OF_PLATFORM,
    OF_RUNS,
    AlertGroup,
    AlertMeasure,
    AlertRule,
    form_of,
    forms,
    with_built_in,
)
from gateway.signals.alerts import Alert, AlertRuleStore, AlertStore
from gateway.signals.endpoints import EndpointStore
from gateway.signals.present_figures import PresentFigures
from gateway.signals.run_figures import ComparedRun, Incident, incidents
from gateway.stores.mongo import mongo_errors

#: Most rules of all users that are listed.
_LISTED = 1000
#: Most incidents that a preview has.
_INCIDENTS = 200
#: Fields of a rule that say what its alerts are: with another value they begin anew.
_JUDGED_BY = ("when", "filter", "group_by")


class GroupIncident(NamedTuple):
    group: AlertGroup
    incident: Incident


class RulePreview(NamedTuple):
    """What a rule would have said."""

    #: Since when runs were looked at: later than asked for if there were too many.
    since: datetime
    #: How many runs were looked at.
    runs: int
    #: How often it would have fired.
    times: int
    #: The latest of them, the newest first.
    incidents: list[GroupIncident]


@define(eq=False, repr=False, slots=False, kw_only=True)
class RuleBook:
    _rules: AlertRuleStore
    _alerts: AlertStore
    _endpoints: EndpointStore
    _figures: PresentFigures
    _clock: Clock = utc_now

    def of_user(self, user_id: str, *, of_platform: bool) -> list[AlertRule]:
        """The user's rules, and those that everybody has, unless the user has a form of its own of them. Of the
        operator (`""`) those of all users.
        """
        with mongo_errors():
            own = self._rules.of_user(user_id, MOST_RULES + len(BUILT_IN)) if user_id else []
            own += self._rules.of_user("", MOST_RULES) if user_id else self._rules.of_operator(_LISTED)
        return with_built_in(user_id, own, of_platform=of_platform)

    def get(self, rule_id: str, user_id: str | None) -> AlertRule:
        """One that everybody has in the form that it has for this user. Raises `AlertRuleNotFoundError`."""
        with mongo_errors():
            for one in forms(rule_id, user_id or ""):
                if (found := self._rules.get(one) or BUILT_IN.get(one)) is not None:
                    return found
        raise AlertRuleNotFoundError(rule_id)

    def make(self, user_id: str, **fields: Any) -> AlertRule:
        """Raises `ConflictError` if the user has too many, `InvalidRequestError` for an endpoint that is none of its
        own.
        """
        rule = AlertRule(id=secrets.token_hex(16), user_id=user_id, created_at=self._clock(), **fields)
        self._check(rule, rule.to)
        with mongo_errors():
            if self._rules.count(user_id) >= MOST_RULES:
                raise ConflictError(f"a user has at most {MOST_RULES} rules: delete one that is not needed")
            self._rules.save(rule)
        return rule

    def change(self, rule: AlertRule, user_id: str, fields: dict[str, Any]) -> AlertRule:
        """The fields replace the old ones. One that everybody has gets a form of its own for this user. Raises as
        `make` does.
        """
        if not fields:
            return rule
        if rule.builtin and rule.id != (form := form_of(rule, user_id)):
            owner = "" if form == form_of(rule, "") else user_id
            fields = {**fields, "id": form, "user_id": owner}
        changed = AlertRule.model_validate({**rule.model_dump(), **fields})
        of_platform = {rule.when.measure, changed.when.measure} & OF_PLATFORM
        if rule.builtin and changed.when != rule.when and of_platform:
            raise InvalidRequestError("when", "of this rule stays; it can be paused, silenced, or told to others")
        # an endpoint that was deleted since keeps nobody from pausing the rule
        self._check(changed, set(changed.to) - set(rule.to))
        with mongo_errors():
            self._rules.save(changed)
            if changed.paused or any(_differ(changed, rule, name) for name in _JUDGED_BY):
                self._forget_alerts(changed)
        return changed

    def delete(self, rule: AlertRule, user_id: str) -> None:
        """With its alerts. One that everybody has cannot be deleted, but its own form is. Raises `ConflictError`."""
        if rule.id != form_of(rule, user_id):
            raise ConflictError("everybody has this rule: pause it, if it is not wanted")
        with mongo_errors():
            self._rules.delete(rule.id)
            self._forget_alerts(rule)

    def _forget_alerts(self, rule: AlertRule) -> None:
        if rule.builtin and not rule.user_id and rule.when.measure not in OF_PLATFORM:
            # the operator's form applies for all who have none of their own
            self._alerts.delete_of_rule(rule.builtin, None, self._rules.with_form(rule.builtin))
        else:
            self._alerts.delete_of_rule(rule.known_as, rule.user_id)

    def _check(self, rule: AlertRule, named: Collection[str]) -> None:
        if rule.when.measure in OF_PLATFORM and not (rule.of_all_users or rule.builtin):
            raise InvalidRequestError("when", f"`{rule.when.measure}` is of the platform: it needs all_users")
        with mongo_errors():
            found = {one.id: one for one in self._endpoints.many(list(named))}
        for endpoint_id in named:
            endpoint = found.get(endpoint_id)
            if endpoint is None or (rule.user_id and endpoint.user_id != rule.user_id):
                raise InvalidRequestError("to", f"has no endpoint {endpoint_id} of this user")

    # --- what it would have said

    def preview(self, rule: AlertRule, days: float) -> RulePreview:
        """What the rule would have said of the last days. Raises `InvalidRequestError` for what is not kept of the
        past.
        """
        when = rule.when
        if when.measure not in OF_RUNS or when.measure is AlertMeasure.NOT_STARTED:
            raise InvalidRequestError("when", f"no past is kept of `{when.measure}`: the rule cannot be tried")
        since = self._clock() - timedelta(days=days)
        groups: dict[AlertGroup, list[ComparedRun]] = defaultdict(list)
        with mongo_errors():
            past, is_whole = self._figures.history(rule, since)
        for subject, figures in past:
            if group := rule.group_of(subject):
                groups[group].append(figures)
        found = [
            GroupIncident(group, incident)
            for group, runs in groups.items()
            for incident in incidents(when, runs[::-1])
        ]
        found.sort(key=lambda one: one.incident.since, reverse=True)
        oldest = since if is_whole or not past else past[-1][1].at
        return RulePreview(oldest, len(past), len(found), found[:_INCIDENTS])

    # --- alerts

    def alert(self, alert_id: str) -> Alert:
        """Raises `AlertNotFoundError`, `UnreadableError`."""
        with mongo_errors():
            found = self._alerts.get(alert_id)
        if found is None:
            raise AlertNotFoundError(alert_id)
        return found

    def silence(self, alert: Alert, until: datetime | None) -> Alert:
        """Nobody is told of it until then; `None` ends a silence."""
        with mongo_errors():
            read = alert
            for _ in range(10):
                changed = read.model_copy(update={"silenced_until": until, "due_at": self._clock()})
                if self._alerts.save(changed, read):
                    return changed
                read = self.alert(alert.id)
        raise ConflictError("it changes again and again: try once more")

    def forget(self, alert: Alert) -> None:
        """What is known of it goes, also what was usual: it begins anew with the next run."""
        with mongo_errors():
            self._alerts.delete([alert.id])

    def names(self, alerts: Sequence[Alert]) -> dict[str, str]:
        """The names of their rules, by the alerts' ids."""
        ids = {alert.id: forms(alert.rule_id, alert.user_id) for alert in alerts}
        with mongo_errors():
            found = {**BUILT_IN, **self._rules.many({one for some in ids.values() for one in some})}
        rules = {alert_id: next((found[one] for one in some if one in found), None) for alert_id, some in ids.items()}
        return {alert_id: rule.name for alert_id, rule in rules.items() if rule is not None}


def _differ(one: AlertRule, other: AlertRule, field: str) -> bool:
    return bool(getattr(one, field) != getattr(other, field))
