"""`discoverybot sites` and `targets`: where is searched, what for, how politely and how often."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.text import Text

from gateway.cli.api import Api, ApiError
from gateway.cli.console import Url, command_group, gateway_url, given, new_table, out, shown

app = command_group("Sites: where to search, how politely, how often.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The site's name.")]
File = Annotated[Path | None, typer.Option("--file", "-f", help="A JSON file with the record; options go over it.")]
SearchUrl = Annotated[str | None, typer.Option(help="Where a search begins, with {keywords}, {location}, {page}.")]
Spider = Annotated[str | None, typer.Option(help="Which spider. Default: jobs.")]
Project = Annotated[str | None, typer.Option(help="The spider's project. Default: our own.")]
Pagination = Annotated[str | None, typer.Option(help="next_link, page_param, infinite_scroll or none.")]
Selector = Annotated[
    list[str] | None, typer.Option("--selector", "-s", metavar="K=CSS", help="A selector of `jobs`; repeatable.")
]
Every = Annotated[int | None, typer.Option(metavar="MINUTES", help="How often it is run.")]
MinPause = Annotated[float | None, typer.Option(help="Shortest pause, in seconds.")]
MaxPause = Annotated[float | None, typer.Option(help="Longest pause, in seconds.")]
Rate = Annotated[str | None, typer.Option(help="Requests of all its runs: 30/m.")]
Retries = Annotated[int | None, typer.Option(help="Of a run that failed.")]
Browser = Annotated[bool | None, typer.Option("--browser/--no-browser", help="Render pages.")]
Overlap = Annotated[bool | None, typer.Option("--overlap/--no-overlap", help="Let runs overlap.")]
Payload = Annotated[str | None, typer.Option(metavar="JSON", help="Further parameters for the spider.")]


def address(name: str) -> str:
    """Of one site in the API."""
    return f"/sites/{quote(name, safe='')}"


@app.command("list")
def list_sites(*, url: Url = None) -> None:
    """All sites, by name."""
    columns = ("SITE", "ENABLED", "SPIDER", "EVERY", "LAST RUN", "NEXT RUN", "SEARCH")
    table = new_table(*columns, folded=("SEARCH",))
    for site in Api(gateway_url(url)).all("/sites"):
        table.add_row(*_site_cells(site))
    out.print(table)


@app.command("show")
def show_site(name: Name, *, url: Url = None) -> None:
    """One site, as JSON."""
    out.print_json(data=Api(gateway_url(url)).get(address(name)))


def _with_options(send: Callable[[Api, str, dict[str, Any]], dict[str, Any]]) -> Callable[..., None]:
    """A command that sends what its options say of a site."""

    def command(
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
        record = _record(
            file, selector, payload, search_url=search_url, spider=spider, project=project,
            pagination_type=pagination, interval_minutes=every, min_pause_seconds=min_pause,
            max_pause_seconds=max_pause, rate_limit=rate_limit, max_retries=retries, requires_playwright=browser,
            allow_overlap=overlap,
        )  # fmt: skip
        _tell_site(send(Api(gateway_url(url)), name, record))

    return command


def _add(api: Api, name: str, record: dict[str, Any]) -> Any:
    return api.post("/sites", json={**record, "name": name})


def _change(api: Api, name: str, record: dict[str, Any]) -> Any:
    if not record:
        raise typer.BadParameter("say what to change")
    return api.patch(address(name), json=record)


app.command("add", help="Add a site, from a file or from options.")(_with_options(_add))
app.command("edit", help="Change what is named; selectors and payload as a whole.")(_with_options(_change))


@app.command("enable")
def enable_site(name: Name, *, url: Url = None) -> None:
    """Let it and its targets be run again."""
    _tell_site(_change(Api(gateway_url(url)), name, {"enabled": True}))


@app.command("disable")
def disable_site(name: Name, *, url: Url = None) -> None:
    """Run neither it nor its targets; what runs goes on."""
    _tell_site(_change(Api(gateway_url(url)), name, {"enabled": False}))


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
    return record | given(**fields)


def _pair(text: str) -> tuple[str, str]:
    name, equals, css = text.partition("=")
    if not (name and equals):
        raise ApiError(f"selector: {text!r} is not of the form name=css")
    return name, css


def _tell_site(site: dict[str, Any]) -> None:
    runs = f"next run {shown(site['next_run_at'])}" if site["next_run_at"] else "not run by itself"
    out.print(Text(f"{site['name']}: {runs}"))


def _site_cells(site: dict[str, Any]) -> list[Any]:
    every = f"{site['interval_minutes']}m"
    times = map(shown, (site["last_run_at"], site["next_run_at"]))
    return [site["name"], "yes" if site["enabled"] else "no", site["spider"], every, *times, Text(site["search_url"])]


targets_app = command_group("Targets: what is searched for on a site, and how often.")

TargetId = Annotated[str, typer.Argument(metavar="ID", help="Its number, or its id.")]
Site = Annotated[str, typer.Argument(metavar="SITE", help="The site's name.")]
Keywords = Annotated[str | None, typer.Option("--keywords", "-k", help="What to search for.")]
Location = Annotated[str | None, typer.Option("--location", "-l", help="Where.")]
Frequency = Annotated[
    str | None, typer.Option(metavar="CRON|MINUTES", help="How often. Default: as often as the site.")
]
Timezone = Annotated[str | None, typer.Option(help="In which cron is read. Default: UTC.")]
Results = Annotated[int | None, typer.Option("--results", help="End with so many.")]
Remote = Annotated[bool | None, typer.Option("--remote/--on-site", help="Only such ones.")]
Enabled = Annotated[bool | None, typer.Option("--enable/--disable", help="Run it by itself.")]


@targets_app.command("list")
def list_targets(
    *,
    site: Annotated[str | None, typer.Option(help="Only of this site.")] = None,
    url: Url = None,
) -> None:
    """All targets, by number."""
    table = new_table()
    for name in ("TARGET", "SITE", "KEYWORDS", "LOCATION", "EVERY", "ENABLED", "LAST SCHEDULED", "NEXT RUN"):
        table.add_column(name, overflow="fold" if name in {"KEYWORDS", "LOCATION"} else "ellipsis")
    for target in Api(gateway_url(url)).all("/targets", site=site):
        table.add_row(*_target_cells(target))
    out.print(table)


@targets_app.command("show")
def show_target(target: TargetId, *, url: Url = None) -> None:
    """One target, as JSON."""
    out.print_json(data=Api(gateway_url(url)).get(_address(target)))


@targets_app.command("add")
def add_target(
    site: Site,
    *,
    keywords: Keywords = None,
    location: Location = None,
    frequency: Frequency = None,
    timezone: Timezone = None,
    results: Results = None,
    remote: Remote = None,
    enabled: Enabled = None,
    url: Url = None,
) -> None:
    """Search a site for something, again and again."""
    wanted = given(
        keywords=keywords, location=location, frequency=_frequency(frequency), timezone=timezone,
        results_wanted=results, is_remote=remote, enabled=enabled,
    )  # fmt: skip
    _tell_target(Api(gateway_url(url)).post("/targets", json={"site": site, **wanted}))


@targets_app.command("edit")
def edit_target(
    target: TargetId,
    *,
    keywords: Keywords = None,
    location: Location = None,
    frequency: Frequency = None,
    timezone: Timezone = None,
    results: Results = None,
    remote: Remote = None,
    enabled: Enabled = None,
    url: Url = None,
) -> None:
    """Change what is named."""
    changes = given(
        keywords=keywords, location=location, frequency=_frequency(frequency), timezone=timezone,
        results_wanted=results, is_remote=remote, enabled=enabled,
    )  # fmt: skip
    if not changes:
        raise typer.BadParameter("say what to change")
    _tell_target(Api(gateway_url(url)).patch(_address(target), json=changes))


@targets_app.command("delete")
def delete_target(target: TargetId, *, url: Url = None) -> None:
    """Delete a target; what runs goes on."""
    Api(gateway_url(url)).delete(_address(target))
    out.print(f"target {target}: deleted")


def _address(target: str) -> str:
    return f"/targets/{quote(target, safe='')}"


def _frequency(text: str | None) -> int | str | None:
    return int(text) if text and text.isascii() and text.isdigit() else text


def _tell_target(target: dict[str, Any]) -> None:
    runs = f"next run {shown(target['next_run'])}" if target["next_run"] else "not run by itself"
    out.print(Text(f"target {target['number']} of {target['site']}: {runs}"))


def _target_cells(target: dict[str, Any]) -> list[Any]:
    frequency = target["frequency"]
    every = "as the site" if frequency is None else f"{frequency}m" if isinstance(frequency, int) else frequency
    words = (Text(target["keywords"]), Text(target["location"]))
    times = map(shown, (target["last_scheduled"], target["next_run"]))
    return [str(target["number"]), target["site"], *words, every, "yes" if target["enabled"] else "no", *times]
