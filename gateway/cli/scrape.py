"""`discoverybot scrape`: run a site now, see what it found."""

from __future__ import annotations

from functools import partial
from typing import Any

import typer
from rich.text import Text

from gateway.cli.api import Api, ApiError, ExitCode, of_status
from gateway.cli.crawl import STDOUT, save_items, watch
from gateway.cli.options import LEVEL, URL, argument, flag, option, taking
from gateway.cli.resources import SITES
from gateway.cli.terminal import Record, counted, err, gateway_url, given, new_table, out, program

#: Maximum number of seconds that a gateway may wait for a run: the upper bound of SCRAPE_SYNC_TIMEOUT, and some more.
_PATIENCE = 630.0
#: Results shown in a table.
_SHOWN = 25
_FIELDS = ("title", "company", "location", "salary", "posted", "url")
_STATUSES = {"succeeded": "finished", "partial": "partial"}


@taking(
    SITES.parameter("site_name"),
    argument("search_term", "TERM", "What to search for.", default=None),
    option("location", "Where."),
    option("results_wanted", "End after this many results.", "--results", kind=int, min=1),
    option("is_remote", "Only remote postings, or only others.", "--remote/--on-site", kind=bool),
    flag("sync", "In one request: up to 25 results, and no log."),
    flag("as_json", "All results as JSON lines, to stdout.", "--json"),
    flag("as_csv", "All results as CSV, to stdout.", "--csv"),
    option("user_id", "The user who asks. Default: operator.", "--user"),
    option("follow_log", "Watch it to its end.", "--follow/--no-follow", kind=bool, default=True),
    LEVEL,
    URL,
)
def scrape(
    *, sync: bool, as_json: bool, as_csv: bool, follow_log: bool, level: str | None, url: str | None, **fields: Any
) -> None:
    """Run a site now and show what it found. Exit codes as those of `crawl`."""
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv", param_hint="--csv")
    if sync and not follow_log:
        raise typer.BadParameter("choose one of --sync and --no-follow", param_hint="--no-follow")
    api, body = Api(gateway_url(url)), given(**fields)
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
    """What to do about a refusal, if the details of the answer show that."""
    known = detail if isinstance(detail, dict) else {}
    if task := known.get("task_id"):
        return f"\nTo watch it: {program()} logs -f {task}\nTo fetch its results: {program()} items {task}"
    if known.get("field") == "site_name":
        return f"; there is {', '.join(known['known']) or 'none yet'}"
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
    """The first results as a table, and the command that shows the others."""
    results = run["results"][:_SHOWN]
    fields = [field for field in _FIELDS if any(result.get(field) for result in results)]
    if not fields:
        out.print(f"{counted(len(results), 'result')}: {program()} items {run['task_id']}", soft_wrap=True)
        return
    cells = {field: partial(_cell, field) for field in fields}
    out.print(new_table(", ".join(f"*{field.upper()} {field}" for field in fields), results, **cells))
    if run.get("next"):
        out.print(Text(f"more: {program()} items {run['task_id']}", style="dim"), soft_wrap=True)


def _cell(field: str, result: Record) -> str:
    """The text of a field. Place and salary of a posting are objects that contain their own text."""
    value = result.get(field)
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
