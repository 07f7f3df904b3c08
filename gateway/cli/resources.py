"""The table of resources: what the API lists, which fields are shown, and which actions there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from gateway.cli.api import Api, ApiError
from gateway.cli.bulk import Bulk
from gateway.cli.commands import ID_PREFIX, ApiCommand, Resource, complete_spiders
from gateway.cli.egg_building import project_of_folder
from gateway.cli.explain import explain
from gateway.cli.options import (
    AFTER,
    HOST,
    LIMIT,
    SITE,
    TIMING,
    USER,
    argument,
    flag,
    moment,
    option,
    read_object,
    read_secret,
    timing,
    under,
)
from gateway.cli.terminal import (
    ID_SHOWN,
    Cell,
    Record,
    RecordTable,
    counted,
    err,
    gateway_url,
    given,
    listed,
    new_table,
    out,
    shown,
    took,
)
from gateway.cli.watching import STATUS_STYLES, status_text
from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.jobs.advice import WAITS_FOR

_Printed = Callable[[Any, Record], str]


def _says(text: str) -> _Printed:
    """A function that prints `text`, with the names in braces replaced by options and fields of the answer."""
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
    first = " ".join(record["start_urls"][:1]).removeprefix("https://")
    return first + (f" +{more}" if more > 0 else "")


def _waits_for(job: Record) -> str:
    reason = job.get("waiting_reason")
    return WAITS_FOR.get(reason, str(reason)).removeprefix("waiting ").removeprefix("for ") if reason else ""


def _duration(job: Record) -> str:
    """The duration of all attempts: from the first start to the end, or until now."""
    return took(job["started_at"], job["finished_at"])


_DELETED = _says("{id}: deleted")


# --- schedules


def _schedule_line(schedule: Record, _: Record) -> str:
    return f"{schedule['schedule_id']}: {schedule['state']}, next run: {_next_run(schedule)}"


def _interval(schedule: Record) -> str:
    return f"{schedule['interval']} {_zone(schedule) or ''}".strip()


def _work(schedule: Record) -> str:
    """The schedule's name, or else the spider, with its project, and its first start URL."""
    project = schedule.get("project", DEFAULT_PROJECT)
    spider = "/".join(filter(None, (project if project != DEFAULT_PROJECT else "", schedule["spider"])))
    return str(schedule["name"] or f"{spider} {_start(schedule) or schedule['site'] or ''}".strip())


def _zone(schedule: Record) -> str | None:
    """The time zone of cron; an interval of minutes has none."""
    return None if schedule["interval"].startswith("every") else schedule["timezone"]


def _next_run(schedule: Record) -> str:
    return listed(schedule["next_run"], _zone(schedule)) if schedule["next_run"] else "-"


def _coming_runs(answer: Record, _: Record) -> RecordTable:
    columns = f"{answer['timezone']} local, UTC due"
    return new_table(columns, answer["runs"], local=lambda run: run["local"].replace("T", " "))


def _history(answer: Record, options: Record) -> RecordTable | None:
    if not answer["entries"]:
        err.print("no runs so far")
        return None
    zone = _zone(options["gateway"].get(f"/schedules/{options['id']}"))
    return new_table(
        "DUE due, WHAT kind, 1>LATE late, JOB job_id:id, *WHY why",
        answer["entries"],
        due=lambda entry: listed(entry["due"], zone),
        kind=_styled("kind", {"fired": "green", "skipped": "yellow", "missed": "red"}),
        late=lambda entry: f"{entry['late_by_seconds']:.1f}s",
        why=_why,
    )


def _why(entry: Record) -> str:
    missed = f"for {entry['missed']} more that were missed" if entry["missed"] else ""
    return "; ".join(filter(None, (entry["reason"], missed)))


_COUNT = option("count", "How many.", "--count", "-n", kind=int, default=10, min=1, max=100)
_CATCH_UP = option("catch_up", "How to make up for missed runs: one, none or all.")

_STATES = ("active", "paused", "ended")
_SCHEDULE_FILTERS = under(
    "Which schedules",
    USER,
    option("state", "active, paused or ended.", metavar="STATE", words=_STATES),
    SITE,
    HOST,
)

SCHEDULES = Resource(
    name="schedules",
    one="schedule",
    key="schedule_id",
    digits=32,
    searched="q",
    about="Schedules: what is run again and again.",
    columns="SCHEDULE schedule_id:id, 1STATE state, *INTERVAL interval, NEXT RUN next_run, 2>RUNS runs, *WHAT what",
    empty="no schedules: `{program} crawl URL --every 1h` makes one",
    cells={
        "next_run": _next_run,
        "state": _styled("state", {"active": "green", "paused": "yellow", "ended": "dim"}),
        "interval": _interval,
        # an older gateway does not count those by hand
        "runs": lambda schedule: str(schedule["runs"] + schedule.get("runs_by_hand", 0)),
        "what": _work,
    },
    actions=(
        ApiCommand(
            "list",
            "GET /schedules",
            "The latest schedules, newest first.",
            options=(*_SCHEDULE_FILTERS, LIMIT),
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
        ApiCommand(
            "pause", "POST /schedules/{id}/pause", "Start no run until it is resumed.", _schedule_line, many=True
        ),
        ApiCommand("resume", "POST /schedules/{id}/resume", "Go on with its next run.", _schedule_line, many=True),
        ApiCommand(
            "next", "GET /schedules/{id}/next", "Its coming runs, in two time zones.", _coming_runs, (_COUNT,)
        ),
        ApiCommand(
            "history",
            "GET /schedules/{id}/history",
            "Its run history: when each ran, or why it did not.",
            _history,
            (LIMIT,),
        ),
        ApiCommand(
            "end", "POST /jobs/{id}/cancel", "End it for good; its history stays.", _says("{id}: ended"), many=True
        ),
        ApiCommand(
            "delete", "DELETE /schedules/{id}", "Delete it with its history; its runs stay.", _DELETED, many=True
        ),
    ),
)


# --- jobs, and those of them that are out of retries


def _cancelled(answer: Record, options: Record) -> str:
    asked = "cancellation asked for; it is " if answer.get("status") != "cancelled" else ""
    return f"{options['id']}: {asked}{answer.get('status', '')}"


def _paused(answer: Record, options: Record) -> str:
    asked = "pause asked for; it is " if answer.get("status") != "paused" else ""
    return f"{options['id']}: {asked}{answer.get('status', '')}"


_SPIDER = option("spider", "Only those of this spider.", metavar="NAME", autocompletion=complete_spiders)


def _project_names(context: typer.Context, incomplete: str) -> list[str]:
    return PROJECTS.complete(context, incomplete)


_JOB_FILTERS = under(
    "Which jobs",
    option(
        "status", "Only those in this status; repeatable.", kind=list[str], metavar="STATUS",
        words=STATUS_STYLES,
    ),
    option("project", "Only those of this project.", metavar="NAME", autocompletion=_project_names),
    _SPIDER,
    USER,
    option("schedule_id", "Only runs of this schedule.", "--schedule", metavar="ID"),
    SITE,
    HOST,
    option("tag", "Only those with this tag."),
    moment("since", "Only those asked for at this time or later; 2h: within the last two hours."),
    moment("until", "Only those asked for before."),
    option("q", "Only with this text in id, spider, tags, URLs or message.", "--search"),
)  # fmt: skip

_ORDERS = ("newest", "oldest", "started", "ended")
_JOB_ORDER = option("sort", "newest, oldest, or those that started or ended last.", metavar="HOW", words=_ORDERS)
_OF_SCHEDULE = {"schedule_id": SCHEDULES}
_AND_SCHEDULES = flag("and_schedules", "With --host: pause the schedules that crawl it, too.")

JOBS = Resource(
    name="jobs",
    one="job",
    key="job_id",
    digits=32,
    searched=ID_PREFIX,
    filters=_JOB_FILTERS,
    others=(SCHEDULES,),
    about="Jobs: each is one crawl.",
    columns="JOB job_id:id, STATUS status, 3*PROJECT project, *SPIDER spider, 4*USER user_id, "
    "5>PAGES completed_pages, 1>ITEMS items_count, 4>ERRORS errors_count, 2>DURATION duration, "
    ">PLACE queue_position, *WAITS FOR waiting_reason, >AGE created_at:age, *START start",
    unless_empty=("queue_position", "waiting_reason"),
    unless_same=("user_id",),
    empty="no jobs: `{program} crawl URL` makes one",
    cells={
        "status": lambda job: status_text(job["status"]),
        "start": _start,
        "duration": _duration,
        "waiting_reason": _waits_for,
    },
    actions=(
        ApiCommand(
            "list",
            "GET /jobs",
            "The latest jobs, newest first.",
            options=(*_JOB_FILTERS, _JOB_ORDER, LIMIT, AFTER),
            ids=_OF_SCHEDULE,
        ),
        ApiCommand("show", "GET /jobs/{id}", "How far it is, why it waits or failed, and what to do next.", explain),
        ApiCommand(
            "cancel",
            "POST /jobs/{id}/cancel",
            "Stop a crawl: ask it to end, then kill it.",
            _cancelled,
            alone="cancel",
            many=True,
            ids=_OF_SCHEDULE,
            bulk=Bulk("cancel", "Cancel {jobs}?", "cancelled, or asked to stop", options=(_AND_SCHEDULES,)),
        ),
        ApiCommand(
            "pause",
            "POST /jobs/{id}/pause?begin_anew={begin_anew}",
            "Have a crawl wait until it is resumed; it frees its slot.",
            _paused,
            (flag("begin_anew", "Even if it cannot continue later, and has to begin anew."),),
            alone="pause",
            many=True,
        ),
        ApiCommand(
            "resume",
            "POST /jobs/{id}/resume",
            "Go on with a paused crawl.",
            _says("{id}: {status}"),
            alone="resume",
            many=True,
        ),
        ApiCommand(
            "retry",
            "POST /jobs/{id}/retry",
            "Run an ended job again; prints the new id.",
            _says("{job_id}"),
            alone="retry",
            many=True,
            ids=_OF_SCHEDULE,
            bulk=Bulk("retry", "Run {jobs} again?", "run again"),
        ),
        ApiCommand(
            "repair",
            "GET /jobs/{id}/repair",
            "What is needed to mend its spider, as JSON: failing pages, errors, fields, differences, source.",
            alone="repair",
        ),
        ApiCommand(
            "delete",
            "DELETE /jobs/{id}",
            "Delete an ended job with its items and its log.",
            _DELETED,
            many=True,
            ids=_OF_SCHEDULE,
            bulk=Bulk("delete", "Delete {jobs} with their items and logs?", "deleted"),
        ),
    ),
)

_LETTER_FILTERS = under("Which dead letters", USER, _SPIDER)

DEAD_LETTERS = Resource(
    name="dead_letters",
    group="dead",
    one="dead letter",
    key="id",
    digits=32,
    searched=ID_PREFIX,
    filters=_LETTER_FILTERS,
    about="Dead letters: jobs that are out of retries.",
    columns="JOB id:id, 2*PROJECT project, *SPIDER spider, 1*SITE site, >AGE created_at:age, *WHY message",
    empty="no dead letters: no job is out of retries",
    actions=(
        ApiCommand(
            "list", "GET /dead-letters", "The latest dead letters, newest first.", options=(*_LETTER_FILTERS, LIMIT)
        ),
        ApiCommand("show", "GET /jobs/{id}", "Why it failed, and what to do next.", explain),
        ApiCommand(
            "requeue",
            "POST /dead-letters/{id}/requeue",
            "Run a dead letter again; prints the new id.",
            _says("{job_id}"),
            alone="requeue",
            many=True,
            bulk=Bulk("requeue", "Run {jobs} again?", "run again", {"dead": True}),
        ),
        ApiCommand(
            "delete",
            "DELETE /dead-letters/{id}",
            "Take it off the list; the job stays.",
            _DELETED,
            many=True,
            bulk=Bulk("dismiss", "Take {jobs} off the list?", "taken off the list", {"dead": True}),
        ),
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
        raise ApiError(f"--selector: {text!r} is not of the form name=css")
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
_FORCE = option("force", "Delete its targets, too.", "--force", kind=bool)

SITES = Resource(
    name="sites",
    one="site",
    key="name",
    about="Sites: where to search, how politely, how often.",
    columns="*SITE name, 3ENABLED enabled:yes, 1*SPIDER spider, 2EVERY every, 4LAST RUN last_run_at:time, "
    "NEXT RUN next_run_at:time, *SEARCH search_url:url",
    empty="no sites: `{program} sites add NAME` adds one",
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
            "Change the given fields. Selectors and payload are replaced as a whole.",
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


def _next_of_target(target: Record) -> str:
    is_cron = isinstance(target["frequency"], str)
    return listed(target["next_run"], target["timezone"] if is_cron else None) if target["next_run"] else "-"


_TARGET_LINE = _says_next_run("target {number} of {site}", "next_run")
_OF_SITE = argument("site", "SITE", "The site's name.", autocompletion=SITES.complete)
_TARGET_OPTIONS = (
    option("keywords", "What to search for.", "--keywords", "-k"),
    option("location", "Where.", "--location", "-l"),
    option("frequency", "How often. Default: as often as the site.", metavar="CRON|MINUTES"),
    option("timezone", "The time zone of cron. Default: UTC."),
    option("results_wanted", "End after this many results.", "--results", kind=int),
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
    columns=">TARGET number, *SITE site, *KEYWORDS keywords, 3*LOCATION location, 1*EVERY every, "
    "2ENABLED enabled:yes, 4LAST SCHEDULED last_scheduled:time, NEXT RUN next_run",
    empty="no targets: `{program} targets add SITE -k KEYWORDS` adds one",
    cells={"every": _frequency, "next_run": _next_of_target},
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
        ApiCommand("edit", "PATCH /targets/{id}", "Change the given fields.", _TARGET_LINE, _TARGET_OPTIONS, _target),
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
        err.print(f"First set these there, with users for this node alone: {needs}", style="yellow", soft_wrap=True)
    err.print("Run this on the other machine. It works once, and its answer contains Scrapyd's password.")
    return f"DISCOVERYBOT_KEY={answer['token']} discoverybot join {gateway_url()} NAME"


NODES = Resource(
    name="nodes",
    one="node",
    key="name",
    about="Crawl nodes.",
    columns="*NODE name, STATE state, >SLOTS slots, 1>FAILURES failures, >SEEN heartbeat_at:age, "
    "2VERSION version, 3*URL url, *WHY why",
    empty="no nodes: start one with `{program} up`, or invite one with `{program} nodes invite`",
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
                option("minutes", "Minutes for which the invitation is valid. Default: an hour.", kind=int),
                option("note", "A note: who it is for."),
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


_VERSION = argument("version", "VERSION", "The version, as in `discoverybot projects`.")

_LATEST = _says("{name}: {latest} is the latest")


def _versions(project: Record) -> str:
    """The versions, with a star at the latest."""
    return " ".join(f"{one}*" if one == project["latest"] else one for one in project["versions"])


PROJECTS = Resource(
    name="projects",
    one="project",
    key="name",
    about="Deployed projects and their versions.",
    columns="*PROJECT name, *LATEST latest, *VERSIONS versions",
    empty="no projects: `{program} deploy` deploys the one in this folder",
    cells={"versions": _versions},
    actions=(
        ApiCommand("list", "GET /projects", "All deployed projects; the latest version of each has a star."),
        ApiCommand("show", "GET /projects/{id}/versions", "One project's versions, as JSON."),
        ApiCommand(
            "rollback", "POST /projects/{id}/rollback", "Go back to the version that was the latest before.", _LATEST
        ),
        ApiCommand(
            "activate",
            "POST /projects/{id}/versions/{version}/activate",
            "Make a version the latest; crawls that name none run it.",
            _LATEST,
            (_VERSION,),
        ),
        ApiCommand(
            "undeploy",
            "DELETE /projects/{id}/versions/{version}",
            "Delete a deployed version from every crawl node; crawls that run go on.",
            _undeployed,
            (_VERSION,),
            alone="undeploy",
        ),
    ),
)


# --- variables and settings that a project gives to its crawls


def require_project(api: Api, name: str, hint: str = "") -> None:
    """Raise `ApiError` if there is no such project: otherwise a misspelt one would seem to have no spiders."""
    known = [project["name"] for project in api.get("/projects")["projects"]]
    if name.lower() not in map(str.lower, known):
        raise ApiError(f"--project: there is no project {name!r}; there is {', '.join(known) or 'none yet'}{hint}")


def _of_folder(name: str | None) -> str:
    """The project, by default the one in scrapy.cfg. Raises `BadParameter`."""
    if found := name or project_of_folder(Path.cwd()):
        return found
    raise typer.BadParameter("name one: there is no scrapy.cfg here that does", param_hint="--project")


def _deployed(api: Api, options: Record) -> None:
    if not options["ahead"]:
        require_project(api, options["project"], ". For one that is still to be deployed: --ahead")


def _variable(value: str | None = None, *, secret: bool = False, ahead: bool = False) -> Record:
    """The body with the value. Without an argument it is read from stdin, because other users can see arguments."""
    del ahead
    return {"value": read_secret("value") if value is None else value, "secret": secret}


_OF_PROJECT = option(
    "project", "The project. Default: that of this folder's scrapy.cfg.", metavar="NAME", callback=_of_folder,
    autocompletion=PROJECTS.complete,
)  # fmt: skip

VARIABLES = Resource(
    name="variables",
    group="env",
    one="variable",
    key="name",
    about="Variables that a project's spiders find in their environment; secrets are written, and never shown.",
    columns="*VARIABLE name, SECRET secret:yes, 1CHANGED updated_at:time, *VALUE value",
    empty="no variables: `{program} env set NAME VALUE --project {project}` sets one",
    cells={"value": lambda variable: "***" if variable["secret"] else variable["value"]},
    actions=(
        ApiCommand("list", "GET /projects/{project}/env", "The variables of a project.", options=(_OF_PROJECT,)),
        ApiCommand(
            "set",
            "PUT /projects/{project}/env/{id}",
            "Set a variable for attempts that begin from now on.",
            _says("{id}: set"),
            (
                argument("value", "VALUE", "Its value. Default: asked for, or read from stdin.", default=None),
                _OF_PROJECT,
                flag("secret", "Never show it again."),
                flag("ahead", "Even if the project is not deployed yet."),
            ),
            _variable,
            before=_deployed,
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


def _cut(value: str) -> str:
    """A shortened id, as tables show it. Names stay whole."""
    return value[:ID_SHOWN] if _ID.fullmatch(value) else value


_ID = re.compile("[0-9a-f]{32}")


def _touched(entry: Record) -> str:
    named = (f"{name}={_cut(value)}" for name, value in entry["resources"].items())
    changed = (f"{name}: {before} → {after}" for name, (before, after) in entry.get("changes", {}).items())
    return " ".join((*named, *changed))


_AUDIT_FILTERS = (
    option("user_id", "Only by this user's keys.", "--user"),
    option("key_id", "Only by this key (its id).", "--key"),
    option("route", "Only this.", metavar="'/jobs/{job_id}/cancel'"),
    LIMIT,
    moment("since", "At or after; 2h: within the last two hours."),
    moment("until", "Before."),
)

AUDIT = Resource(
    name="entries",
    group="audit",
    one="entry",
    key="id",
    about="The audit trail: calls that may have changed something. Needs an admin's key.",
    columns="AT at:second, STATUS status, *USER user_id, 3KEY key_id, *WHAT call, 1*ON resources, 2*FROM address",
    empty="no entries",
    cells={
        "call": _call,
        "resources": _touched,
    },
    actions=(ApiCommand("list", "GET /audit", "Who did what, newest first.", options=_AUDIT_FILTERS),),
)

RESOURCES = (JOBS, SCHEDULES, SITES, TARGETS, NODES, PROJECTS, VARIABLES, DEAD_LETTERS, AUDIT)
