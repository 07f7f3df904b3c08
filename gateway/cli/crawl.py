"""`discoverybot crawl`: ask for a crawl, watch it, fetch what it found."""

from __future__ import annotations

import getpass
import re
import shlex
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from gateway.cli.api import Api, ApiError
from gateway.cli.console import counted, err, out, program, visible
from gateway.cli.exit_code import ExitCode, of_status
from gateway.cli.following import follow
from gateway.cli.gateway_address import gateway_url
from gateway.cli.items import STDOUT, check_writable, format_of, save_items
from gateway.cli.log_view import LogView, status_text
from gateway.cli.options import Level, Url
from gateway.cli.params import gather_params
from gateway.cli.timing import At, Cron, Every, Jitter, MaxRuns, Overlap, Timezone, Until, tell_scheduled, timing

Urls = Annotated[list[str], typer.Argument(metavar="URL…", help="Where to start.", show_default=False)]
Spider = Annotated[str, typer.Option("--spider", "-s", help="Which spider; `discoverybot spiders` lists them.")]
Depth = Annotated[int | None, typer.Option(help="Links to follow from a URL; 0: none.", show_default=False)]
MaxPages = Annotated[int | None, typer.Option(help="Stop after so many pages.", show_default=False)]
MaxItems = Annotated[int | None, typer.Option(help="Stop after so many items.", show_default=False)]
Project = Annotated[str | None, typer.Option(help="The spider's project. Default: our own.", show_default=False)]
Version = Annotated[str | None, typer.Option(help="Of the project. Default: the latest.", show_default=False)]
Render = Annotated[bool, typer.Option("--render", help="In a browser, for pages that need JavaScript.")]
Params = Annotated[
    str | None,
    typer.Option("--params", metavar="JSON|@FILE", help="The spider's parameters, all at once.", show_default=False),
]
Param = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="K=V", help="A parameter of the spider; repeatable.", show_default=False),
]
User = Annotated[str | None, typer.Option(help="Who asks. Default: your login name.", show_default=False)]
IgnoreCache = Annotated[bool, typer.Option("--ignore-cache", help="Crawl again, past both caches.")]
Follow = Annotated[
    bool | None,
    typer.Option(
        "--follow/--no-follow", help="Watch it to its end. Default: unless it is for later.", show_default=False
    ),
]
Output = Annotated[
    str | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Its items: .jsonl, .json, .csv; `-`: stdout.", show_default=False
    ),
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
    follow_log: Follow = None, output: Output = None, level: Level = None, url: Url = None,
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
        _given(
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


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


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
