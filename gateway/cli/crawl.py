"""`discoverybot crawl`, `logs`, `items`, `files` and `open`: ask for a crawl, watch it, fetch what it found."""

from __future__ import annotations

import codecs
import getpass
import json
import os
import re
import shlex
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import typer
from rich.console import Console
from rich.text import Text

from gateway.cli.api import Api, ApiError, ExitCode, of_status
from gateway.cli.explain import summary
from gateway.cli.options import JSON, LEVEL, TIMING, URL, argument, flag, option, read_object, taking, timing
from gateway.cli.resources import JOBS, SCHEDULES
from gateway.cli.terminal import (
    Record,
    err,
    gateway_url,
    given,
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
from gateway.cli.watching import TerminalLog, follow, log_line
from gateway.contract.crawl import DEFAULT_PROJECT
from gateway.jobs.job import NUMBERS


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
    # the spider that would run: without a project, the platform's own is preferred, and of its versions the latest
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
            raise ApiError(f"{option}: {pair.partition('=')[0]!r} is not of the form name=value")
    return {pair.partition("=")[0]: read(pair.partition("=")[2]) for pair in pairs} if pairs else None


def _takes_text(schema: dict[str, Any]) -> bool:
    """Whether it may be text only; `null` is not counted."""
    choices = [choice.get("type") for choice in schema.get("anyOf", [schema])]
    return [choice for choice in choices if choice != "null"] == ["string"]


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


# --- `discoverybot items`: what a crawl found, to a file or to stdout

STDOUT = "-"
FORMATS = ("jsonl", "json", "csv")


@taking(
    JOBS.parameter("job_id"),
    option("item_format", "jsonl, json or csv. Default: by the file's name.", "--format"),
    option("output", "Where to; `-` is stdout.", "--output", "-o", default=STDOUT, metavar="FILE"),
    option(
        "escape_formulas",
        "In a CSV, put a ' before text that a spreadsheet would run.",
        "--escape-formulas/--no-escape-formulas",
        kind=bool,
        default=True,
    ),
    flag("as_json", "The same as --format json.", "--json"),
    URL,
)
def items(
    *, job_id: str, item_format: str | None, output: str, escape_formulas: bool, as_json: bool, url: str | None
) -> None:
    """The items of a crawl, also while it runs."""
    chosen = item_format or ("json" if as_json else format_of(output))
    if chosen not in FORMATS:
        raise typer.BadParameter(f"{chosen!r} is not a format: choose {', '.join(FORMATS)}", param_hint="--format")
    check_writable(output)
    api = Api(gateway_url(url))
    save_items(api, JOBS.find(api, job_id), chosen, output, escape_formulas=escape_formulas)


def format_of(output: str) -> str:
    """The format by the file's name; JSON Lines for stdout. Raises `BadParameter` for another ending."""
    suffix = Path(output).suffix.lstrip(".").lower()
    if output == STDOUT:
        return "jsonl"
    if suffix not in FORMATS:
        raise typer.BadParameter(f"{output!r} must end in .jsonl, .json or .csv", param_hint="--output")
    return suffix


def check_writable(output: str) -> None:
    """Raises `BadParameter` if no file can be made there; checked before there is anything to lose."""
    folder = Path(output).absolute().parent
    if output == STDOUT or (folder.is_dir() and os.access(folder, os.W_OK) and not Path(output).is_dir()):
        return
    problem = "is a folder" if Path(output).is_dir() else f"the folder {folder} cannot be written to"
    raise typer.BadParameter(f"{output!r}: {problem}", param_hint="--output")


def save_items(api: Api, job_id: str, item_format: str, output: str, *, escape_formulas: bool = True) -> None:
    """All of them. A file is complete or not there; on a terminal control characters are made visible."""
    query = {"format": item_format, "escape_formulas": None if escape_formulas else "false"}
    with api.download(f"/jobs/{job_id}/items", **query) as pieces, writing(output) as file:
        to_terminal = output == STDOUT and sys.stdout.isatty()
        for piece in _visible_lines(pieces, item_format) if to_terminal else pieces:
            file.write(piece)
    if output != STDOUT:
        err.print(f"items: {output}")


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
        # a folder beside it is on the same file system, and is removed in any case
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            unfinished = Path(folder) / target.name
            with unfinished.open("wb") as file:
                yield file
            unfinished.replace(target)
    except OSError as error:
        raise ApiError(f"output: {output}: {error.strerror}") from None


# --- `discoverybot logs` and `schedules run`


@taking(
    JOBS.parameter("job_id"),
    flag("follow_log", "Follow the crawl to its end.", "--follow", "-f"),
    LEVEL,
    flag("as_json", "Print each line as a JSON document.", "--json"),
    URL,
)
def logs(*, job_id: str, follow_log: bool, level: str | None, as_json: bool, url: str | None) -> None:
    """The log of a crawl. With -f the exit code is that of `crawl`."""
    if as_json and follow_log:
        raise typer.BadParameter("choose one of --json and --follow", param_hint="--json")
    api = Api(gateway_url(url))
    job_id = JOBS.find(api, job_id)
    api.get(f"/jobs/{job_id}/status")  # refuses at once if there is no such job
    if follow_log:
        raise typer.Exit(watch(api, job_id, out, level))
    api.client.headers["Accept"] = "application/x-ndjson"
    torn = b""
    with api.download(f"/jobs/{job_id}/logs", level=level) as pieces:
        for piece in pieces:
            *lines, torn = (torn + piece).split(b"\n")
            for line in lines:
                out.print(visible_json(line.decode()) if as_json else log_line(json.loads(line)), soft_wrap=True)


@taking(
    SCHEDULES.parameter("schedule_id"), flag("follow_log", "Watch it to its end.", "--follow", "-f"), LEVEL, JSON, URL
)
def run(*, schedule_id: str, follow_log: bool, level: str | None, as_json: bool, url: str | None) -> None:
    """Run it now, beside its own runs. With -f the exit code is that of `crawl`."""
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
_WORDS = "Which spider, and where to start; a spider that has start URLs of its own needs no other."
_TIMES = {one.name for one in TIMING}
_OPTIONS = (
    argument("words", "[SPIDER] [URL…]", _WORDS, kind=list[str], default=None),
    option("spider", "Which spider; `discoverybot spiders` lists them. Default: seo.", "--spider", "-s"),
    *(option(name, one.option, kind=int) for name, one in NUMBERS.items()),
    option("tags", "A tag, to find it by; repeatable.", "--tag", kind=list[str]),
    option("min_items", "Expect this many items; with fewer it is partial.", kind=int),
    option("expect", "All that is expected: min_items, max_error_rate, fields.", metavar="JSON|@FILE"),
    option("project", "The spider's project. Default: the platform's own, else the only one that has it."),
    option("version", "Its version. Default: the latest."),
    flag("render", "Render pages in a browser, for those that need JavaScript."),
    option("params", "The spider's parameters, all at once.", metavar="JSON|@FILE"),
    option("pairs", "A parameter of the spider; repeatable.", "--param", "-p", kind=list[str], metavar="K=V"),
    option("settings", "A setting of Scrapy; repeatable.", "--setting", kind=list[str], metavar="K=V"),
    option("env", "A variable of a deployed project's spider; repeatable.", kind=list[str], metavar="K=V"),
    option("user_id", "The user who asks. Default: the user of your key, or your login name.", "--user"),
    option("ignore_cache", "Crawl again, without any cache.", "--ignore-cache", kind=bool),
    *TIMING,
    option(
        "follow_log", "Watch it to its end. Default: yes, unless it runs later.", "--follow/--no-follow", kind=bool
    ),
    option("output", "Its items: .jsonl, .json, .csv; `-`: stdout.", "--output", "-o", metavar="FILE"),
    LEVEL,
    flag("as_json", "Print the ended job as JSON, or the receipt if it is not watched.", "--json"),
    URL,
)


@taking(*_OPTIONS)
def crawl(
    *,
    words: list[str] | None,
    spider: str | None,
    params: str | None,
    pairs: list[str] | None,
    settings: list[str] | None,
    env: list[str] | None,
    render: bool,
    min_items: int | None,
    expect: str | None,
    follow_log: bool | None,
    output: str | None,
    level: str | None,
    as_json: bool,
    url: str | None,
    **fields: Any,
) -> None:
    """Crawl, with the log live. Exit code: 0 finished, 1 error, 2 refused, 3 partial, 4 cancelled, 130 Ctrl-C."""
    name, start_urls = _spider_and_urls(spider, words or [])
    body = timing(spider=name, start_urls=start_urls or None, **fields)
    for_later = not body.keys().isdisjoint({"schedule_at", "interval", "ends_at", *_TIMES})
    following = not for_later if follow_log is None else follow_log
    if as_json and output == STDOUT:
        raise typer.BadParameter("choose one of --json and --output -", param_hint="--json")
    item_format = _item_format(output, following=following)
    api = Api(gateway_url(url))
    asked = {"project": fields["project"], "version": fields["version"], "name": name}
    if found := gather_params(api, asked, params, pairs or [], render=render):
        body["params"] = found
    chosen, variables = _pairs("setting", settings, _json_or_text), _pairs("env", env, str)
    body |= given(expect=_expected(expect, min_items), settings=chosen, env=variables)
    receipt = api.submit(({} if api.key else {"user_id": login_name()}) | body)
    if following:
        console = err if as_json or output == STDOUT else out
        code = _followed(api, receipt, item_format, output, level, console=console)
        if as_json:
            print_json(api.get(f"/jobs/{receipt['job_id']}"))
        raise typer.Exit(code)
    _print_receipt(api, receipt, as_json=as_json, scheduled=for_later and follow_log is None)


def _expected(expect: str | None, min_items: int | None) -> dict[str, Any] | None:
    return ((read_object("expect", expect) if expect else {}) | given(min_items=min_items)) or None


def _print_receipt(api: Api, receipt: dict[str, Any], *, as_json: bool, scheduled: bool) -> None:
    if as_json:
        print_json(receipt)
    elif scheduled:
        _print_scheduled(receipt)
    else:
        out.print(receipt["job_id"])
    if not as_json:
        # on stderr, because a script might read the id from stdout
        err.print(Text(api.page(receipt["job_id"]), style="dim"), soft_wrap=True)


def _spider_and_urls(spider: str | None, words: list[str]) -> tuple[str, list[str]]:
    """The spider and the start URLs: the first argument might be a spider's name. Raises `BadParameter`."""
    if spider is None and words and "://" not in words[0]:
        spider, words = words[0], words[1:]
    if spider is None and not words:
        raise typer.BadParameter("name a spider, or where to start", param_hint="[SPIDER] [URL…]")
    if wrong := next((word for word in words if "://" not in word), None):
        hint = "" if spider else ". A spider's name comes before the URLs"
        raise typer.BadParameter(f"{wrong!r} is no URL: it begins with https:// or http://{hint}", param_hint="URL…")
    return spider or _DEFAULT_SPIDER, words


def _print_scheduled(receipt: Record) -> None:
    job_id = receipt["job_id"]
    out.print(Text.assemble("scheduled ", (job_id, "bold")))
    if next_run := receipt.get("next_run"):
        out.print(f"next run: {shown(next_run)} ({until_then(next_run)})")
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


def watch(api: Api, job_id: str, console: Console, level: str | None = None) -> ExitCode:
    """Show the job until its end, then how it ended. Ctrl-C stops the watching, not the job."""
    console.print(Text.assemble("job ", (job_id, "bold")))
    console.print(Text(api.page(job_id), style="dim"), soft_wrap=True)
    try:
        end = TerminalLog(console).show(follow(api, job_id, level=level))
    except KeyboardInterrupt:
        err.print(f"\nStopped watching; the crawl goes on. To watch: {program()} logs -f {job_id}", soft_wrap=True)
        err.print(f"To cancel it: {program()} cancel {job_id}", soft_wrap=True)
        return ExitCode.INTERRUPTED
    end = end or api.get(f"/jobs/{job_id}/status")
    console.print(summary(end), soft_wrap=True)
    return of_status(end["status"])


def login_name() -> str:
    """The name of the person at the keyboard, with only those characters that a user id may have."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        name = ""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:64] or "local"


# --- `files`: what a crawl has written as files


@taking(
    JOBS.parameter("job_id"),
    argument("name", "[NAME]", "The file to fetch, as the list has it. Without it, list them.", default=None),
    option("output", "Where to write the file; `-` is stdout.", "--output", "-o", default=STDOUT, metavar="FILE"),
    option("attempt", "As this attempt wrote it. Default: the latest that did.", kind=int, min=1),
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
        new_table("*NAME name, >BYTES size, TYPE type, ATTEMPT attempt, WRITTEN modified_at:time", answer["files"])
    )
    if answer["pending"]:
        err.print("more may come: the job has not ended, or the file store was away at its end")
    if answer["files"]:
        err.print(f"fetch one with `{program()} files {job} NAME -o FILE`")


def _fetch_file(api: Api, job_id: str, name: str, output: str, attempt: int | None) -> None:
    if output == STDOUT and sys.stdout.isatty():
        raise ApiError("output: a terminal would obey what is in a file: name one with -o, or pipe it somewhere")
    check_writable(output)
    path = f"/jobs/{JOBS.find(api, job_id)}/files/{quote(name)}"
    with api.download(path, attempt=attempt) as pieces, writing(output) as file:
        for piece in pieces:
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
    """Whether a browser window can open. Elsewhere Python might open a text browser, which runs no scripts."""
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
