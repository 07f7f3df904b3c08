"""`discoverybot sites`: what is searched, how politely, and how often."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.table import Table
from rich.text import Text

from gateway.cli.api import Api, ApiError
from gateway.cli.console import out
from gateway.cli.gateway_address import gateway_url
from gateway.cli.options import Url
from gateway.cli.timing import shown

app = typer.Typer(
    help="Sites: where to search, how politely, how often. Without a command: list them.", add_completion=False
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The site's name.")]
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="A JSON file with the record; options go over it.", show_default=False),
]
SearchUrl = Annotated[
    str | None,
    typer.Option(help="Where a search begins, with {keywords}, {location}, {page}.", show_default=False),
]
Spider = Annotated[str | None, typer.Option(help="Which spider. Default: jobs.", show_default=False)]
Project = Annotated[str | None, typer.Option(help="The spider's project. Default: our own.", show_default=False)]
Pagination = Annotated[
    str | None, typer.Option(help="next_link, page_param, infinite_scroll or none.", show_default=False)
]
Selector = Annotated[
    list[str] | None,
    typer.Option("--selector", "-s", metavar="K=CSS", help="A selector of `jobs`; repeatable.", show_default=False),
]
Every = Annotated[int | None, typer.Option(metavar="MINUTES", help="How often it is run.", show_default=False)]
MinPause = Annotated[float | None, typer.Option(help="Shortest pause, in seconds.", show_default=False)]
MaxPause = Annotated[float | None, typer.Option(help="Longest pause, in seconds.", show_default=False)]
Rate = Annotated[str | None, typer.Option(help="Requests of all its runs: 30/m.", show_default=False)]
Retries = Annotated[int | None, typer.Option(help="Of a run that failed.", show_default=False)]
Browser = Annotated[bool | None, typer.Option("--browser/--no-browser", help="Render pages.", show_default=False)]
Overlap = Annotated[bool | None, typer.Option("--overlap/--no-overlap", help="Let runs overlap.", show_default=False)]
Payload = Annotated[
    str | None, typer.Option(metavar="JSON", help="Further parameters for the spider.", show_default=False)
]


def address(name: str) -> str:
    """Of one site in the API."""
    return f"/sites/{quote(name, safe='')}"


@app.callback(invoke_without_command=True)
def sites(context: typer.Context) -> None:
    """Where to search, how politely, how often. Without a command: list them."""
    if context.invoked_subcommand is None:
        list_sites()


@app.command("list")
def list_sites(*, url: Url = None) -> None:
    """All sites, by name."""
    api = Api(gateway_url(url))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("SITE", "ENABLED", "SPIDER", "EVERY", "LAST RUN", "NEXT RUN"):
        table.add_column(name, no_wrap=True)
    table.add_column("SEARCH", overflow="fold")
    after = None
    while True:
        page = api.get("/sites", limit=200, after=after)
        for site in page["sites"]:
            table.add_row(*_cells(site))
        after = page["next"]
        if after is None:
            break
    out.print(table)


@app.command("show")
def show_site(name: Name, *, url: Url = None) -> None:
    """One site, as JSON."""
    out.print_json(data=Api(gateway_url(url)).get(address(name)))


@app.command("add")
def add_site(
    name: Name,
    *,
    file: File = None,
    search_url: SearchUrl = None,
    spider: Spider = None,
    project: Project = None,
    pagination: Pagination = None,
    selector: Selector = None,
    every: Every = None,
    min_pause: MinPause = None,
    max_pause: MaxPause = None,
    rate_limit: Rate = None,
    retries: Retries = None,
    browser: Browser = None,
    overlap: Overlap = None,
    payload: Payload = None,
    url: Url = None,
) -> None:
    """Add a site, from a file or from options."""
    record = _record(
        file, selector, payload, search_url=search_url, spider=spider, project=project, pagination_type=pagination,
        interval_minutes=every, min_pause_seconds=min_pause, max_pause_seconds=max_pause, rate_limit=rate_limit,
        max_retries=retries, requires_playwright=browser, allow_overlap=overlap,
    )  # fmt: skip
    site = Api(gateway_url(url)).post("/sites", json={**record, "name": name})
    _tell(site)


@app.command("edit")
def edit_site(
    name: Name,
    *,
    file: File = None,
    search_url: SearchUrl = None,
    spider: Spider = None,
    project: Project = None,
    pagination: Pagination = None,
    selector: Selector = None,
    every: Every = None,
    min_pause: MinPause = None,
    max_pause: MaxPause = None,
    rate_limit: Rate = None,
    retries: Retries = None,
    browser: Browser = None,
    overlap: Overlap = None,
    payload: Payload = None,
    url: Url = None,
) -> None:
    """Change what is named; selectors and payload as a whole."""
    changes = _record(
        file, selector, payload, search_url=search_url, spider=spider, project=project, pagination_type=pagination,
        interval_minutes=every, min_pause_seconds=min_pause, max_pause_seconds=max_pause, rate_limit=rate_limit,
        max_retries=retries, requires_playwright=browser, allow_overlap=overlap,
    )  # fmt: skip
    if not changes:
        raise typer.BadParameter("say what to change")
    _tell(Api(gateway_url(url)).patch(address(name), json=changes))


@app.command("enable")
def enable_site(name: Name, *, url: Url = None) -> None:
    """Let it and its targets be run again."""
    _tell(Api(gateway_url(url)).patch(address(name), json={"enabled": True}))


@app.command("disable")
def disable_site(name: Name, *, url: Url = None) -> None:
    """Run neither it nor its targets; what runs goes on."""
    _tell(Api(gateway_url(url)).patch(address(name), json={"enabled": False}))


@app.command("delete")
def delete_site(
    name: Name,
    *,
    force: Annotated[bool, typer.Option("--force", help="With its targets.")] = False,
    url: Url = None,
) -> None:
    """Delete a site; one with targets only with --force."""
    Api(gateway_url(url)).delete(address(name), force="true" if force else None)
    out.print(f"{name}: deleted")


def read_record(file: Path) -> dict[str, Any]:
    """A JSON object. Raises `ApiError`."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ApiError(f"file: {file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ApiError(f"file: {file} is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ApiError(f"file: {file} is not a JSON object")
    return record


def _record(file: Path | None, selectors: list[str] | None, payload: str | None, **fields: Any) -> dict[str, Any]:
    record = read_record(file) if file else {}
    if selectors:
        record["selectors"] = dict(map(_pair, selectors))
    if payload is not None:
        try:
            record["payload"] = json.loads(payload)
        except ValueError as error:
            raise ApiError(f"payload: is not JSON: {error}") from None
    return record | {name: value for name, value in fields.items() if value is not None}


def _pair(text: str) -> tuple[str, str]:
    name, equals, css = text.partition("=")
    if not (name and equals):
        raise ApiError(f"selector: {text!r} is not of the form name=css")
    return name, css


def _tell(site: dict[str, Any]) -> None:
    runs = f"next run {shown(site['next_run_at'])}" if site["next_run_at"] else "not run by itself"
    out.print(Text(f"{site['name']}: {runs}"))


def _cells(site: dict[str, Any]) -> list[Any]:
    every = f"{site['interval_minutes']}m"
    times = map(shown, (site["last_run_at"], site["next_run_at"]))
    return [site["name"], "yes" if site["enabled"] else "no", site["spider"], every, *times, Text(site["search_url"])]
