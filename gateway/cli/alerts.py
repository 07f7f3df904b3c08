"""`discoverybot alerts` and `alert-rules`: what somebody should look at, and the rules that say so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from inspect import Parameter

from rich.console import Group, RenderableType
from rich.text import Text

from gateway.cli.api import ApiError
from gateway.cli.commands import ApiCommand, Resource
from gateway.cli.endpoints import ALL_CRAWLS, as_oneself, chosen, filters
from gateway.cli.options import AFTER, LIMIT, USER, argument, flag, option, under
from gateway.cli.terminal import Record, given, new_table

#: As in the API's description, which explains them. A newer gateway may have more.
_MEASURES = (
    *("failed", "incomplete", "not_started", "items", "pages", "errors", "new_errors", "error_share", "duration"),
    *("idle", "waiting", "queue", "held", "node_down", "disk_full"),
)
_GROUPS = ("spider", "schedule", "site", "project", "rule")
_HOURS = option("hours", "For how many hours.", kind=float, default=1.0, min=0.01, max=8760, metavar="N")
_WHOSE = option("user_id", "Whose rule. Default: yours.", "--user", metavar="USER")


def _number(name: str, about: str, kind: type = float) -> Parameter:
    return option(name, about, kind=kind, metavar="N")


_WHEN = under(
    "When",
    option(
        "measure", "What is compared: failed, items, error_share, duration, idle, waiting, queue, held, …",
        metavar="MEASURE", words=_MEASURES,
    ),
    _number("above", "Alert if it is more than this."),
    _number("below", "Alert if it is less than this."),
    _number("of_usual", "Make the bound a multiple of the median of this many earlier runs.", int),
    _number("runs", "Alert only after this many runs in a row.", int),
    _number("for_seconds", "Alert only if it lasts this many seconds: waiting, queue, nodes."),
)  # fmt: skip
_TOLD = under(
    "Who is told, and when",
    option("to", "This endpoint; repeatable. Default: those that want alerts.", kind=list[str], metavar="ENDPOINT"),
    option("quiet", "Notify nobody between these times, such as 22:00-07:00.", metavar="TIMES"),
    option("timezone", "Time zone of the quiet hours. Default: UTC.", metavar="ZONE"),
    _number("remind_seconds", "Notify again after this many seconds, while it lasts."),
)
_RULE = (
    *_WHEN,
    option(
        "group_by", "What has an alert of its own: spider, schedule, site, project, rule.", metavar="WHAT",
        words=_GROUPS,
    ),
    *filters(),
    *_TOLD,
)  # fmt: skip


def _body(**options: object) -> Record:
    names = ("measure", "above", "below", "of_usual", "runs", "for_seconds")
    when = given(**{name: options.pop(name, None) for name in names})
    quiet, zone = options.pop("quiet", None), options.pop("timezone", None)
    found = chosen(options)
    to = options.pop("to", None) or None
    return given(**options, when=when or None, filter=found, quiet=_quiet(quiet, zone), to=to)


def _quiet(times: object, zone: object) -> Record | None:
    if not times:
        return None
    since, dash, until = str(times).partition("-")
    if not dash:
        raise ApiError("--quiet: give two times of day, such as 22:00-07:00")
    return given(since=since.strip(), until=until.strip(), timezone=zone)


def _after(hours: float) -> str:
    return (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="seconds")


def _condition(rule: Record) -> str:
    when = rule["when"]
    bound = [f"{word} {when[word]:g}" for word in ("above", "below") if when.get(word) is not None]
    usual = [f"of the usual ({when['of_usual']} runs)"] if when.get("of_usual") else []
    often = [f"{when['runs']} times in a row"] if when.get("runs", 1) > 1 else []
    return " ".join([when["measure"], *bound, *usual, *often])


def _rule_state(rule: Record) -> Text:
    if rule["paused"]:
        return Text("paused", style="dim")
    return Text("silenced", style="yellow") if rule["silenced_until"] else Text("active", style="green")


def _alert_state(alert: Record) -> Text:
    if not alert["firing"]:
        return Text("over", style="green")
    return Text("firing", style="red" if alert["told"] else "yellow")


def _changed(answer: Record, _: Record) -> str:
    return f"{answer['rule_id']}: {_rule_state(answer)}"


def _previewed(answer: Record, _: Record) -> RenderableType:
    found = answer["incidents"]
    times = "once" if answer["count"] == 1 else f"{answer['count']} times"
    often = f"have fired {times}" if found else "not have fired"
    said = Text(f"it would {often} in {answer['runs']} runs since {answer['since'][:16].replace('T', ' ')}")
    if not found:
        return said
    table = new_table("GROUP group, SINCE since:time, UNTIL until:time, *MESSAGE message", found)
    return Group(said, table)


ALERTS = Resource(
    name="alerts",
    one="alert",
    key="alert_id",
    digits=32,
    about="Alerts: what somebody should look at.",
    columns="ALERT alert_id:id, STATE state, *GROUP group, *RULE rule, SINCE since:time, 1UNTIL until:time, "
    "*MESSAGE message, 2JOB job_id:id",
    empty="no alerts: `{program} alert-rules` has the rules that would raise one",
    cells={"state": _alert_state},
    actions=(
        ApiCommand(
            "list",
            "GET /alerts",
            "The latest alerts, newest first.",
            options=(flag("firing", "Only those that fire now."), USER, LIMIT, AFTER),
            before=lambda _, options: options.update(firing=options["firing"] or None),
        ),
        ApiCommand("show", "GET /alerts/{id}", "One alert with its last incidents, as JSON."),
        ApiCommand(
            "silence",
            "POST /alerts/{id}/silence",
            "Notify nobody for some hours. If the alert still lasts then, it is notified.",
            lambda answer, _: f"{answer['alert_id']}: silenced until {answer['silenced_until']}",
            (_HOURS,),
            lambda hours: {"until": _after(hours)},
        ),
        ApiCommand(
            "unsilence",
            "POST /alerts/{id}/silence",
            "End a silence.",
            lambda answer, _: f"{answer['alert_id']}: not silenced",
            body=lambda: {"until": None},
        ),
        ApiCommand(
            "forget",
            "DELETE /alerts/{id}",
            "Delete the alert, and forget what was usual.",
            lambda _, options: f"{options['id']}: forgotten",
            many=True,
        ),
    ),
)

RULES = Resource(
    name="rules",
    one="rule",
    key="rule_id",
    group="alert-rules",
    digits=32,
    about="Rules: when somebody is alerted.",
    columns="RULE rule_id:id, STATE state, *NAME name, *WHEN when, 1BY group_by",
    empty="no rules",
    cells={"state": _rule_state, "when": _condition},
    actions=(
        ApiCommand("list", "GET /alerts/rules", "Your rules, and those that everybody has.", options=(USER,)),
        ApiCommand("show", "GET /alerts/rules/{id}", "One rule, as JSON.", options=(USER,)),
        ApiCommand(
            "add",
            "POST /alerts/rules",
            "Make a rule; prints its id.",
            lambda answer, _: str(answer["rule_id"]),
            (
                argument("name_", "NAME", "What it is called in messages."),
                *_RULE,
                flag("all_users", "About the crawls of all users; for admins."),
                _WHOSE,
            ),
            lambda name_, **options: _body(name=name_, **{**options, "all_users": options["all_users"] or None}),
            before=as_oneself,
        ),
        ApiCommand(
            "preview",
            "POST /alerts/rules/preview",
            "Show when such a rule would have fired in the last seven days. Nobody is notified.",
            _previewed,
            (argument("name_", "NAME", "What it is called in messages."), *_RULE, _WHOSE),
            lambda name_, **options: _body(name=name_, **options),
            before=as_oneself,
        ),
        ApiCommand(
            "edit",
            "PATCH /alerts/rules/{id}",
            "Change a rule. Its condition and its filter are replaced as a whole.",
            _changed,
            (option("name", "Another name.", metavar="NAME"), *_RULE, ALL_CRAWLS),
            _body,
        ),
        ApiCommand(
            "pause",
            "PATCH /alerts/rules/{id}",
            "Check nothing until it is resumed.",
            _changed,
            body=lambda: {"paused": True},
        ),
        ApiCommand("resume", "PATCH /alerts/rules/{id}", "Look again.", _changed, body=lambda: {"paused": False}),
        ApiCommand(
            "silence",
            "PATCH /alerts/rules/{id}",
            "Notify nobody of its alerts for some hours. Those that still last then are notified.",
            _changed,
            (_HOURS,),
            lambda hours: {"silenced_until": _after(hours)},
        ),
        ApiCommand(
            "unsilence",
            "PATCH /alerts/rules/{id}",
            "End a silence.",
            _changed,
            body=lambda: {"silenced_until": None},
        ),
        ApiCommand(
            "delete",
            "DELETE /alerts/rules/{id}",
            "Delete a rule with its alerts, or your own form of a rule that everybody has.",
            lambda _, options: f"{options['id']}: deleted",
            many=True,
        ),
    ),
)
