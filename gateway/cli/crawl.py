"""`discoverybot crawl` and `items`: ask for a crawl, watch it, fetch what it found."""

from __future__ import annotations

import codecs
import getpass
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.console import Console
from rich.text import Text

from gateway.cli.api import Api, ApiError, ExitCode, of_status
from gateway.cli.console import (
    At,
    Cron,
    Every,
    Jitter,
    JobId,
    Level,
    MaxRuns,
    Overlap,
    Timezone,
    Until,
    Url,
    counted,
    err,
    gateway_url,
    given,
    out,
    program,
    tell_scheduled,
    timing,
    visible,
    visible_json,
)
from gateway.cli.watching import LogView, follow, status_text
from gateway.contract.crawl import DEFAULT_PROJECT


def gather_params(
    api: Api, spider: dict[str, str | None], text: str | None, pairs: list[str], *, render: bool = False
) -> dict[str, Any]:
    """`--params`, then each `--param` over it, then `--render`. `spider` is what `GET /spiders` is asked for."""
    params = _read(text) if text else {}
    if pairs:
        params |= _typed(pairs, _schema(api, spider))
    return params | ({"render": True} if render else {})


def _read(text: str) -> dict[str, Any]:
    """JSON, or `@` and the file that it is in."""
    try:
        params = json.loads(Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text)
    except OSError as error:
        raise ApiError(f"params: {text[1:]} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ApiError(f"params: is not JSON: {error}") from None
    if not isinstance(params, dict):
        raise ApiError("params: must be a JSON object")
    return params


def _schema(api: Api, spider: dict[str, str | None]) -> dict[str, Any] | None:
    """The parameters' JSON Schema; `None` where they are any strings. Without a project it is our own spider."""
    project = spider["project"] or DEFAULT_PROJECT
    found = api.get("/spiders", **{**spider, "project": project})["spiders"]
    # of several versions the latest, which is the one that would be run
    best: dict[str, Any] = max(found, key=lambda one: bool(one.get("latest")), default={})
    schema: dict[str, Any] | None = best.get("params_schema")
    return schema


def _typed(pairs: list[str], schema: dict[str, Any] | None) -> dict[str, Any]:
    """`k=v` pairs, each value of the type that the schema names."""
    params = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ApiError(f"param: {pair!r} is not of the form name=value")
        takes_text = schema is None or _takes_text(schema.get("properties", {}).get(name, {}))
        params[name] = value if takes_text else _json_or_text(value)
    return params


def _takes_text(schema: dict[str, Any]) -> bool:
    """Whether text is all it may be; `null` aside."""
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


Format = Annotated[str | None, typer.Option("--format", help="jsonl, json or csv. Default: by the file's name.")]
EscapeFormulas = Annotated[
    bool, typer.Option("--escape-formulas", help="In a CSV, text that a spreadsheet would run gets a ' before it.")
]
Output = Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where to; `-` is stdout.")]


def items(
    job_id: JobId, *, item_format: Format = None, output: Output = STDOUT, escape_formulas: EscapeFormulas = False,
    url: Url = None,
) -> None:  # fmt: skip
    """The items of a crawl, also while it runs."""
    chosen = item_format or format_of(output)
    if chosen not in FORMATS:
        raise typer.BadParameter(f"{chosen!r} is none of {', '.join(FORMATS)}", param_hint="--format")
    check_writable(output)
    save_items(Api(gateway_url(url)), job_id, chosen, output, escape_formulas=escape_formulas)


def format_of(output: str) -> str:
    """By the file's name. Raises `BadParameter` for a name that says nothing."""
    suffix = Path(output).suffix.lstrip(".").lower()
    if output == STDOUT:
        return "jsonl"
    if suffix not in FORMATS:
        raise typer.BadParameter(f"{output!r} must end in .jsonl, .json or .csv", param_hint="--output")
    return suffix


def check_writable(output: str) -> None:
    """Raises `BadParameter` for a place at which no file can be made; asked before there is anything to lose."""
    folder = Path(output).absolute().parent
    if output == STDOUT or (folder.is_dir() and os.access(folder, os.W_OK) and not Path(output).is_dir()):
        return
    problem = "is a folder" if Path(output).is_dir() else f"the folder {folder} cannot be written to"
    raise typer.BadParameter(f"{output!r}: {problem}", param_hint="--output")


def save_items(api: Api, job_id: str, item_format: str, output: str, *, escape_formulas: bool = False) -> None:
    """All of them; a file is there whole or not at all. A terminal is shown what would control it."""
    query = {"format": item_format, "escape_formulas": "true" if escape_formulas else None}
    with api.download(f"/jobs/{job_id}/items", **query) as pieces, _writing(output) as file:
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
def _writing(output: str) -> Iterator[BinaryIO]:
    if output == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(output).absolute()
    try:
        # a folder beside it: the same file system, and gone however this ends
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            unfinished = Path(folder) / target.name
            with unfinished.open("wb") as file:
                yield file
            unfinished.replace(target)
    except OSError as error:
        raise ApiError(f"output: {output}: {error.strerror}") from None


Urls = Annotated[list[str], typer.Argument(metavar="URL…", help="Where to start.")]
Spider = Annotated[str, typer.Option("--spider", "-s", help="Which spider; `discoverybot spiders` lists them.")]
Depth = Annotated[int | None, typer.Option(help="Links to follow from a URL; 0: none.")]
MaxPages = Annotated[int | None, typer.Option(help="Stop after so many pages.")]
MaxItems = Annotated[int | None, typer.Option(help="Stop after so many items.")]
Project = Annotated[str | None, typer.Option(help="The spider's project. Default: our own.")]
Version = Annotated[str | None, typer.Option(help="Of the project. Default: the latest.")]
Render = Annotated[bool, typer.Option("--render", help="In a browser, for pages that need JavaScript.")]
Params = Annotated[
    str | None, typer.Option("--params", metavar="JSON|@FILE", help="The spider's parameters, all at once.")
]
Param = Annotated[
    list[str] | None, typer.Option("--param", "-p", metavar="K=V", help="A parameter of the spider; repeatable.")
]
User = Annotated[str | None, typer.Option(help="Who asks. Default: your login name.")]
IgnoreCache = Annotated[bool, typer.Option("--ignore-cache", help="Crawl again, past both caches.")]
Follow = Annotated[
    bool | None, typer.Option("--follow/--no-follow", help="Watch it to its end. Default: unless it is for later.")
]
CrawlOutput = Annotated[
    str | None, typer.Option("--output", "-o", metavar="FILE", help="Its items: .jsonl, .json, .csv; `-`: stdout.")
]


def crawl(
    urls: Urls,
    *,
    spider: Spider = "seo", depth: Depth = None, max_pages: MaxPages = None, max_items: MaxItems = None,
    project: Project = None, version: Version = None, render: Render = False,
    params: Params = None, param: Param = None,
    user: User = None, ignore_cache: IgnoreCache = False,
    at: At = None, every: Every = None, cron: Cron = None, timezone: Timezone = None, jitter: Jitter = None,
    overlap: Overlap = None, until: Until = None, max_runs: MaxRuns = None,
    follow_log: Follow = None, output: CrawlOutput = None, level: Level = None, url: Url = None,
) -> None:  # fmt: skip
    """Crawl, with the log live. Exit code: 0 finished, 1 error, 2 refused, 3 partial, 4 cancelled, 130 Ctrl-C."""
    when = timing(
        at=at, every=every, cron=cron, until=until, timezone=timezone, jitter=jitter, overlap=overlap,
        max_runs=max_runs,
    )  # fmt: skip
    following = not when if follow_log is None else follow_log
    item_format = _item_format(output, following=following)
    api = Api(gateway_url(url))
    spider_named = {"project": project, "version": version, "name": spider}
    params_given = gather_params(api, spider_named, params, param or [], render=render)
    receipt = api.submit(
        given(
            user_id=user or login_name(), project=project, version=version, spider=spider, start_urls=urls,
            depth=depth, max_pages=max_pages, max_items=max_items, params=params_given or None,
            ignore_cache=ignore_cache or None, **when,
        )
    )  # fmt: skip
    if following:
        raise typer.Exit(_followed(api, receipt, item_format, output, level))
    if when and follow_log is None:
        tell_scheduled(receipt)
    else:
        out.print(receipt["job_id"])


def _item_format(output: str | None, *, following: bool) -> str:
    """Raises `BadParameter`."""
    if output and not following:
        raise typer.BadParameter("needs --follow: there are no items before the end", param_hint="--output")
    check_writable(output or STDOUT)
    return format_of(output) if output else ""


def _followed(api: Api, receipt: dict[str, Any], item_format: str, output: str | None, level: str | None) -> ExitCode:
    console = err if output == STDOUT else out
    if receipt.get("cached"):
        console.print(
            Text(f"the same crawl was asked for at {receipt.get('cached_at')}; --ignore-cache runs it again")
        )
    code = watch(api, receipt["job_id"], console, level)
    return _saved(api, receipt["job_id"], item_format, output, code) if output else code


def _saved(api: Api, job_id: str, item_format: str, output: str, code: ExitCode) -> ExitCode:
    """Write the items. If that fails, a crawl that went well is no success, and one that did not keeps its code."""
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
    try:
        end = LogView(console).show(follow(api, job_id, level=level))
    except KeyboardInterrupt:
        err.print(f"\nStopped watching; the crawl goes on. To watch: {program()} logs -f {job_id}", soft_wrap=True)
        err.print(f"To cancel it: {program()} cancel {job_id}", soft_wrap=True)
        return ExitCode.INTERRUPTED
    end = end or api.get(f"/jobs/{job_id}/status")
    console.print(summary(end), soft_wrap=True)
    return of_status(end["status"])


def summary(status: dict[str, Any]) -> Text:
    """`finished: 32 pages, 30 items, 1 error`, and the message if there is one."""
    counts = ", ".join(
        counted(status.get(field) or 0, thing)
        for field, thing in (("completed_pages", "page"), ("items_count", "item"), ("errors_count", "error"))
    )
    text = Text.assemble(status_text(status["status"]), f": {counts}")
    return text.append(f"\n{visible(status['message'])}") if status.get("message") else text


def login_name() -> str:
    """Of the person at the keyboard, in the letters that a user id may have."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        name = ""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:64] or "local"
