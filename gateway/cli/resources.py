"""The table of resources: what the API lists, what is shown of each, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from gateway.cli.api import ApiError
from gateway.cli.commands import ApiCommand, Resource
from gateway.cli.explain import explain
from gateway.cli.options import (
    AFTER,
    LIMIT,
    SITE,
    SPIDER,
    TIMING,
    USER,
    argument,
    flag,
    option,
    read_object,
    read_secret,
    read_time,
    timing,
)
from gateway.cli.terminal import Cell, Record, counted, err, gateway_url, given, new_table, out, shown
from gateway.cli.watching import status_text

_Printed = Callable[[Any, Record], str]


def _says(text: str) -> _Printed:
    """Prints `text`, in which the options and the fields of the answer replace the names in braces."""
    return lambda answer, options: text.format(**{**(answer or {}), **options})


def _says_next_run(text: str, field: str) -> _Printed:
    def line(record: Record, _: Record) -> str:
        runs = f"next run {shown(record[field])}" if record[field] else "not run by itself"
        return f"{text.format(**record)}: {runs}"

    return line


def _styled(field: str, styles: dict[str, str], other: str = "") -> Cell:
    return lambda record: Text(record[field], style=styles.get(record[field], other))


def _start(record: Record) -> str:
    """The first start URL, and how many more there are."""
    more = record["start_urls_count"] - 1
    return " ".join(record["start_urls"][:1]) + (f" +{more}" if more > 0 else "")


_DELETED = _says("{id}: deleted")


# --- schedules


def _schedule_line(schedule: Record, _: Record) -> str:
    return f"{schedule['schedule_id']}: {schedule['state']}, next run: {shown(schedule['next_run'])}"


def _interval(schedule: Record) -> str:
    zone = "" if schedule["interval"].startswith("every") else schedule["timezone"]
    return f"{schedule['interval']} {zone}".strip()


def _work(schedule: Record) -> str:
    """Its name; else the spider and where it starts."""
    return str(schedule["name"] or f"{schedule['spider'] or ''} {_start(schedule) or schedule['site'] or ''}".strip())


def _coming_runs(answer: Record, _: Record) -> Table:
    columns = f"{answer['timezone']} local, UTC due"
    return new_table(columns, answer["runs"], local=lambda run: run["local"].replace("T", " "))


def _history(answer: Record, _: Record) -> Table:
    kind = _styled("kind", {"fired": "green", "skipped": "yellow", "missed": "red"})
    columns = "DUE due:time, WHAT kind, LATE late, JOB job_id, *WHY why"
    return new_table(
        columns, answer["entries"], kind=kind, late=lambda entry: f"{entry['late_by_seconds']:.1f}s", why=_why
    )


def _why(entry: Record) -> str:
    missed = f"for {entry['missed']} more that were missed" if entry["missed"] else ""
    return "; ".join(filter(None, (entry["reason"], missed)))


_COUNT = option("count", "How many.", "--count", "-n", kind=int, default=10, min=1, max=100)
_CATCH_UP = option("catch_up", "How to make up for missed runs: one, none or all.")

SCHEDULES = Resource(
    name="schedules",
    one="schedule",
    key="schedule_id",
    digits=32,
    searched=True,
    about="Schedules: what is run again and again.",
    columns="SCHEDULE schedule_id, STATE state, INTERVAL interval, NEXT RUN next_run:time, RUNS runs, *WHAT what",
    cells={
        "state": _styled("state", {"active": "green", "paused": "yellow", "ended": "dim"}),
        "interval": _interval,
        "what": _work,
    },
    actions=(
        ApiCommand(
            "list",
            "GET /schedules",
            "The latest schedules, newest first.",
            options=(USER, option("state", "active, paused or ended."), SITE, LIMIT),
        ),
        ApiCommand("show", "GET /schedules/{id}", "One schedule, as JSON."),
        ApiCommand(
            "edit",
            "PATCH /schedules/{id}",
            "Change when it runs; `PATCH /schedules/{id}` changes the rest.",
            _schedule_line,
            (*TIMING, _CATCH_UP, option("name", "What it is called.")),
            timing,
        ),
        ApiCommand("pause", "POST /schedules/{id}/pause", "Start no run until it is resumed.", _schedule_line),
        ApiCommand("resume", "POST /schedules/{id}/resume", "Go on with its next run.", _schedule_line),
        ApiCommand(
            "next", "GET /schedules/{id}/next", "Its coming runs, in two time zones.", _coming_runs, (_COUNT,)
        ),
        ApiCommand("history", "GET /schedules/{id}/history", "What became of its runs.", _history, (LIMIT,)),
        ApiCommand("end", "POST /jobs/{id}/cancel", "End it for good; its history stays.", _says("{id}: ended")),
        ApiCommand("delete", "DELETE /schedules/{id}", "Delete it with its history; its runs stay.", _DELETED),
    ),
)


# --- jobs, and those of them that are out of retries


def _cancelled(answer: Record, options: Record) -> str:
    asked = "cancellation asked for; it is " if answer.get("status") != "cancelled" else ""
    return f"{options['id']}: {asked}{answer.get('status', '')}"


def _paused(answer: Record, options: Record) -> str:
    asked = "pause asked for; it is " if answer.get("status") != "paused" else ""
    return f"{options['id']}: {asked}{answer.get('status', '')}"


_JOB_FILTERS = (
    option("status", "Only those in this status."),
    SPIDER,
    USER,
    option("schedule_id", "Only runs of this schedule.", "--schedule"),
    SITE,
    option("tag", "Only those with this tag."),
    option("q", "Only with this text in id, spider, tags, URLs or message.", "--search"),
)

JOBS = Resource(
    name="jobs",
    one="job",
    key="job_id",
    digits=32,
    searched=True,
    others=(SCHEDULES,),
    about="Jobs: each is one crawl.",
    columns="JOB job_id, STATUS status, SPIDER spider, *START start, "
    ">PAGES completed_pages, >ITEMS items_count, >ERRORS errors_count, >AGE created_at:age",
    cells={"status": lambda job: status_text(job["status"]), "start": _start},
    actions=(
        ApiCommand(
            "list",
            "GET /jobs",
            "The latest jobs, newest first.",
            options=(*_JOB_FILTERS, LIMIT, AFTER),
            ids={"schedule_id": SCHEDULES},
        ),
        ApiCommand("show", "GET /jobs/{id}", "How far it is, why it waits or failed, and what to do next.", explain),
        ApiCommand(
            "cancel",
            "POST /jobs/{id}/cancel",
            "Stop a crawl: ask it to end, then kill it.",
            _cancelled,
            alone="cancel",
        ),
        ApiCommand(
            "pause",
            "POST /jobs/{id}/pause?begin_anew={begin_anew}",
            "Have a crawl wait until it is resumed; it frees its slot.",
            _paused,
            (flag("begin_anew", "Also where it cannot go on later, and begins anew."),),
            alone="pause",
        ),
        ApiCommand(
            "resume", "POST /jobs/{id}/resume", "Go on with a paused crawl.", _says("{id}: {status}"), alone="resume"
        ),
        ApiCommand("retry", "POST /jobs/{id}/retry", "Run an ended job again; prints the new id.", _says("{job_id}")),
        ApiCommand("delete", "DELETE /jobs/{id}", "Delete an ended job with its items and its log.", _DELETED),
    ),
)

DEAD_LETTERS = Resource(
    name="dead_letters",
    group="dead",
    one="dead letter",
    key="id",
    digits=32,
    searched=True,
    about="Dead letters: jobs that are out of retries.",
    columns="JOB id, SPIDER spider, SITE site, *WHY message, >AGE created_at:age",
    actions=(
        ApiCommand(
            "list", "GET /dead-letters", "The latest dead letters, newest first.", options=(USER, SPIDER, LIMIT)
        ),
        ApiCommand("show", "GET /jobs/{id}", "Why it failed, and what to do next.", explain),
        ApiCommand(
            "requeue",
            "POST /dead-letters/{id}/requeue",
            "Run a dead letter again; prints the new id.",
            _says("{job_id}"),
            alone="requeue",
        ),
        ApiCommand("delete", "DELETE /dead-letters/{id}", "Take it off the list; the job stays.", _DELETED),
    ),
)


# --- sites and targets


def _site(
    file: Path | None = None,
    selectors: list[str] | None = None,
    payload: str | None = None,
    expect: str | None = None,
    **fields: Any,
) -> Record:
    """The record: the fields in the file, overridden by the options."""
    record = read_object("file", f"@{file}") if file else {}
    if selectors:
        record["selectors"] = dict(map(_pair, selectors))
    if payload is not None:
        record["payload"] = read_object("payload", payload)
    if expect is not None:
        record["expect"] = read_object("expect", expect)
    return record | given(**fields)


def _pair(text: str) -> tuple[str, str]:
    name, equals, css = text.partition("=")
    if not (name and equals):
        raise ApiError(f"selector: {text!r} is not of the form name=css")
    return name, css


_SITE_LINE = _says_next_run("{name}", "next_run_at")
_SITE_OPTIONS = (
    option("file", "A JSON file with the record; options override it.", "--file", "-f", kind=Path),
    option("search_url", "Where a search begins, with {keywords}, {location}, {page}."),
    option("spider", "Which spider. Default: jobs."),
    option("project", "The spider's project. Default: the platform's own."),
    option("pagination_type", "next_link, page_param, infinite_scroll or none.", "--pagination"),
    option("selectors", "A selector of `jobs`; repeatable.", "--selector", "-s", kind=list[str], metavar="K=CSS"),
    option("interval_minutes", "How often it is run.", "--every", kind=int, metavar="MINUTES"),
    option("min_pause_seconds", "Shortest pause, in seconds.", "--min-pause", kind=float),
    option("max_pause_seconds", "Longest pause, in seconds.", "--max-pause", kind=float),
    option("rate_limit", "Rate limit of all its runs together: 30/m."),
    option("max_retries", "How many times a failed run is tried again.", "--retries", kind=int),
    option("requires_playwright", "Render pages in a browser.", "--browser/--no-browser", kind=bool),
    option("allow_overlap", "Let runs overlap.", "--overlap/--no-overlap", kind=bool),
    option("payload", "Further parameters for the spider.", metavar="JSON|@FILE"),
    option("expect", "What each run must find: min_items, max_error_rate, fields.", metavar="JSON|@FILE"),
)
_FORCE = option("force", "With its targets.", "--force", kind=bool)

SITES = Resource(
    name="sites",
    one="site",
    key="name",
    about="Sites: where to search, how politely, how often.",
    columns="SITE name, ENABLED enabled:yes, SPIDER spider, EVERY every, LAST RUN last_run_at:time, "
    "NEXT RUN next_run_at:time, *SEARCH search_url",
    cells={"every": lambda site: f"{site['interval_minutes']}m"},
    actions=(
        ApiCommand("list", "GET /sites", "All sites, by name.", all_pages=True),
        ApiCommand("show", "GET /sites/{id}", "One site, as JSON."),
        ApiCommand(
            "add",
            "POST /sites",
            "Add a site, from a file or from options.",
            _SITE_LINE,
            (argument("name", "NAME", "The site's name."), *_SITE_OPTIONS),
            _site,
        ),
        ApiCommand(
            "edit",
            "PATCH /sites/{id}",
            "Change the given fields; selectors and payload as a whole.",
            _SITE_LINE,
            _SITE_OPTIONS,
            _site,
        ),
        ApiCommand(
            "enable",
            "PATCH /sites/{id}",
            "Enable it: it and its targets run again.",
            _SITE_LINE,
            body=lambda: {"enabled": True},
        ),
        ApiCommand(
            "disable",
            "PATCH /sites/{id}",
            "Disable it and its targets; runs under way go on.",
            _SITE_LINE,
            body=lambda: {"enabled": False},
        ),
        ApiCommand(
            "delete", "DELETE /sites/{id}", "Delete it; with its targets only by --force.", _DELETED, (_FORCE,)
        ),
    ),
)


def _target(frequency: str | None = None, **fields: Any) -> Record:
    in_minutes = frequency and frequency.isascii() and frequency.isdigit()
    return given(frequency=int(frequency) if frequency and in_minutes else frequency, **fields)


def _frequency(target: Record) -> str:
    frequency = target["frequency"]
    return "as the site" if frequency is None else f"{frequency}m" if isinstance(frequency, int) else frequency


_TARGET_LINE = _says_next_run("target {number} of {site}", "next_run")
_OF_SITE = argument("site", "SITE", "The site's name.", autocompletion=SITES.complete)
_TARGET_OPTIONS = (
    option("keywords", "What to search for.", "--keywords", "-k"),
    option("location", "Where.", "--location", "-l"),
    option("frequency", "How often. Default: as often as the site.", metavar="CRON|MINUTES"),
    option("timezone", "The time zone of cron. Default: UTC."),
    option("results_wanted", "End with so many.", "--results", kind=int),
    option("is_remote", "Only remote postings, or only others.", "--remote/--on-site", kind=bool),
    option("enabled", "Run it by itself.", "--enable/--disable", kind=bool),
)

TARGETS = Resource(
    name="targets",
    one="target",
    key="id",
    digits=32,
    numbered=True,
    about="Targets: what is searched for on a site, and how often.",
    columns="TARGET number, SITE site, *KEYWORDS keywords, *LOCATION location, *EVERY every, ENABLED enabled:yes, "
    "*LAST SCHEDULED last_scheduled:time, *NEXT RUN next_run:time",
    cells={"every": _frequency},
    actions=(
        ApiCommand("list", "GET /targets", "All targets, by number.", options=(SITE,), all_pages=True),
        ApiCommand("show", "GET /targets/{id}", "One target, as JSON."),
        ApiCommand(
            "add",
            "POST /targets",
            "Search a site for something, again and again.",
            _TARGET_LINE,
            (_OF_SITE, *_TARGET_OPTIONS),
            _target,
        ),
        ApiCommand("edit", "PATCH /targets/{id}", "Change what is named.", _TARGET_LINE, _TARGET_OPTIONS, _target),
        ApiCommand(
            "delete", "DELETE /targets/{id}", "Delete it; runs under way go on.", _says("target {id}: deleted")
        ),
    ),
)


# --- the platform: nodes, projects and their versions, the audit trail


def _advice(answer: Record, _: Record) -> None:
    advice = [(node["name"], node["todo"]) for node in answer["nodes"] if node["todo"]]
    advice += [(f"no node is registered at {one['url']}", one["todo"]) for one in answer["missing"]]
    for name, todo in advice:
        err.print(f"{name}: {todo}", style="yellow", soft_wrap=True)


def _invited(answer: Record, _: Record) -> str:
    for warning in answer["warnings"]:
        err.print(warning, style="yellow", soft_wrap=True)
    if answer["needs"]:
        needs = ", ".join(answer["needs"])
        err.print(f"Set there first, for users of this node alone: {needs}", style="yellow", soft_wrap=True)
    err.print("Run this on the other machine. It is good once, and what it answers has Scrapyd's password.")
    return f"DISCOVERYBOT_KEY={answer['token']} discoverybot join {gateway_url()} NAME"


NODES = Resource(
    name="nodes",
    one="node",
    key="name",
    about="Crawl nodes.",
    columns="NODE name, STATE state, >SLOTS slots, >FAILURES failures, >SEEN heartbeat_at:age, VERSION version, "
    "*URL url, *WHY why",
    cells={
        "state": _styled("state", {"up": "green", "resting": "yellow", "draining": "yellow"}, "red"),
        "slots": lambda node: f"{node['used_slots']}/{node['max_slots']}",
    },
    actions=(
        ApiCommand("list", "GET /nodes", "All nodes: which get work, which do not, and why.", _advice),
        ApiCommand("show", "GET /nodes", "One node, as JSON.", picked=True),
        ApiCommand(
            "invite",
            "POST /nodes/invitations",
            "Let another machine become a node, once: prints the command that makes it one.",
            _invited,
            options=(
                option("minutes", "How long the invitation is good. Default: an hour.", kind=int),
                option("note", "For whom it is."),
            ),
        ),
        ApiCommand(
            "resume",
            "POST /nodes/{id}/resume",
            "Give a node work again: a drained one, and one in quarantine as soon as it answers a probe.",
            _says("{id}: {state}"),
        ),
        ApiCommand(
            "forget", "DELETE /nodes/{id}", "Take a node that is gone off the list.", _says("{id}: forgotten")
        ),
    ),
)


def print_node_answers(answers: Iterable[Record]) -> None:
    """Print each node's answer about a version."""
    for answer in answers:
        done = answer.get("accepted") or answer.get("removed")
        mark = ("✓ ", "green") if done else ("✗ ", "bold red")
        word = counted(answer["spiders"], "spider") if answer.get("accepted") else answer["message"] or "removed"
        (out if done else err).print(Text.assemble(mark, answer["node"], ": ", word), soft_wrap=True)


def _undeployed(answer: Record, options: Record) -> str:
    print_node_answers(answer["nodes"])
    return f"{options['id']} {options['version']}: deleted"


_VERSION = argument("version", "VERSION", "As `discoverybot projects` spells it.")

_LATEST = _says("{name}: {latest} is the latest")


def _versions(project: Record) -> str:
    """The latest one is marked."""
    return " ".join(f"{one}*" if one == project["latest"] else one for one in project["versions"])


PROJECTS = Resource(
    name="projects",
    one="project",
    key="name",
    about="Deployed projects and their versions.",
    columns="PROJECT name, LATEST latest, *VERSIONS versions",
    cells={"versions": _versions},
    actions=(
        ApiCommand("list", "GET /projects", "All deployed projects; the latest version of each has a star."),
        ApiCommand("show", "GET /projects/{id}/versions", "One project's versions, as JSON."),
        ApiCommand(
            "rollback", "POST /projects/{id}/rollback", "Go back to the version that was the latest.", _LATEST
        ),
        ApiCommand(
            "activate",
            "POST /projects/{id}/versions/{version}/activate",
            "Make a version the latest; crawls that name none run it.",
            _LATEST,
            (_VERSION,),
        ),
        ApiCommand(
            "delete",
            "DELETE /projects/{id}/versions/{version}",
            "Delete a deployed version from every crawl node; crawls that run go on.",
            _undeployed,
            (_VERSION,),
            alone="undeploy",
        ),
    ),
)


# --- what a project gives to its crawls


def _variable(value: str | None = None, *, secret: bool = False) -> Record:
    """The value comes from stdin if it is not an argument, because other users of this machine can see arguments."""
    return {"value": read_secret("value") if value is None else value, "secret": secret}


_OF_PROJECT = option("project", "The project.", default=...)

VARIABLES = Resource(
    name="variables",
    group="env",
    one="variable",
    key="name",
    about="Variables that a project's spiders find in their environment; secrets are written, and never shown.",
    columns="VARIABLE name, SECRET secret:yes, CHANGED updated_at:time, *VALUE value",
    cells={"value": lambda variable: "***" if variable["secret"] else variable["value"]},
    actions=(
        ApiCommand("list", "GET /projects/{project}/env", "Those of a project.", options=(_OF_PROJECT,)),
        ApiCommand(
            "set",
            "PUT /projects/{project}/env/{id}",
            "Set one, for attempts that begin from now on.",
            _says("{id}: set"),
            (
                argument("value", "VALUE", "Its value. Default: asked for, or read from stdin.", default=None),
                _OF_PROJECT,
                flag("secret", "Never show it again."),
            ),
            _variable,
        ),
        ApiCommand(
            "unset",
            "DELETE /projects/{project}/env/{id}",
            "Remove one.",
            _says("{id}: removed"),
            (_OF_PROJECT,),
        ),
    ),
)


def _call(entry: Record) -> str:
    call = f"{entry['method'] or ''} {entry['route']}".strip()
    return f"{entry['count']} failed logins" if entry["count"] else call


def _moment(name: str, about: str) -> Parameter:
    return option(name, about, metavar="TIME", callback=lambda text: read_time(text, f"--{name}"))


_AUDIT_FILTERS = (
    option("user_id", "Only by this user's keys.", "--user"),
    option("key_id", "Only by this key (its id).", "--key"),
    option("route", "Only this.", metavar="'/jobs/{job_id}/cancel'"),
    LIMIT,
    _moment("since", "At or after."),
    _moment("until", "Before."),
)

AUDIT = Resource(
    name="entries",
    group="audit",
    one="entry",
    key="id",
    about="The audit trail: calls that may have changed something. Needs an admin's key.",
    columns="AT at:time, STATUS status, USER user_id, KEY key_id, *WHAT call, *ON resources, *FROM address",
    cells={
        "call": _call,
        "resources": lambda entry: " ".join(f"{name}={value}" for name, value in entry["resources"].items()),
    },
    actions=(ApiCommand("list", "GET /audit", "Who did what, newest first.", options=_AUDIT_FILTERS),),
)

RESOURCES = (JOBS, SCHEDULES, SITES, TARGETS, NODES, PROJECTS, VARIABLES, DEAD_LETTERS, AUDIT)
