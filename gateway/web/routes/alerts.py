"""`/alerts`: alerts, and the rules that raise them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

from fastapi import Path, Query, Request

from gateway.access.keys import Caller, Scope
from gateway.errors import AlertNotFoundError, InvalidRequestError, ScopeMissingError
from gateway.signals.alert_rules import BUILT_IN, OF_PLATFORM, AlertMeasure, AlertRule
from gateway.signals.alerts import Alert, AlertStore
from gateway.signals.endpoints import EndpointFilter
from gateway.signals.rule_book import RuleBook
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts, Router
from gateway.web.errors import problems
from gateway.web.middleware import note_changes
from gateway.web.schemas.alert import (
    AlertPage,
    AlertRuleCreate,
    AlertRuleList,
    AlertRulePreviewView,
    AlertRuleUpdate,
    AlertRuleView,
    AlertsQuery,
    AlertView,
    OfUserQuery,
    RulePreviewQuery,
    SilenceRequest,
)

router = Router(prefix="/alerts", tags=["alerts"])

_NAMES = "|".join(BUILT_IN)
RuleId = Annotated[
    str,
    Path(
        description="As `GET /alerts/rules` has it.",
        pattern=f"^([0-9a-f]{{32}}|{_NAMES})$",
        examples=["4d0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"],
    ),
]
AlertId = Annotated[
    str,
    Path(
        description="As `GET /alerts` has it.",
        pattern="^[0-9a-f]{32}$",
        examples=["3e0c8e3a9d1b4c7e8f2a6b5d4c3e2f1a"],
    ),
]
AsUser = Annotated[OfUserQuery, Query()]


@router.get("", summary="List alerts", responses=problems(503))
@needs(Scope.READ)
def list_alerts(query: Annotated[AlertsQuery, Query()], parts: Parts, caller: Called) -> AlertPage:
    """Firing alerts and past ones, the latest first. Pass `next` as `after` for the next page."""
    with mongo_errors():
        found, following = parts[AlertStore].page(
            caller.only(query.user_id), query.limit, query.after, firing=query.firing, but=hidden(caller)
        )
    names = parts[RuleBook].names(found)
    return AlertPage(alerts=[AlertView.of(one, names, parts.clock()) for one in found], next=following)


def hidden(caller: Caller) -> Collection[AlertMeasure]:
    """The measures whose alerts the caller may not see: alerts about nodes are for admins alone."""
    return () if Scope.ADMIN in caller.scopes else OF_PLATFORM


@router.get("/rules", summary="List rules", responses=problems(503))
@needs(Scope.READ)
def list_alert_rules(query: AsUser, parts: Parts, caller: Called) -> AlertRuleList:
    """The caller's rules and the built-in rules; for admins also the rules about nodes. On a gateway without keys,
    the rules of all users.
    """
    found = parts[RuleBook].of_user(_as(caller, query), of_platform=Scope.ADMIN in caller.scopes)
    return AlertRuleList(rules=[AlertRuleView.of(rule, _as(caller, query), parts.clock()) for rule in found])


@router.post("/rules", status_code=201, summary="Make a rule", responses=problems(409, 413, 503))
@needs(Scope.CRAWL)
def create_alert_rule(body: AlertRuleCreate, parts: Parts, caller: Called) -> AlertRuleView:
    """A rule about runs applies from the next run on, and a rule about the present state at once.
    `POST /alerts/rules/preview` shows beforehand which alerts it would have raised.
    """
    user_id = caller.asking(body.user_id)
    return AlertRuleView.of(parts[RuleBook].make(user_id, **_fields(body, caller)), user_id, parts.clock())


@router.post("/rules/preview", summary="What a rule would have said", responses=problems(413, 503))
@needs(Scope.CRAWL)
def preview_alert_rule(
    body: AlertRuleCreate, query: Annotated[RulePreviewQuery, Query()], parts: Parts, caller: Called
) -> AlertRulePreviewView:
    """The alerts that the rule would have raised for the stored runs of the last days. Nobody is notified, and
    nothing is stored.
    """
    fields = _fields(body, caller)
    rule = AlertRule(id="", user_id=caller.asking(body.user_id), created_at=parts.clock(), **fields)
    return AlertRulePreviewView.of(parts[RuleBook].preview(rule, query.days))


@router.get("/rules/{rule_id}", summary="A rule", responses=problems(404, 503))
@needs(Scope.READ)
def get_alert_rule(rule_id: RuleId, query: AsUser, parts: Parts, caller: Called) -> AlertRuleView:
    """One of the caller's own, or one that is built in."""
    return AlertRuleView.of(_rule(rule_id, query, parts, caller), _as(caller, query), parts.clock())


@router.patch("/rules/{rule_id}", summary="Change a rule", responses=problems(404, 409, 413, 503))
@needs(Scope.CRAWL)
def update_alert_rule(  # noqa: PLR0917 - what a route is given
    rule_id: RuleId, body: AlertRuleUpdate, query: AsUser, request: Request, parts: Parts, caller: Called
) -> AlertRuleView:
    """A built-in rule is changed for the caller alone. Admins change the rules about nodes, for everybody."""
    rule = _rule(rule_id, query, parts, caller)
    given = body.model_dump(exclude_unset=True)
    if refused := {name for name, value in given.items() if value is None} - {
        "quiet", "silenced_until", "remind_seconds"
    }:  # fmt: skip
        raise InvalidRequestError(min(refused), "must not be null")
    changed = parts[RuleBook].change(rule, _as(caller, query), given)
    before, after = (AlertRuleView.of(one, _as(caller, query), parts.clock()) for one in (rule, changed))
    note_changes(request, before, after)
    return after


@router.delete("/rules/{rule_id}", status_code=204, summary="Delete a rule", responses=problems(404, 409, 503))
@needs(Scope.CRAWL)
def delete_alert_rule(rule_id: RuleId, query: AsUser, parts: Parts, caller: Called) -> None:
    """Deletes the rule with its alerts; nobody is notified that they have ended. A built-in rule can only be paused.
    If the caller has changed a built-in rule, these changes are deleted.
    """
    parts[RuleBook].delete(_rule(rule_id, query, parts, caller), _as(caller, query))


@router.get("/{alert_id}", summary="An alert", responses=problems(404, 503))
@needs(Scope.READ)
def get_alert(alert_id: AlertId, parts: Parts, caller: Called) -> AlertView:
    """What was found, since when, and when it fired before."""
    return _view(_alert(alert_id, parts, caller), parts)


@router.post("/{alert_id}/silence", summary="Silence an alert", responses=problems(404, 409, 413, 503))
@needs(Scope.CRAWL)
def silence_alert(alert_id: AlertId, body: SilenceRequest, parts: Parts, caller: Called) -> AlertView:
    """If the alert still fires at the end of the silence, its receivers are notified then."""
    return _view(parts[RuleBook].silence(_alert(alert_id, parts, caller), body.until), parts)


@router.delete("/{alert_id}", status_code=204, summary="Forget an alert", responses=problems(404, 503))
@needs(Scope.CRAWL)
def delete_alert(alert_id: AlertId, parts: Parts, caller: Called) -> None:
    """Also deletes what the rule has learned from earlier runs: what was unusual may count as usual from now on."""
    parts[RuleBook].forget(_alert(alert_id, parts, caller))


def _as(caller: Caller, query: OfUserQuery) -> str:
    """The user whose rules are meant; `""`, the operator, while there are no keys."""
    return caller.asking(query.user_id) if query.user_id or caller.key else ""


def _rule(rule_id: str, query: OfUserQuery, parts: GatewayParts, caller: Caller) -> AlertRule:
    """The rule. Raises `ScopeMissingError` if only admins may see it."""
    found = parts[RuleBook].get(rule_id, _as(caller, query))
    if (found.of_all_users or found.when.measure in OF_PLATFORM) and Scope.ADMIN not in caller.scopes:
        raise ScopeMissingError(Scope.ADMIN)
    return found


def _alert(alert_id: str, parts: GatewayParts, caller: Caller) -> Alert:
    """The alert. Raises `AlertNotFoundError`, also if it is about the platform and the caller is no admin."""
    found = parts[RuleBook].alert(alert_id)
    if not caller.may_see(found.user_id) or found.measure in hidden(caller):
        raise AlertNotFoundError(alert_id)
    return found


def _view(alert: Alert, parts: GatewayParts) -> AlertView:
    return AlertView.of(alert, parts[RuleBook].names([alert]), parts.clock())


def _fields(body: AlertRuleCreate, caller: Caller) -> dict[str, Any]:
    if body.all_users and Scope.ADMIN not in caller.scopes:
        raise ScopeMissingError(Scope.ADMIN)
    fields = {name: getattr(body, name) for name in body.model_fields_set - {"user_id", "all_users", "filter"}}
    fields["filter"] = EndpointFilter(**body.filter.model_dump())
    return {**fields, "of_all_users": body.all_users or None}
