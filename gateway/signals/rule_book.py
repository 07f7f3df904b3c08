"""The actions of users on rules and alerts: make, change, preview and silence them."""

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

#: At most this many rules are listed for an operator.
_LISTED = 1000
#: A preview lists at most this many incidents.
_INCIDENTS = 200
#: If one of these fields of a rule changes, its alerts are deleted, because they do not fit the rule any more.
_JUDGED_BY = ("when", "filter", "group_by")


class GroupIncident(NamedTuple):
    group: AlertGroup
    incident: Incident


class RulePreview(NamedTuple):
    """The alerts that a rule would have raised in the past."""

    #: Runs since this time were checked. It is later than the requested time if there were too many runs.
    since: datetime
    #: How many runs were checked.
    runs: int
    #: How often it would have fired.
    times: int
    #: The latest incidents, the newest first.
    incidents: list[GroupIncident]


@define(eq=False, repr=False, slots=False, kw_only=True)
class RuleBook:
    _rules: AlertRuleStore
    _alerts: AlertStore
    _endpoints: EndpointStore
    _figures: PresentFigures
    _clock: Clock = utc_now

    def of_user(self, user_id: str, *, of_platform: bool) -> list[AlertRule]:
        """The user's rules and the built-in rules, in the user's version if there is one. For the operator (`""`):
        the rules of all users.
        """
        with mongo_errors():
            own = self._rules.of_user(user_id, MOST_RULES + len(BUILT_IN)) if user_id else []
            own += self._rules.of_user("", MOST_RULES) if user_id else self._rules.of_operator(_LISTED)
        return with_built_in(user_id, own, of_platform=of_platform)

    def get(self, rule_id: str, user_id: str | None) -> AlertRule:
        """The rule; a built-in rule in the version that applies for this user. Raises `AlertRuleNotFoundError`."""
        with mongo_errors():
            for one in forms(rule_id, user_id or ""):
                if (found := self._rules.get(one) or BUILT_IN.get(one)) is not None:
                    return found
        raise AlertRuleNotFoundError(rule_id)

    def make(self, user_id: str, **fields: Any) -> AlertRule:
        """Make a rule. Raises `ConflictError` if the user has too many rules, and `InvalidRequestError` if an
        endpoint does not belong to the user.
        """
        rule = AlertRule(id=secrets.token_hex(16), user_id=user_id, created_at=self._clock(), **fields)
        self._check(rule, rule.to)
        with mongo_errors():
            if self._rules.count(user_id) >= MOST_RULES:
                raise ConflictError(f"a user has at most {MOST_RULES} rules: delete one that is not needed")
            self._rules.save(rule)
        return rule

    def change(self, rule: AlertRule, user_id: str, fields: dict[str, Any]) -> AlertRule:
        """Replace these fields. Changing a built-in rule makes a version of it for this user. Raises the errors of
        `make`.
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
        # only new endpoints are checked, so that a rule with a deleted endpoint can still be changed
        self._check(changed, set(changed.to) - set(rule.to))
        with mongo_errors():
            self._rules.save(changed)
            if changed.paused or any(_differ(changed, rule, name) for name in _JUDGED_BY):
                self._forget_alerts(changed)
        return changed

    def delete(self, rule: AlertRule, user_id: str) -> None:
        """Delete the rule with its alerts. Of a built-in rule, only the user's version can be deleted. Raises
        `ConflictError`.
        """
        if rule.id != form_of(rule, user_id):
            raise ConflictError("everybody has this rule: pause it, if it is not wanted")
        with mongo_errors():
            self._rules.delete(rule.id)
            self._forget_alerts(rule)

    def _forget_alerts(self, rule: AlertRule) -> None:
        if rule.builtin and not rule.user_id and rule.when.measure not in OF_PLATFORM:
            # the operator's version applied for all users without a version of their own
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

    # --- previews

    def preview(self, rule: AlertRule, days: float) -> RulePreview:
        """The alerts that the rule would have raised in the last days. Raises `InvalidRequestError` for a measure
        whose past values are not stored.
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
        """Send nothing about the alert until this time; `None` ends a silence."""
        with mongo_errors():
            read = alert
            for _ in range(10):
                changed = read.model_copy(update={"silenced_until": until, "due_at": self._clock()})
                if self._alerts.save(changed, read):
                    return changed
                read = self.alert(alert.id)
        raise ConflictError("it changes again and again: try once more")

    def forget(self, alert: Alert) -> None:
        """Delete the alert and the runs that it compares with. It begins anew with the next run."""
        with mongo_errors():
            self._alerts.delete([alert.id])

    def names(self, alerts: Sequence[Alert]) -> dict[str, str]:
        """By the id of the alert: the name of its rule."""
        ids = {alert.id: forms(alert.rule_id, alert.user_id) for alert in alerts}
        with mongo_errors():
            found = {**BUILT_IN, **self._rules.many({one for some in ids.values() for one in some})}
        rules = {alert_id: next((found[one] for one in some if one in found), None) for alert_id, some in ids.items()}
        return {alert_id: rule.name for alert_id, rule in rules.items() if rule is not None}


def _differ(one: AlertRule, other: AlertRule, field: str) -> bool:
    return bool(getattr(one, field) != getattr(other, field))
