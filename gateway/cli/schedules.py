"""`discoverybot schedules`: what is run again and again, when, and what became of it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from gateway.cli.api import Api
from gateway.cli.console import (
    At,
    CatchUp,
    Cron,
    Every,
    Jitter,
    Level,
    MaxRuns,
    Overlap,
    Timezone,
    Until,
    Url,
    command_group,
    gateway_url,
    new_table,
    out,
    print_page,
    shown,
    timing,
)
from gateway.cli.crawl import watch

app = command_group("Schedules: what is run again and again.")

ScheduleId = Annotated[str, typer.Argument(metavar="ID", help="A schedule's id.")]
Limit = Annotated[int, typer.Option(min=1, max=200)]
_STYLES = {
    "active": "green",
    "paused": "yellow",
    "ended": "dim",
    "fired": "green",
    "skipped": "yellow",
    "missed": "red",
}


@app.command("list")
def list_schedules(
    *,
    user: Annotated[str | None, typer.Option(help="Only those of this user.")] = None,
    state: Annotated[str | None, typer.Option(help="active, paused or ended.")] = None,
    site: Annotated[str | None, typer.Option(help="Only those of this site.")] = None,
    limit: Limit = 20,
    url: Url = None,
) -> None:
    """The latest schedules, newest first."""
    page = Api(gateway_url(url)).get("/schedules", user_id=user, state=state, site=site, limit=limit)
    table = new_table("SCHEDULE", "STATE", "INTERVAL", "NEXT RUN", "RUNS", "WHAT", folded=("WHAT",))
    for schedule in page["schedules"]:
        interval = f"{schedule['interval']} {_zone(schedule)}".strip()
        cells = (_styled(schedule["state"]), interval, shown(schedule["next_run"]), str(schedule["runs"]))
        table.add_row(schedule["schedule_id"], *cells, _what(schedule))
    print_page(table, page)


@app.command("show")
def show(schedule_id: ScheduleId, *, url: Url = None) -> None:
    """One schedule, as JSON."""
    out.print_json(data=_call(url, schedule_id))


@app.command("edit")
def edit(
    schedule_id: ScheduleId,
    *,
    at: At = None,
    every: Every = None,
    cron: Cron = None,
    timezone: Timezone = None,
    jitter: Jitter = None,
    overlap: Overlap = None,
    catch_up: CatchUp = None,
    until: Until = None,
    max_runs: MaxRuns = None,
    name: Annotated[str | None, typer.Option(help="What it is called.")] = None,
    url: Url = None,
) -> None:
    """Change when it runs; `PATCH /schedules/{id}` changes the rest."""
    changes = timing(
        at=at, every=every, cron=cron, until=until, timezone=timezone, jitter=jitter, overlap=overlap,
        catch_up=catch_up, max_runs=max_runs, name=name,
    )  # fmt: skip
    if not changes:
        raise typer.BadParameter("say what to change")
    _tell(Api(gateway_url(url)).patch(f"/schedules/{schedule_id}", json=changes))


@app.command("pause")
def pause(schedule_id: ScheduleId, *, url: Url = None) -> None:
    """Begin no further run, until it is resumed."""
    _tell(Api(gateway_url(url)).post(f"/schedules/{schedule_id}/pause"))


@app.command("resume")
def resume(schedule_id: ScheduleId, *, url: Url = None) -> None:
    """Go on with the first run that is still to come."""
    _tell(Api(gateway_url(url)).post(f"/schedules/{schedule_id}/resume"))


@app.command("run")
def run(
    schedule_id: ScheduleId,
    *,
    follow_log: Annotated[bool, typer.Option("--follow", "-f", help="Watch it to its end.")] = False,
    level: Level = None,
    url: Url = None,
) -> None:
    """Run it now, beside its own runs. With -f the exit code is that of `crawl`."""
    api = Api(gateway_url(url))
    job_id = api.post(f"/schedules/{schedule_id}/run")["job_id"]
    if follow_log:
        raise typer.Exit(watch(api, job_id, out, level))
    out.print(job_id)


@app.command("next")
def preview(
    schedule_id: ScheduleId,
    *,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100)] = 10,
    url: Url = None,
) -> None:
    """The coming runs, in its time zone and in UTC."""
    told = _call(url, schedule_id, "/next", count=count)
    table = new_table(told["timezone"], "UTC")
    for coming in told["runs"]:
        table.add_row(coming["local"].replace("T", " "), coming["due"])
    out.print(table)


@app.command("history")
def history(schedule_id: ScheduleId, *, limit: Limit = 20, url: Url = None) -> None:
    """What became of its runs, the latest first."""
    page = _call(url, schedule_id, "/history", limit=limit)
    table = new_table("DUE", "WHAT", "LATE", "JOB", "WHY", folded=("WHY",))
    for entry in page["entries"]:
        late = f"{entry['late_by_seconds']:.1f}s"
        missed = f"for {entry['missed']} more that were missed" if entry["missed"] else ""
        why = "; ".join(text for text in (entry["reason"], missed) if text)
        table.add_row(shown(entry["due"]), _styled(entry["kind"]), late, entry["job_id"] or "-", why)
    print_page(table, page)


@app.command("end")
def end(schedule_id: ScheduleId, *, url: Url = None) -> None:
    """End it for good; its history stays."""
    Api(gateway_url(url)).post(f"/jobs/{schedule_id}/cancel")
    out.print(f"{schedule_id}: ended")


@app.command("delete")
def delete(schedule_id: ScheduleId, *, url: Url = None) -> None:
    """Remove it with its history; its runs stay."""
    Api(gateway_url(url)).delete(f"/schedules/{schedule_id}")
    out.print(f"{schedule_id}: deleted")


def _call(url: str | None, schedule_id: str, rest: str = "", **query: Any) -> Any:
    return Api(gateway_url(url)).get(f"/schedules/{schedule_id}{rest}", **query)


def _tell(schedule: dict[str, Any]) -> None:
    out.print(f"{schedule['schedule_id']}: {schedule['state']}, next run: {shown(schedule['next_run'])}")


def _styled(word: str) -> Text:
    return Text(word, style=_STYLES.get(word, ""))


def _zone(schedule: dict[str, Any]) -> str:
    return "" if schedule["interval"].startswith("every") else str(schedule["timezone"])


def _what(schedule: dict[str, Any]) -> str:
    """Its name; else the spider and where it starts."""
    if schedule["name"]:
        return str(schedule["name"])
    more = schedule["start_urls_count"] - 1
    first = schedule["start_urls"][0] if schedule["start_urls"] else schedule["site"] or ""
    return f"{schedule['spider'] or ''} {first}".strip() + (f" +{more}" if more > 0 else "")
