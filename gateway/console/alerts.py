"""`/console/alerts`: the alerts that fire now, past alerts, and the rules."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import Query, Request, Response

from gateway.access.keys import Caller, Scope
from gateway.clock import to_iso
from gateway.console.endpoints import filter_form
from gateway.console.pages import Pages, page
from gateway.signals.alert_rules import OF_PLATFORM, OF_RUNS, YES_OR_NO, AlertMeasure, Grouping
from gateway.signals.alerts import AlertStore
from gateway.signals.endpoints import EndpointStore
from gateway.signals.events import ALERTS
from gateway.stores.mongo import mongo_errors
from gateway.web.authorisation import Called, needs
from gateway.web.container import GatewayParts
from gateway.web.dependencies import Parts
from gateway.web.routes.alerts import RuleId, get_alert_rule, hidden, list_alert_rules, list_alerts
from gateway.web.schemas.alert import AlertRuleView, AlertsQuery, OfUserQuery
from gateway.web.schemas.endpoint import CrawlFilter

router = Pages()

#: At most this many firing alerts are listed, and this many past ones.
_FIRING, _OVER = 100, 20
#: At most this many endpoints are searched for one that receives alerts.
_ENDPOINTS = 200
#: The bell counts up to this number.
_COUNTED = 100
#: The words in the form for each measure.
_MEASURES = {
    AlertMeasure.FAILED: "a crawl failed",
    AlertMeasure.INCOMPLETE: "a crawl failed, or finished with errors",
    AlertMeasure.NOT_STARTED: "a scheduled run was skipped or missed",
    AlertMeasure.ITEMS: "number of items",
    AlertMeasure.PAGES: "number of pages",
    AlertMeasure.ERRORS: "number of errors",
    AlertMeasure.NEW_ERRORS: "number of errors that are new, or were resolved and came back",
    AlertMeasure.ERROR_SHARE: "share of pages that failed (0 to 1)",
    AlertMeasure.DURATION: "duration in seconds",
    AlertMeasure.IDLE: "seconds since the last crawl finished",
    AlertMeasure.WAITING: "seconds that a crawl waits to start",
    AlertMeasure.QUEUE: "number of waiting crawls",
    AlertMeasure.HELD: "a run of a dataset is held",
    AlertMeasure.NODE_DOWN: "a node is down",
    AlertMeasure.DISK_FULL: "a node's disk is nearly full",
}
_GROUPS = {
    Grouping.SPIDER: "each spider",
    Grouping.SCHEDULE: "each schedule",
    Grouping.SITE: "each site",
    Grouping.PROJECT: "each project",
    Grouping.RULE: "all together",
}


@router.page("/console/alerts")
@needs(Scope.READ)
def alerts_page(request: Request, query: Annotated[OfUserQuery, Query()], parts: Parts, caller: Called) -> Response:
    firing = list_alerts(AlertsQuery(firing=True, limit=_FIRING), parts, caller)
    over = list_alerts(AlertsQuery(firing=False, limit=_OVER), parts, caller)
    return page(
        request,
        "alerts/list.html",
        firing=firing.alerts,
        over=over.alerts,
        rules=list_alert_rules(query, parts, caller).rules,
        hears=_hears(parts, caller),
        silences=_silences(parts),
        **_form(None, caller),
    )


@router.page("/console/alerts/firing")
@needs(Scope.READ)
def firing_alerts(request: Request, parts: Parts, caller: Called) -> Response:
    """How many alerts fire, for the navigation."""
    with mongo_errors():
        count = parts[AlertStore].count_firing(caller.user_id, _COUNTED, but=hidden(caller))
    return page(request, "alerts/firing.html", count=count, most=_COUNTED)


@router.page("/console/alerts/rules/{rule_id}")
@needs(Scope.READ)
def rule_page(
    rule_id: RuleId, request: Request, query: Annotated[OfUserQuery, Query()], parts: Parts, caller: Called
) -> Response:
    rule = get_alert_rule(rule_id, query, parts, caller)
    return page(request, "alerts/rule.html", rule=rule, silences=_silences(parts), **_form(rule, caller))


def _form(rule: AlertRuleView | None, caller: Caller) -> dict[str, Any]:
    """The context of the template of the form: for a new rule, or to change one."""
    of_nodes = rule is not None and rule.when.measure in OF_PLATFORM
    offered = {one: words for one, words in _MEASURES.items() if of_nodes or one not in OF_PLATFORM}
    return {
        "measures": offered,
        "words": _MEASURES,
        "groups": _GROUPS,
        "yes_or_no": [one.value for one in YES_OR_NO],
        "of_runs": [one.value for one in OF_RUNS],
        "editing": rule,
        "may_change": Scope.CRAWL in caller.scopes,
        **filter_form(rule.filter if rule else CrawlFilter()),
    }


def _hears(parts: GatewayParts, caller: Caller) -> bool:
    """Whether any endpoint receives the alerts of the user; without keys, the alerts of any user."""
    store = parts[EndpointStore]
    with mongo_errors():
        found = store.told_of(caller.name) if caller.name else store.page(None, _ENDPOINTS)[0]
    return any(one.is_active and set(one.events) & {kind.value for kind in ALERTS} for one in found)


def _silences(parts: GatewayParts) -> list[tuple[str, str]]:
    """The durations of a silence that can be chosen: in words, and the time at which it ends."""
    now = parts.clock()
    spans = {"for an hour": timedelta(hours=1), "for a day": timedelta(days=1), "for a week": timedelta(days=7)}
    return [(words, to_iso(now + span)) for words, span in spans.items()]
