"""`discoverybot endpoints`: URLs that are called when something happens, and the result of each call."""

from __future__ import annotations

from inspect import Parameter

from rich.text import Text

from gateway.cli.api import Api, ApiError
from gateway.cli.commands import ApiCommand, Resource
from gateway.cli.options import AFTER, LIMIT, USER, argument, flag, moment, option, under
from gateway.cli.terminal import Record, RecordTable, err, given, new_table
from gateway.sites.site import OPERATOR

#: As in the API's description, which explains them. A newer gateway may have more.
_EVENTS = (
    *("job.started", "job.paused", "job.retried", "job.finished", "job.partial", "job.failed", "job.cancelled"),
    *("items.batch", "dataset.changed", "run.held", "schedule.skipped", "schedule.missed", "schedule.late"),
    *("node.down", "node.up", "deploy.live", "deploy.failed"),
    *("alert.firing", "alert.still_firing", "alert.resolved", "endpoint.disabled"),
)
_STATES = ("pending", "delivered", "failed", "refused", "skipped")
_STYLES = {"delivered": "green", "pending": "yellow", "failed": "red", "refused": "red", "skipped": "dim"}
#: Option → field of the filter.
_FILTERS = {
    "project": "projects",
    "spider": "spiders",
    "site": "sites",
    "dataset": "datasets",
    "schedule": "schedules",
    "tag": "tags",
    "of_user": "users",
}


def _many(name: str, about: str, *flags: str) -> Parameter:
    return option(name, f"{about}; repeatable.", *flags, kind=list[str], metavar="NAME")


def filters() -> tuple[Parameter, ...]:
    return under(
        "Of which crawls",
        *(_many(name, f"Only for this {name}") for name in ("project", "spider", "site", "dataset", "schedule")),
        _many("tag", "Only with this tag"),
        _many("of_user", "Only for this user", "--of-user"),
    )


#: For commands that change something: no other option can remove a filter.
ALL_CRAWLS = flag("all_crawls", "For all crawls again: remove the filter.")


def chosen(options: dict[str, object]) -> Record | None:
    """The filter in the options, and removes it from them."""
    if options.pop("all_crawls", False):
        return {}
    wanted = {field: options.pop(name, None) for name, field in _FILTERS.items()}
    return given(**{field: value or None for field, value in wanted.items()}) or None


_WANTED = (
    option(
        "event", "Only these events; repeatable.", kind=list[str], metavar="EVENT",
        words=_EVENTS,
    ),
    *filters(),
    option(
        "format", "standard; slack: a sentence with a link; apprise: mail, Telegram and others. Default: by its URL.",
        metavar="FORMAT",
        words=("standard", "slack", "apprise"),
    ),
    option("description", "What it is for.", metavar="TEXT"),
)  # fmt: skip


def _body(**options: object) -> Record:
    found, events = chosen(options), options.pop("event", None)
    return given(**options, filter=found, events=events or None)


def as_oneself(api: Api, options: Record) -> None:
    """Without a key, name the user of the console, because the gateway needs a user."""
    options["user_id"] = options["user_id"] or (None if api.key else OPERATOR)


def _say_which(_: Api, options: Record) -> None:
    if not (options["deliveries"] or options["since"] or options["missing"]):
        raise ApiError("say which: --delivery, --since or --missing")


def _state(endpoint: Record) -> Text:
    if endpoint["disabled_at"]:
        return Text("disabled", style="red")
    if endpoint["paused"]:
        return Text("paused", style="dim")
    return Text("failing", style="yellow") if endpoint["failing_since"] else Text("active", style="green")


def _made(answer: Record, _: Record) -> str:
    if answer["secret"] is None:
        return str(answer["endpoint_id"])
    err.print("Its calls are signed with the secret; `endpoints secret` shows it again.")
    return f"{answer['endpoint_id']}\n{answer['secret']}"


def _changed(answer: Record, _: Record) -> str:
    return f"{answer['endpoint_id']}: {_state(answer)}"


def _only(endpoint: Record) -> str:
    found = (f"{name[:-1]} {' or '.join(values)}" for name, values in endpoint["filter"].items() if values)
    return ", ".join(found)


def _deliveries(answer: Record, _: Record) -> RecordTable | None:
    if not answer["deliveries"]:
        err.print("no calls so far, or none that match")
        return None
    if answer["next"]:
        err.print(f"more: --after {answer['next']}")
    return new_table(
        "DELIVERY delivery_id, STATE state, *EVENT type, 2JOB job_id:id, >TRIES tries, 1NEXT next_try:time, "
        ">AGE created_at:age, *ANSWER answer",
        answer["deliveries"],
        state=lambda one: Text(one["state"], style=_STYLES.get(one["state"], "")),
        answer=_answer,
    )


def _answer(delivery: Record) -> str:
    if not (calls := delivery["calls"]):
        return "not called yet" if delivery["state"] == "pending" else "-"
    last = calls[-1]
    return str(last["problem"] or f"{last['status']} in {last['seconds']:g} s")


def _resent(answer: Record, _: Record) -> str:
    return f"called once more: {answer['resent']}"


ENDPOINTS = Resource(
    name="endpoints",
    one="endpoint",
    key="endpoint_id",
    digits=32,
    about="Endpoints: URLs that are called when something happens to crawls.",
    columns="ENDPOINT endpoint_id:id, STATE state, *URL url, 1*EVENTS events, 2*ONLY only, 3CREATED created_at:time",
    empty="no endpoints: `{program} endpoints add URL --event job.failed` makes one",
    cells={"state": _state, "events": lambda one: " ".join(one["events"]) or "all", "only": _only},
    actions=(
        ApiCommand("list", "GET /endpoints", "The latest endpoints, newest first.", options=(USER, LIMIT, AFTER)),
        ApiCommand("show", "GET /endpoints/{id}", "One endpoint, as JSON."),
        ApiCommand(
            "add",
            "POST /endpoints",
            "Have a URL called when something happens; prints its id and its secret.",
            _made,
            (
                argument("url_", "URL", "The URL to call."),
                *_WANTED,
                flag("all_users", "For the crawls of all users; for admins."),
                option("user_id", "Whose endpoint. Default: yours.", "--user", metavar="USER"),
            ),
            lambda url_, **options: _body(url=url_, **{**options, "all_users": options["all_users"] or None}),
            before=as_oneself,
        ),
        ApiCommand(
            "edit",
            "PATCH /endpoints/{id}",
            "Change which events it gets. The filter is replaced as a whole.",
            _changed,
            (option("to", "Another URL.", "--to", metavar="URL"), *_WANTED, ALL_CRAWLS),
            lambda to, **options: _body(url=to, **options),
        ),
        ApiCommand(
            "pause",
            "PATCH /endpoints/{id}",
            "Stop calling it until it is resumed.",
            _changed,
            body=lambda: {"paused": True},
        ),
        ApiCommand(
            "resume",
            "PATCH /endpoints/{id}",
            "Call it again, even if it was disabled. `resend --missing` sends what it missed.",
            _changed,
            body=lambda: {"paused": False},
        ),
        ApiCommand(
            "test",
            "POST /endpoints/{id}/test",
            "Call it now, to see whether it answers.",
            lambda answer, _: f"{answer['delivery_id']}: called; `endpoints deliveries` shows the result",
        ),
        ApiCommand(
            "deliveries",
            "GET /endpoints/{id}/deliveries",
            "Its calls, and what it answered.",
            _deliveries,
            (
                option("state", "Only those in this state.", metavar="STATE", words=_STATES),
                option("type", "Only those about this event.", "--event", metavar="EVENT"),
                LIMIT,
                AFTER,
            ),
        ),
        ApiCommand(
            "resend",
            "POST /endpoints/{id}/deliveries/resend",
            "Send deliveries again: some, those since a time, or all that it missed.",
            _resent,
            (
                option("deliveries", "This one; repeatable.", "--delivery", kind=list[str], metavar="ID"),
                moment("since", "Only those at this time or later; 2h: in the last two hours."),
                flag("missing", "Only those that it missed."),
            ),
            lambda deliveries, since, missing: given(
                deliveries=deliveries or None, since=since, missing=missing or None
            ),
            before=_say_which,
        ),
        ApiCommand(
            "secret",
            "GET /endpoints/{id}/secret",
            "The secret that its calls are signed with.",
            lambda answer, _: str(answer["secret"]),
        ),
        ApiCommand(
            "renew-secret",
            "POST /endpoints/{id}/secret",
            "Make its next secret, and print it.",
            lambda answer, _: str(answer["secret"]),
            (
                option(
                    "keep_hours", "Hours in which calls are also signed with the previous one. Default: 24.", kind=int
                ),
            ),
        ),
        ApiCommand(
            "delete",
            "DELETE /endpoints/{id}",
            "Delete it with its deliveries.",
            lambda _, options: f"{options['id']}: deleted",
            many=True,
        ),
    ),
)
