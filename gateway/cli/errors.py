"""`discoverybot errors`: the errors of all runs, grouped by their cause."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from gateway.cli.commands import ApiCommand, Resource
from gateway.cli.options import AFTER, LIMIT, USER, moment, option
from gateway.cli.terminal import Record, counted, listed, new_table, program
from gateway.contract.error_fingerprint import title

_STYLES = {"open": "red", "resolved": "green", "ignored": "dim"}
_ORDERS = ("last_seen", "count", "first_seen", "oldest")
_FILTERS = (
    option("project", "Only those of this project.", metavar="NAME"),
    option("spider", "Only those of this spider.", metavar="NAME"),
    option(
        "state",
        "Only these: open, resolved or ignored.",
        metavar="STATE",
        words=_STYLES,
    ),
    option("q", "Only those with this text in the exception, message or place.", "--search", metavar="TEXT"),
    moment("since", "Only those that were seen since then."),
    moment("new_since", "Only those that were first seen since then."),
    moment("until", "Only those that were first seen before then."),
    option(
        "sort", "last_seen, count, first_seen, or oldest: the earliest in that time first.", metavar="HOW",
        words=_ORDERS,
    ),
    USER,
)  # fmt: skip


def _state(error: Record) -> Text:
    is_back = error["state"] == "open" and error["back"] is not None
    return Text("back" if is_back else error["state"], style=_STYLES.get(error["state"], ""))


def _spider(error: Record) -> str:
    return f"{error['project']}/{error['spider']}"


def _since(error: Record) -> str:
    return _seen(error["first_seen"])


def _seen(run: Record) -> str:
    return f"{listed(run['at'])} in {run['version']}" if run["version"] else listed(run["at"])


def _title(error: Record) -> str:
    """The error in one line, with the values of its latest occurrence, as the console has it."""
    return title(error["kind"], error["name"], error["place"], error["example"]["text"] or error["message"])


def _shown(error: Record, _: Record) -> RenderableType:
    example, last = error["example"], error["last_seen"]
    facts = {
        "state": str(_state(error)),
        "spider": _spider(error),
        "place": error["place"],
        "first seen": f"{_since(error)}, job {error['first_seen']['job_id'][:8]}",
        "last seen": f"{_seen(last)}, job {last['job_id'][:8]}",
        "counts": f"{counted(error['count'], 'time')} in {counted(error['runs'], 'run')}, "
        f"{counted(error['runs_since'], 'run')} without it since",
        "example": example["text"],
        "page": example["url"],
        "log": f"{program()} logs {example['job_id'][:8]} --level ERROR",
    }
    lines = [Text(_title(error), style="bold")]
    lines += [Text(f"{name:<10} {value}") for name, value in facts.items() if value]
    runs = new_table("RUN job_id:id, ENDED at:time, *VERSION version, MARK mark, >COUNT count", error["recent_runs"])
    return Group(*lines, "", runs)


def _changed(answer: Record, _: Record) -> str:
    return f"{answer['error_id']}: {answer['state']}"


ERRORS = Resource(
    name="errors",
    one="error",
    key="error_id",
    digits=32,
    about="Errors of all runs, grouped by their cause.",
    columns="ERROR error_id:id, STATE state, >COUNT count, 1>RUNS runs, 2FIRST SEEN since, LAST SEEN last_seen, "
    "FIRST IN RANGE first_since, *SPIDER spider, *WHAT title",
    empty="no errors",
    unless_empty=("first_since",),
    cells={
        "state": _state,
        "spider": _spider,
        "since": _since,
        "title": _title,
        "last_seen": lambda error: listed(error["last_seen"]["at"]),
        "first_since": lambda error: listed(error["first_since"]["at"]) if error.get("first_since") else "-",
    },
    actions=(
        ApiCommand("list", "GET /errors", "The errors that were seen last.", options=(*_FILTERS, LIMIT, AFTER)),
        ApiCommand("show", "GET /errors/{id}", "One error, with an example and its last runs.", _shown),
        ApiCommand(
            "resolve",
            "PATCH /errors/{id}",
            "Mark it as repaired. It opens again if a run that begins later has it.",
            _changed,
            (option("version", "The version that has the repair.", "--in", metavar="VERSION"),),
            lambda version: {"state": "resolved", **({"version": version} if version else {})},
            many=True,
        ),
        ApiCommand(
            "reopen",
            "PATCH /errors/{id}",
            "Mark it as open: not repaired, not ignored.",
            _changed,
            body=lambda: {"state": "open"},
            many=True,
        ),
        ApiCommand(
            "ignore",
            "PATCH /errors/{id}",
            "Ignore it, however often it occurs.",
            _changed,
            body=lambda: {"state": "ignored"},
            many=True,
        ),
    ),
)
