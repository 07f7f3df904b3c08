"""`discoverybot crawl`, `logs`, `items`, `files` and `open`: ask for a crawl, watch it, fetch what it found."""

from __future__ import annotations

import codecs
import json
import os
import re
import shlex
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import typer
from rich.console import Console
from rich.text import Text

from gateway.cli.api import Api, ApiError, ExitCode, of_status
from gateway.cli.commands import complete_spiders
from gateway.cli.egg_building import project_of_folder
from gateway.cli.explain import summary, what_is_crawled
from gateway.cli.options import (
    JSON,
    LEVEL,
    TIMING,
    URL,
    argument,
    flag,
    option,
    read_object,
    taking,
    timing,
    under,
)
from gateway.cli.resources import JOBS, PROJECTS, SCHEDULES
from gateway.cli.terminal import (
    Record,
    err,
    gateway_url,
    given,
    listed,
    new_table,
    out,
    print_json,
    program,
    shown,
    stdout_bytes,
    until_then,
    visible,
    visible_json,
)
from gateway.cli.watching import LogLines, TerminalLog, log_line
from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.jobs.advice import WAITS_FOR
from gateway.jobs.job import NUMBERS
from gateway.sites.site import OPERATOR


def gather_params(
    api: Api, spider: dict[str, str | None], text: str | None, pairs: list[str], *, render: bool = False
) -> dict[str, Any]:
    """`--params`, overridden by each `--param`, then by `--render`. `spider` is the query of `GET /spiders`."""
    params = read_object("params", text) if text else {}
    if pairs:
        params |= _typed(pairs, _schema(api, spider))
    return params | ({"render": True} if render else {})


def _schema(api: Api, spider: dict[str, str | None]) -> dict[str, Any] | None:
    """The JSON Schema of the parameters; `None` if any strings are allowed."""
    found = api.get_all("/spiders", **spider)["spiders"]
    # the spider that would run: without a project, the platform's own is preferred; without a version, the latest
    best: dict[str, Any] = max(found, key=_would_run, default={})
    schema: dict[str, Any] | None = best.get("params_schema")
    return schema


def _would_run(spider: dict[str, Any]) -> tuple[bool, bool]:
    return spider["project"] == DEFAULT_PROJECT, bool(spider["latest"])


def _typed(pairs: list[str], schema: dict[str, Any] | None) -> dict[str, Any]:
    """`k=v` pairs, each value of the type that the schema names."""
    properties = {} if schema is None else schema.get("properties", {})
    texts = _pairs("param", pairs, str) or {}
    takes_text = {name for name in texts if schema is None or _takes_text(properties.get(name, {}))}
    return {name: text if name in takes_text else _json_or_text(text) for name, text in texts.items()}


def _pairs(option: str, pairs: list[str] | None, read: Callable[[str], Any]) -> dict[str, Any] | None:
    """`k=v` pairs; `None` without any. Raises `ApiError`, which quotes no value: one may be secret."""
    for pair in pairs or []:
        if pair.partition("=")[0] in {"", pair}:
            raise ApiError(f"--{option}: {pair.partition('=')[0]!r} is not of the form name=value")
    return {pair.partition("=")[0]: read(pair.partition("=")[2]) for pair in pairs} if pairs else None


def _takes_text(schema: dict[str, Any]) -> bool:
    """Whether the schema allows only text, or text and `null`."""
    choices = [choice.get("type") for choice in schema.get("anyOf", [schema])]
    return [choice for choice in choices if choice != "null"] == ["string"]


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


# --- `discoverybot items`: what a crawl found, to a file or to stdout

STDOUT = "-"
TEXT_FORMATS = ("jsonl", "json", "csv")
FORMATS = (*TEXT_FORMATS, "xlsx", "parquet")


def _format(formats: Sequence[str]) -> Any:
    said = f"{', '.join(formats[:-1])} or {formats[-1]}. Default: by the file's name."
    return option("item_format", said, "--format", metavar="FORMAT", words=formats)


_ESCAPE = option(
    "escape_formulas",
    "In a CSV, put a ' before text that a spreadsheet would take for a formula.",
    "--escape-formulas/--no-escape-formulas",
    kind=bool,
    default=True,
)
_TEXT = option("q", "Only those with this text.", "--search")


@taking(
    JOBS.parameter("job_id"),
    option("limit", "Only the first N. Default: all.", "--limit", "-n", kind=int, min=1, max=1000),
    option("fields", "Only these fields, in this order; a.b is the field b in a.", metavar="A,B,…"),
    _TEXT,
    _format(FORMATS),
    option("output", "The file to write; `-` is stdout.", "--output", "-o", default=STDOUT, metavar="FILE"),
    _ESCAPE,
    flag("as_json", "The same as --format json.", "--json"),
    URL,
)
def items(*, job_id: str, item_format: str | None, output: str, as_json: bool, url: str | None, **query: Any) -> None:
    """The items of a crawl, also while it runs."""
    chosen = _chosen(item_format, output, as_json=as_json)
    api = Api(gateway_url(url))
    save_items(api, JOBS.find(api, job_id), chosen, output, **query)


def _chosen(item_format: str | None, output: str, formats: Sequence[str] = FORMATS, *, as_json: bool) -> str:
    """The format, after checking that it can be written there. Raises `BadParameter`."""
    chosen = item_format or ("json" if as_json else format_of(output, formats))
    if chosen not in formats:
        raise typer.BadParameter(f"{chosen!r} is not a format: choose {', '.join(formats)}", param_hint="--format")
    if chosen not in TEXT_FORMATS and output == STDOUT and sys.stdout.isatty():
        raise typer.BadParameter(f"{chosen} is not for a terminal: name a file", param_hint="--output")
    check_writable(output)
    return chosen


# --- `discoverybot requests`: what a crawl asked for

_REQUESTS = "*URL url:url, STATUS status, >MS ms, 1>BYTES bytes, *WHY why"
_CLASSES = ("2xx", "3xx", "4xx", "5xx")


@taking(
    JOBS.parameter("job_id"),
    *under(
        "Which requests",
        flag("failed", "Only those that failed: no answer, 429 or 5xx, after all retries."),
        option("status", "Only with this status, 404, or of this class, 4xx.", metavar="STATUS",
               words=_CLASSES),
        option("slow_ms", "Only those that took at least this many milliseconds, the slowest first.", "--slow",
               kind=int, metavar="MS"),
        _TEXT,
        option("sort", "oldest, slowest or largest first.", metavar="ORDER", words=("at", "-ms", "-bytes"),
               also={"oldest": "at", "slowest": "-ms", "largest": "-bytes"}),
        option("limit", "At most N. Default for --output: all.", "--limit", "-n", kind=int, min=1, max=1000),
    ),
    _format(TEXT_FORMATS),
    option("output", "Write them to a file; `-` is stdout. Default: a table.", "--output", "-o", metavar="FILE"),
    _ESCAPE,
    JSON,
    URL,
)  # fmt: skip
def requests(
    *, job_id: str, item_format: str | None, output: str | None, escape_formulas: bool, as_json: bool,
    url: str | None, failed: bool, **query: Any,
) -> None:  # fmt: skip
    """What a crawl asked for, with status, time and size of each answer, also while it runs."""
    api, query = Api(gateway_url(url)), {"failed": "true" if failed else None, **query}
    if query["slow_ms"] is not None:
        query["sort"] = query["sort"] or "-ms"
    if item_format or output:
        chosen = _chosen(item_format, output or STDOUT, TEXT_FORMATS, as_json=as_json)
        path = f"/jobs/{JOBS.find(api, job_id)}/requests"
        save(api, path, chosen, output or STDOUT, escape_formulas=escape_formulas, **query)
        return
    answer = api.get(f"/jobs/{JOBS.find(api, job_id)}/requests", **{**query, "limit": query["limit"] or 20})
    if as_json:
        print_json(answer)
        return
    if answer["requests"]:
        out.print(
            new_table(_REQUESTS, answer["requests"], why=lambda one: one["reason"] or one["redirected_to"] or "")
        )
    else:
        err.print("no requests match" if given(**{**query, "sort": None, "limit": None}) else "no requests yet")
    if answer["next"]:
        err.print("more: --limit, or all of them with --output FILE", style="dim")


_FIELDS = "*FIELD name, >FILLED share, >BEFORE share_before, 1LOWER SINCE lower_since, TYPES types, 2*EXAMPLE example"
_TIDY_FIELDS = _FIELDS.replace("1LOWER SINCE lower_since, ", "")


@taking(JOBS.parameter("job_id"), JSON, URL)
def fields(*, job_id: str, as_json: bool, url: str | None) -> None:
    """How full each field of a crawl's items is, and was in earlier runs. This shows which field broke."""
    api = Api(gateway_url(url))
    job_id, counted = JOBS.find(api, job_id), -1
    path = f"/jobs/{job_id}/fields"
    answer = api.get(path, compare="runs")
    # the gateway counts for a few seconds per call
    while counted < answer["counted"] < answer["items"]:
        counted, answer = answer["counted"], api.get(path, compare="runs")
    if as_json:
        print_json(answer)
    elif answer["fields"]:
        _print_fields(api, answer)
    else:
        err.print("its items were removed: their retention time was over" if answer["removed_at"] else "no items yet")


def _print_fields(api: Api, answer: Record) -> None:
    since, back = _lower_since(api, answer) if any(one["lower"] for one in answer["fields"]) else ({}, "")
    out.print(
        new_table(
            _FIELDS if since else _TIDY_FIELDS,
            answer["fields"],
            share=_filled,
            share_before=_filled_before,
            types=_types,
            lower_since=lambda field: since.get(field["name"], ""),
        )
    )
    if not answer["runs"]:
        err.print("there is nothing before: no earlier run of the same crawl that you may see ended well")
    if back:
        err.print(back, soft_wrap=True)


def _lower_since(api: Api, answer: Record) -> tuple[dict[str, str], str]:
    """By field: the run since which it is lower, with its version and time. And how to go back, if a new version came
    with that run, and the field is still lower in the last run.
    """
    job = api.get(f"/jobs/{answer['job_id']}")
    project, spider = (quote(job["spec"][name], safe="") for name in ("project", "spider"))
    found = api.get(f"/spiders/{project}/{spider}/fields", schedule_id=job["schedule_id"])
    still = {one["name"] for one in found["fields"] if one["lower_since"]}
    runs = [{**job, "version": job["spec"]["version"]}, *answer["runs"]]
    places = {run["job_id"]: place for place, run in enumerate(runs)}
    since, is_new = dict[str, str](), False
    for one in (one for one in answer["fields"] if one["lower_since"] in places):
        place = places[one["lower_since"]]
        run, before = runs[place], next(iter(runs[place + 1 :]), None)
        said = (run["job_id"][:8], run["version"], run["finished_at"] and listed(run["finished_at"]))
        since[one["name"]] = ", ".join(filter(None, said))
        is_new |= one["name"] in still and bool(before and run["version"] and run["version"] != before["version"])
    back = f"to go back: {program()} projects rollback {shlex.quote(job['spec']['project'])}"
    return since, back if is_new else ""


def _filled(field: Record) -> Text:
    return Text(f"{field['share']:.1%}", style="red" if field["lower"] else "")


def _filled_before(field: Record) -> str:
    return "-" if field["share_before"] is None else f"{field['share_before']:.1%}"


def _types(field: Record) -> str:
    """The types, the most frequent first."""
    return ", ".join(sorted(field["types"], key=field["types"].__getitem__, reverse=True)) or "-"


def format_of(output: str, formats: Sequence[str] = FORMATS) -> str:
    """The format by the file's name; JSON Lines for stdout. Raises `BadParameter` for another ending."""
    suffix = Path(output).suffix.lstrip(".").lower()
    if output == STDOUT:
        return "jsonl"
    if suffix not in formats:
        endings = ", ".join(f".{form}" for form in formats[:-1])
        raise typer.BadParameter(f"{output!r} must end in {endings} or .{formats[-1]}", param_hint="--output")
    return suffix


def check_writable(output: str) -> None:
    """Raises `BadParameter` if no file can be made there. This is checked before the crawl, so that
    nothing is lost.
    """
    folder = Path(output).absolute().parent
    if output == STDOUT or (folder.is_dir() and os.access(folder, os.W_OK) and not Path(output).is_dir()):
        return
    problem = "is a folder" if Path(output).is_dir() else f"the folder {folder} cannot be written to"
    raise typer.BadParameter(f"{output!r}: {problem}", param_hint="--output")


def save_items(api: Api, job_id: str, item_format: str, output: str, **query: Any) -> None:
    """Save all items, or those that the query names."""
    save(api, f"/jobs/{job_id}/items", item_format, output, **query)


def save(api: Api, path: str, item_format: str, output: str, *, escape_formulas: bool = True, **query: Any) -> None:
    """Save what the gateway answers at `path`. A file is complete or absent. On a terminal, control characters are
    made visible. A CSV file begins with a byte order mark, by which spreadsheets recognise UTF-8, unless it must be
    as scraped.
    """
    query |= {"format": item_format, "escape_formulas": None if escape_formulas else "false"}
    query["bom"] = "true" if item_format == "csv" and output != STDOUT and escape_formulas else None
    pieces, to_terminal = api.download(path, **query), output == STDOUT and sys.stdout.isatty()
    with writing(output) as file:
        for piece in _visible_lines(pieces, item_format) if to_terminal else pieces:
            file.write(piece)
    if output != STDOUT:
        err.print(f"{path.rpartition('/')[2]}: {output}")


def _visible_lines(pieces: Iterable[bytes], item_format: str) -> Iterator[bytes]:
    show, torn = (visible if item_format == "csv" else visible_json), ""
    for text in codecs.iterdecode(pieces, "utf-8", "replace"):
        *lines, torn = (torn + text).split("\n")
        yield "".join(show(line.removesuffix("\r")) + "\n" for line in lines).encode()
    yield show(torn).encode()


@contextmanager
def writing(output: str) -> Iterator[BinaryIO]:
    if output == STDOUT:
        with stdout_bytes() as file:
            yield file
        return
    target = Path(output).absolute()
    try:
        # the folder is beside the file, so on the same file system; it is removed even after an error
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            unfinished = Path(folder) / target.name
            with unfinished.open("wb") as file:
                yield file
            unfinished.replace(target)
    except OSError as error:
        raise ApiError(f"--output: {output}: {error.strerror}") from None


# --- `discoverybot logs` and `schedules run`


@taking(
    JOBS.parameter("job_id"),
    flag("follow_log", "Follow the crawl to its end.", "--follow", "-f"),
    option("tail", "Begin with the last N lines.", "--tail", "-n", kind=int, min=1, max=5000),
    LEVEL,
    flag(
        "full",
        "Print Scrapy's setup and statistics even on a terminal. In a file or pipe they always are.",
        "--full",
    ),
    flag("as_json", "Print each line as a JSON document.", "--json"),
    URL,
)
def logs(
    *, job_id: str, follow_log: bool, tail: int | None, level: str | None, full: bool, as_json: bool, url: str | None
) -> None:
    """The log of a crawl. With -f the exit code is that of `crawl`."""
    if as_json and follow_log:
        raise typer.BadParameter("choose one of --json and --follow", param_hint="--json")
    api = Api(gateway_url(url))
    job_id = JOBS.find(api, job_id)
    api.get(f"/jobs/{job_id}/status")  # refuses at once if there is no such job
    after = "" if tail is None else _print_last(api, job_id, tail, level, as_json=as_json)
    if follow_log:
        raise typer.Exit(watch(api, job_id, out, level, after, whole=full))
    if tail is None:
        _print_log(api, job_id, level, None if as_json else LogLines(out, full))


def _print_last(api: Api, job_id: str, tail: int, level: str | None, *, as_json: bool) -> str:
    """Print the last lines of that level. Returns the event of the stream after which the log continues."""
    counted = api.get(f"/jobs/{job_id}/logs/index", level=level)
    first = max(1, counted["lines"] - tail + 1)
    path, query = f"/jobs/{job_id}/logs/lines", {"level": level, "limit": tail, "max_length": 1 << 20}
    answer = api.get(path, line=first, **query)
    lines = answer["lines"]
    # an answer may end early, because a search takes time
    while answer["next"] and len(lines) < tail:
        answer = api.get(path, **{**query, "from": answer["next"], "limit": tail - len(lines)})
        lines += answer["lines"]
    for line in lines:
        shown = {name: value for name, value in line.items() if name not in {"id", "start", "length"}}
        out.print(visible_json(json.dumps(shown)) if as_json else log_line(line), soft_wrap=True)
    # event ids in a schedule's stream begin with the run
    of_run = f"{answer['run']}." if answer["run"] not in {None, job_id} else ""
    return f"{of_run}{lines[-1]['id']}" if lines else ""


def _print_log(api: Api, job_id: str, level: str | None, pretty: LogLines | None) -> None:
    torn = b""
    for piece in api.download(f"/jobs/{job_id}/logs", level=level, headers={"Accept": "application/x-ndjson"}):
        *lines, torn = (torn + piece).split(b"\n")
        for line in lines:
            if pretty:
                pretty.print(json.loads(line))
            else:
                out.print(visible_json(line.decode()), soft_wrap=True)
    if pretty:
        pretty.flush()


@taking(
    SCHEDULES.parameter("schedule_id"), flag("follow_log", "Watch it to its end.", "--follow", "-f"), LEVEL, JSON, URL
)
def run(*, schedule_id: str, follow_log: bool, level: str | None, as_json: bool, url: str | None) -> None:
    """Run it now, in addition to its own runs. With -f the exit code is that of `crawl`."""
    api = Api(gateway_url(url))
    receipt = api.post(f"/schedules/{SCHEDULES.find(api, schedule_id)}/run")
    code = watch(api, receipt["job_id"], err if as_json else out, level) if follow_log else ExitCode.OK
    if as_json:
        print_json(receipt)
    elif not follow_log:
        out.print(receipt["job_id"])
    raise typer.Exit(code)


# --- `discoverybot crawl`

_DEFAULT_SPIDER = "seo"
_WORDS = "Which spider, and where to start: example.com is https://example.com. Some spiders have start URLs."
_TIMES = {one.name for one in TIMING}
_FOLLOW = "Watch it to its end. Default: yes, unless it runs later."
_ORDER = ("max_retries", "priority")
_LIMITS = [option(name, one.option, kind=int) for name, one in NUMBERS.items() if name not in _ORDER]
_QUEUE = [option(name, NUMBERS[name].option, kind=int) for name in _ORDER]
_OPTIONS = (
    argument("words", "[SPIDER] [URL…]", _WORDS, kind=list[str], default=None, autocompletion=complete_spiders),
    *under(
        "What to crawl",
        option("spider", "Which spider. Default: seo.", "--spider", "-s", metavar="NAME",
               autocompletion=complete_spiders),
        option("project", "Its project. Default: that of this folder's scrapy.cfg, if it has the spider, else the "
               "platform's own, else the only one that has it.", metavar="NAME", autocompletion=PROJECTS.complete),
        option("version", "Its version. Default: the latest."),
        option("pairs", "A parameter of the spider; repeatable.", "--param", "-p", kind=list[str], metavar="K=V"),
        option("params", "All its parameters at once.", metavar="JSON|@FILE"),
        flag("render", "Render pages in a browser, for those that need JavaScript."),
    ),
    *under("When to stop", *_LIMITS),
    *under(
        "How to fetch",
        option("headers", "A header for the start URLs' hosts; repeatable.", "--header", "-H", kind=list[str],
               metavar="'K: V'"),
        option("proxy", "An http proxy: http://user:password@host:8080.", metavar="URL"),
        option("settings", "A setting of Scrapy; repeatable.", "--setting", kind=list[str], metavar="K=V"),
        option("env", "A variable of a deployed project's spider; repeatable.", kind=list[str], metavar="K=V"),
        option("ignore_cache", "Crawl again, without any cache.", "--ignore-cache", kind=bool),
    ),
    *TIMING,
    *under(
        "Queue and outcome",
        *_QUEUE,
        option("tags", "A tag, to find it by; repeatable.", "--tag", kind=list[str]),
        option("user_id", "Who asks. Default: the user of your key, or operator.", "--user", metavar="USER"),
        option("dataset", "The dataset that its items become part of.", metavar="NAME|JSON|@FILE"),
        option("min_items", "Expect this many items; with fewer it is partial.", kind=int),
        option("expect", "All that is expected: min_items, max_error_rate, fields.", metavar="JSON|@FILE"),
        option("webhook_url", "Call this URL at the end of each run.", "--webhook", metavar="URL"),
    ),
    *under(
        "Output",
        flag("dry_run", "Show what would happen, without requesting the crawl."),
        option("follow_log", _FOLLOW, "--follow/--no-follow", kind=bool),
        option("output", "Its items: .jsonl, .csv, .xlsx and so on; `-`: stdout.", "--output", "-o", metavar="FILE"),
        LEVEL,
        flag("as_json", "Print the ended job as JSON, or the receipt if it is not watched.", "--json"),
    ),
    URL,
)  # fmt: skip


@taking(*_OPTIONS)
def crawl(
    *,
    words: list[str] | None,
    spider: str | None,
    follow_log: bool | None,
    dry_run: bool,
    output: str | None,
    level: str | None,
    as_json: bool,
    url: str | None,
    **fields: Any,
) -> None:
    """Crawl, with the log live. Exit code: 0 finished, 1 error, 2 refused, 3 partial, 4 cancelled, 130 Ctrl-C."""
    for_later = not timing(**{name: fields[name] for name in _TIMES}).keys().isdisjoint(_SCHEDULED)
    following = not for_later if follow_log is None else follow_log
    if as_json and output == STDOUT:
        raise typer.BadParameter("choose one of --json and --output -", param_hint="--json")
    item_format = _item_format(output, following=following)
    api = Api(gateway_url(url))
    body = _body(api, spider, words or [], **fields)
    if dry_run:
        raise typer.Exit(_preview(api.post("/crawl/preview", json=body), as_json=as_json))
    receipt = api.submit(body)
    if following:
        console = err if as_json or output == STDOUT else out
        code = _followed(api, receipt, item_format, output, level, console=console)
        if as_json:
            print_json(api.get(f"/jobs/{receipt['job_id']}"))
        raise typer.Exit(code)
    zone = body.get("timezone") if fields["cron"] else None
    _print_receipt(api, receipt, as_json=as_json, scheduled=for_later and follow_log is None, zone=zone)


#: The options of `TIMING` as fields of the API.
_SCHEDULED = frozenset({"schedule_at", "interval", "ends_at", *_TIMES})


def _body(
    api: Api,
    spider: str | None,
    words: list[str],
    *,
    params: str | None,
    pairs: list[str] | None,
    settings: list[str] | None,
    env: list[str] | None,
    headers: list[str] | None,
    proxy: str | None,
    render: bool,
    min_items: int | None,
    expect: str | None,
    dataset: str | None,
    **fields: Any,
) -> Record:
    """The body for `POST /crawl`. Raises `ApiError`, `BadParameter`."""
    fetch = given(headers=_headers(headers), proxy=proxy) or None
    chosen, variables = _pairs("setting", settings, _json_or_text), _pairs("env", env, str)
    expected, is_named = _expected(expect, min_items), spider is not None
    name, start_urls = _spider_and_urls(api, spider, words)
    if fields["project"] is None and fields["version"] is None and (is_named or name != _DEFAULT_SPIDER):
        fields["project"] = _project_here(api, name)
    asked = {"project": fields["project"], "version": fields["version"], "name": name}
    found = gather_params(api, asked, params, pairs or [], render=render)
    body = timing(spider=name, start_urls=start_urls or None, params=found or None, **fields)
    body |= given(dataset=_dataset(dataset), expect=expected, settings=chosen, env=variables, fetch=fetch)
    return ({} if api.key else {"user_id": OPERATOR}) | body


def _dataset(text: str | None) -> Record | str | None:
    """The dataset in `text`: a name, or an object with a name and options."""
    return read_object("dataset", text) if text and text[0] in "{@" else text


def _project_here(api: Api, spider: str) -> str | None:
    """The project of the current folder, if it is deployed and has the spider."""
    name = project_of_folder(Path.cwd())
    if name in {None, DEFAULT_PROJECT} or not api.get("/spiders", project=name, name=spider, limit=1)["spiders"]:
        return None
    err.print(Text(f"project {name}, as scrapy.cfg says; --project names another", style="dim"), soft_wrap=True)
    return name


def _headers(lines: list[str] | None) -> dict[str, str] | None:
    """`Name: value` lines. Raises `ApiError`, which quotes no value: one may be secret."""
    pairs = [line.partition(":") for line in lines or []]
    if wrong := next((name for name, colon, _ in pairs if not (name.strip() and colon)), None):
        raise ApiError(f"--header: {wrong!r} is not of the form 'Name: value'")
    return {name.strip(): value.strip() for name, _, value in pairs} or None


# --- `crawl --dry-run`


def _preview(answer: Record, *, as_json: bool) -> ExitCode:
    """Print what `POST /crawl` would answer. Returns the exit code."""
    if as_json:
        print_json(answer)
    else:
        for head, text in _foreseen(answer):
            out.print(Text.assemble((f"{head:<9} ", "bold"), visible(text)), soft_wrap=True)
        for problem in answer["problems"]:
            err.print(Text.assemble(("refused: ", "bold red"), visible(problem["message"])), soft_wrap=True)
    return ExitCode.OK if answer["accepted"] else ExitCode.REFUSED


def _foreseen(answer: Record) -> Iterator[tuple[str, str]]:
    if crawled := answer["crawl"]:
        yield "crawl", what_is_crawled(crawled)
        limits = [f"{one.label}: {crawled[name]}" for name, one in NUMBERS.items() if crawled.get(name) is not None]
        yield "limits", ", ".join(limits)
        yield from _sent(crawled)
    if known := answer["answer"]:
        what = f"{known['job_id']} ({known['status']}) answers" if known["cached"] else "a new one"
        yield "answer", f"{what}: {known['reason']}"
    if place := answer["place"]:
        waits = WAITS_FOR.get(place["waiting_reason"], "waiting")
        later = f"{waits}, place {place['queue_position']} in the queue"
        yield "starts", f"now, on node {place['node']}" if place["node"] else later
    for number, one in enumerate(answer["runs"]):
        yield "" if number else "runs", one["local"].replace("T", " ")


def _sent(crawled: Record) -> Iterator[tuple[str, str]]:
    """What is sent to the site with each request, and who is notified of the end. Secrets are masked."""
    fetch = crawled.get("fetch") or {}
    if headers := fetch.get("headers"):
        yield "headers", ", ".join(f"{name}: {value}" for name, value in headers.items())
    if proxy := fetch.get("proxy"):
        yield "proxy", proxy
    if webhooks := crawled.get("webhooks"):
        yield "webhook", ", ".join(webhooks)


def _expected(expect: str | None, min_items: int | None) -> dict[str, Any] | None:
    return ((read_object("expect", expect) if expect else {}) | given(min_items=min_items)) or None


def _print_receipt(
    api: Api, receipt: dict[str, Any], *, as_json: bool, scheduled: bool, zone: str | None = None
) -> None:
    if as_json:
        print_json(receipt)
    elif scheduled:
        _print_scheduled(receipt, zone)
    else:
        out.print(receipt["job_id"])
    if not as_json:
        # on stderr, because a script might read the id from stdout
        err.print(Text(api.page(receipt["job_id"]), style="dim"), soft_wrap=True)


def _spider_and_urls(api: Api, spider: str | None, words: list[str]) -> tuple[str, list[str]]:
    """The spider and the start URLs: the first argument might be a spider's name. Raises `BadParameter`."""
    if spider is None and words and _is_spider(api, words[0]):
        spider, words = words[0], words[1:]
    if spider is None and not words:
        raise typer.BadParameter("name a spider, or where to start", param_hint="[SPIDER] [URL…]")
    if wrong := next((word for word in words if not _ADDRESS.match(word)), None):
        hint = "" if spider else ". A spider's name comes before the URLs"
        raise typer.BadParameter(f"{wrong!r} is no URL, such as https://example.com{hint}", param_hint="URL…")
    return spider or _DEFAULT_SPIDER, [_with_scheme(word) for word in words]


#: A URL, or one without its scheme: a host with a dot in it, or this machine.
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]*://|localhost([:/]|$)|[^/:?#@\s]+\.[^/:?#@\s]+([:/?#]|$)|\[[0-9a-f:]+\]", re.IGNORECASE
)
_HERE = re.compile(r"(localhost|127\.[0-9.]+|\[::1\])([:/]|$)", re.IGNORECASE)


def _with_scheme(word: str) -> str:
    if "://" in word:
        return word
    return f"{'http' if _HERE.match(word) else 'https'}://{word}"


def _is_spider(api: Api, word: str) -> bool:
    """Whether it names a spider. Many spiders are named like the site that they crawl, so the gateway is asked."""
    if not _ADDRESS.match(word):
        return True
    if any(sign in word for sign in ":/?#"):
        return False
    return bool(api.get("/spiders", name=word, limit=1)["spiders"])


def _print_scheduled(receipt: Record, zone: str | None) -> None:
    job_id = receipt["job_id"]
    out.print(Text.assemble("scheduled ", (job_id, "bold")))
    if next_run := receipt.get("next_run"):
        at = listed(next_run, zone) if zone else shown(next_run)
        out.print(f"next run: {at} ({until_then(next_run)})")
    out.print(f"to watch it: {program()} logs -f {job_id}", style="dim", soft_wrap=True)


def _item_format(output: str | None, *, following: bool) -> str:
    """The format of the items; empty without an output. Raises `BadParameter`."""
    if output and not following:
        raise typer.BadParameter("needs --follow: there are no items before the end", param_hint="--output")
    check_writable(output or STDOUT)
    return format_of(output) if output else ""


def _followed(
    api: Api, receipt: Record, item_format: str, output: str | None, level: str | None, *, console: Console
) -> ExitCode:
    if receipt.get("cached"):
        console.print(f"the same crawl was asked for at {receipt.get('cached_at')}; --ignore-cache runs it again")
    code = watch(api, receipt["job_id"], console, level)
    return _saved(api, receipt["job_id"], item_format, output, code) if output else code


def _saved(api: Api, job_id: str, item_format: str, output: str, code: ExitCode) -> ExitCode:
    """Write the items. If that fails a good crawl counts as an error, and a bad one keeps its exit code."""
    again = f"{program()} items {job_id} -o {shlex.quote(output)}"
    if code is ExitCode.INTERRUPTED:
        err.print(Text(f"To fetch its items: {again}"), soft_wrap=True)
        return code
    try:
        save_items(api, job_id, item_format, output)
    except ApiError as error:
        err.print(Text.assemble(("error: ", "bold red"), visible(str(error))), soft_wrap=True)
        err.print(Text(f"The gateway has the items: {again}"), soft_wrap=True)
        return code or ExitCode.ERROR
    return code


def watch(
    api: Api, job_id: str, console: Console, level: str | None = None, after: str = "", *, whole: bool = False
) -> ExitCode:
    """Show the job until its end, then how it ended. Ctrl-C stops the watching, not the job. Events up to the one
    with the id `after` are left out. With `whole`, Scrapy's setup and statistics are printed even on a terminal.
    """
    console.print(Text.assemble("job ", (job_id, "bold")))
    console.print(Text(api.page(job_id), style="dim"), soft_wrap=True)
    try:
        end = TerminalLog(console, whole).show(api.follow(job_id, level=level, after=after))
    except KeyboardInterrupt:
        err.print(f"\nStopped watching; the crawl goes on. To watch: {program()} logs -f {job_id}", soft_wrap=True)
        err.print(f"To cancel it: {program()} cancel {job_id}", soft_wrap=True)
        return ExitCode.INTERRUPTED
    end = end or api.get(f"/jobs/{job_id}/status")
    console.print(summary(end), soft_wrap=True)
    return of_status(end["status"])


# --- `files`: what a crawl has written as files


@taking(
    JOBS.parameter("job_id"),
    argument("name", "[NAME]", "The file to fetch, as the list has it. Without it, list them.", default=None),
    option("output", "Where to write the file; `-` is stdout.", "--output", "-o", default=STDOUT, metavar="FILE"),
    option("attempt", "The file as this attempt wrote it. Default: the latest one that did.", kind=int, min=1),
    JSON,
    URL,
)
def files(*, job_id: str, name: str | None, output: str, attempt: int | None, as_json: bool, url: str | None) -> None:
    """The files that a crawl has written: images, downloads, feeds."""
    api = Api(gateway_url(url))
    if name is not None:
        _fetch_file(api, job_id, name, output, attempt)
        return
    job = JOBS.find(api, job_id)
    answer = api.get_all(f"/jobs/{job}/files", attempt=attempt, limit=1000)
    if as_json:
        print_json(answer)
        return
    out.print(
        new_table(
            "*NAME name, >BYTES size, 2*TYPE type, 1>ATTEMPT attempt, 3WRITTEN modified_at:time", answer["files"]
        )
    )
    if answer["pending"]:
        err.print("more may come: the job has not ended, or the file store did not answer at its end")
    if answer["files"]:
        err.print(f"fetch one with `{program()} files {job} NAME -o FILE`")


def _fetch_file(api: Api, job_id: str, name: str, output: str, attempt: int | None) -> None:
    if output == STDOUT and sys.stdout.isatty():
        raise ApiError("--output: a file could control the terminal: write it to a file with -o, or to a pipe")
    check_writable(output)
    path = f"/jobs/{JOBS.find(api, job_id)}/files/{quote(name)}"
    with writing(output) as file:
        for piece in api.download(path, attempt=attempt):
            file.write(piece)
    if output != STDOUT:
        err.print(f"file: {output}")


# --- `open`: the console in a browser

_OF_A_JOB = "A job's id, or how it begins. Without it: the first page."


@taking(argument("job_id", "[JOB]", _OF_A_JOB, default=None, autocompletion=JOBS.complete), URL)
def open_page(*, job_id: str | None, url: str | None) -> None:
    """Open the console, or a job's page there, in the browser; where there is no desktop, print its address."""
    api = Api(gateway_url(url))
    page = api.page(job_id and JOBS.find(api, job_id))
    out.print(page, soft_wrap=True)
    if _has_desktop():
        webbrowser.open(page)


def _has_desktop() -> bool:
    """Whether a browser window can open. Without a desktop, Python might open a text browser, which runs
    no scripts.
    """
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
