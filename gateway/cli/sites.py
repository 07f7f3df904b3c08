"""`discoverybot sites`, `targets` and `scrape`: where is searched, what for, how politely and how often."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import typer
from rich.text import Text

from gateway.cli.api import Api, ApiError, ExitCode, of_status
from gateway.cli.console import (
    Level,
    Url,
    command_group,
    counted,
    err,
    gateway_url,
    given,
    new_table,
    out,
    program,
    shown,
    visible,
)
from gateway.cli.crawl import STDOUT, save_items, watch

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


# --- `discoverybot scrape`: run a site now, see what it found

SiteName = Annotated[str, typer.Argument(metavar="SITE", help="Its name; `discoverybot sites` lists them.")]
Term = Annotated[str | None, typer.Argument(metavar="TERM", help="What to search for.")]
ScrapedLocation = Annotated[str | None, typer.Option(help="Where.")]
ScrapedResults = Annotated[int | None, typer.Option("--results", min=1, help="End with so many.")]
Sync = Annotated[bool, typer.Option("--sync", help="In one request: up to 25 results, and no log.")]
AsJson = Annotated[bool, typer.Option("--json", help="All results as JSON lines, to stdout.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="All results as CSV, to stdout.")]
User = Annotated[str | None, typer.Option(help="Who asks. Default: operator.")]
Follow = Annotated[bool, typer.Option("--follow/--no-follow", help="Watch it to its end.")]

#: Longest that a gateway may wait for a run: the upper bound of SCRAPE_SYNC_TIMEOUT, and a little more.
_PATIENCE = httpx.Timeout(630, connect=5)
#: Results shown in a table.
_SHOWN = 25
_COLUMNS = {
    "TITLE": "title",
    "COMPANY": "company",
    "LOCATION": "location",
    "SALARY": "salary",
    "POSTED": "posted",
    "URL": "url",
}
_STATUSES = {"succeeded": "finished", "partial": "partial"}


def scrape(
    site: SiteName,
    term: Term = None,
    *,
    location: ScrapedLocation = None,
    results: ScrapedResults = None,
    remote: Remote = None,
    sync: Sync = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    user: User = None,
    follow_log: Follow = True,
    level: Level = None,
    url: Url = None,
) -> None:
    """Run a site now and show what it found. Exit codes as those of `crawl`."""
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv", param_hint="--csv")
    if sync and not follow_log:
        raise typer.BadParameter("a run that is not waited for is not --sync", param_hint="--no-follow")
    api = Api(gateway_url(url))
    body = given(
        site_name=site, search_term=term, location=location, results_wanted=results, is_remote=remote, user_id=user
    )
    item_format = "jsonl" if as_json else "csv" if as_csv else ""
    if sync:
        raise typer.Exit(_waited_for(api, body, item_format))
    run = _post(api, body)["data"]
    if not follow_log:
        out.print(run["run_id"])
        return
    raise typer.Exit(_followed(api, run, item_format, level))


def _waited_for(api: Api, body: dict[str, Any], item_format: str) -> ExitCode:
    run = _post(api, body, params={"mode": "sync"}, timeout=_PATIENCE)["data"]
    if item_format:
        save_items(api, run["task_id"], item_format, STDOUT)
    else:
        _show(run)
    counts = ", ".join((counted(run["completed_pages"], "page"), counted(run["errors_count"], "error")))
    why = f"\n{run['message']}" if run["message"] and run["status"] != "succeeded" else ""
    err.print(Text(f"{run['status']}: {counts}{why}"), soft_wrap=True)
    return of_status(_STATUSES.get(run["status"], "error"))


def _post(api: Api, body: dict[str, Any], **options: Any) -> Any:
    try:
        return api.post("/jobs/scrape", json=body, **options)
    except ApiError as error:
        raise ApiError(f"{error}{_advice(error.detail)}", error.exit_code, detail=error.detail) from None


def _advice(detail: Any) -> str:
    """What to do about a refusal, where it says enough."""
    told = detail if isinstance(detail, dict) else {}
    if task := told.get("task_id"):
        return f"\nTo watch it: {program()} logs -f {task}\nTo fetch its results: {program()} items {task}"
    if told.get("field") == "site_name":
        return f"; there is {', '.join(told['known']) or 'none yet'}"
    return ""


def _followed(api: Api, run: dict[str, Any], item_format: str, level: str | None) -> ExitCode:
    code = watch(api, run["task_id"], err if item_format else out, level)
    if code is ExitCode.INTERRUPTED:
        return code
    if item_format:
        save_items(api, run["task_id"], item_format, STDOUT)
    else:
        _show(api.get(f"/jobs/scrape/{run['run_id']}", limit=_SHOWN))
    return code


def _show(run: dict[str, Any]) -> None:
    """The first results as a table; what else there is of them is one command away."""
    results = run["results"][:_SHOWN]
    columns = {head: field for head, field in _COLUMNS.items() if any(result.get(field) for result in results)}
    if not columns:
        out.print(f"{counted(len(results), 'result')}: {program()} items {run['task_id']}", soft_wrap=True)
        return
    table = new_table(*columns, folded=columns)
    for result in results:
        table.add_row(*(Text(visible(_cell(result.get(field)))) for field in columns.values()))
    out.print(table)
    if run.get("next"):
        out.print(Text(f"more: {program()} items {run['task_id']}", style="dim"), soft_wrap=True)


def _cell(value: Any) -> str:
    """A posting's place and salary are documents with their own wording in them."""
    if isinstance(value, dict):
        parts = _pay(value) if "currency" in value else ", ".join(str(part) for part in value.values() if part)
        value = value.get("text") or parts
    return "" if value is None else str(value)


def _pay(salary: dict[str, Any]) -> str:
    """As `46000–56000 EUR per year`."""
    given = (salary.get("min"), salary.get("max"))
    amounts = "–".join(dict.fromkeys(str(amount) for amount in given if amount is not None))
    period = f"per {salary['period']}" if salary.get("period") else ""
    return " ".join(filter(None, (amounts, salary["currency"], period)))
