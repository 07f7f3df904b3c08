"""`discoverybot jobs`, `cancel`, `logs`, `dead` and `requeue`."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.text import Text

from gateway.cli.api import Api
from gateway.cli.console import JobId, Level, Url, age, gateway_url, new_table, out, print_page, visible
from gateway.cli.crawl import watch
from gateway.cli.watching import log_line, status_text


def jobs(
    *,
    status: Annotated[str | None, typer.Option(help="Only those in this status.")] = None,
    spider: Annotated[str | None, typer.Option(help="Only those of this spider.")] = None,
    user: Annotated[str | None, typer.Option(help="Only those of this user.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Only runs of this schedule.")] = None,
    site: Annotated[str | None, typer.Option(help="Only runs of this site.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only those with this tag.")] = None,
    search: Annotated[
        str | None, typer.Option(help="Only with this text in id, spider, tags, URLs or message.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    after: Annotated[str | None, typer.Option(help="Go on where another list ended.")] = None,
    url: Url = None,
) -> None:
    """The latest crawls, newest first."""
    page = Api(gateway_url(url)).get(
        "/jobs", status=status, spider=spider, user_id=user, schedule_id=schedule, site=site, tag=tag, q=search,
        limit=limit, after=after,
    )  # fmt: skip
    numbers = ("PAGES", "ITEMS", "ERRORS", "AGE")
    table = new_table("JOB", "STATUS", "SPIDER", "START", *numbers, folded=("START",), right=numbers)
    for job in page["jobs"]:
        table.add_row(*_cells(job))
    out.print(table)
    if page.get("next"):
        so_far = f"searched back to {page['searched_to']}; " if page.get("searched_to") else ""
        out.print(f"{so_far}more: --after {page['next']}", style="dim", soft_wrap=True)


def cancel(job_id: JobId, *, url: Url = None) -> None:
    """Stop a crawl: politely, then by force."""
    answer = Api(gateway_url(url)).post(f"/jobs/{job_id}/cancel")
    asked = "cancellation asked for; it is " if answer.get("status") != "cancelled" else ""
    out.print(f"{job_id}: {asked}{answer.get('status', '')}")


def _cells(job: dict[str, Any]) -> list[Any]:
    more = job["start_urls_count"] - 1
    start = job["start_urls"][0] + (f" +{more}" if more else "")
    counts = (str(job[name]) for name in ("completed_pages", "items_count", "errors_count"))
    return [job["job_id"], status_text(job["status"]), job["spider"], start, *counts, age(job["created_at"])]


def logs(
    job_id: JobId,
    *,
    follow_log: Annotated[bool, typer.Option("--follow", "-f", help="Go on to the end of the crawl.")] = False,
    level: Level = None,
    url: Url = None,
) -> None:
    """The log of a crawl. With -f the exit code is that of `crawl`."""
    api = Api(gateway_url(url))
    api.get(f"/jobs/{job_id}/status")  # says at once if there is no such job
    if follow_log:
        raise typer.Exit(watch(api, job_id, out, level))
    api.client.headers["Accept"] = "application/x-ndjson"
    torn = b""
    with api.download(f"/jobs/{job_id}/logs", level=level) as pieces:
        for piece in pieces:
            *lines, torn = (torn + piece).split(b"\n")
            for line in lines:
                out.print(log_line(json.loads(line)), soft_wrap=True)


def dead(
    *,
    user: Annotated[str | None, typer.Option(help="Only those of this user.")] = None,
    spider: Annotated[str | None, typer.Option(help="Only those of this spider.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    url: Url = None,
) -> None:
    """Crawls that failed for good and wait for somebody to see to them, newest first."""
    page = Api(gateway_url(url)).get("/dead-letters", user_id=user, spider=spider, limit=limit)
    table = new_table("JOB", "SPIDER", "SITE", "WHY", "AGE", folded=("WHY",), right=("AGE",))
    for letter in page["dead_letters"]:
        why = Text(visible(letter["message"] or ""))
        table.add_row(letter["id"], letter["spider"], letter["site"] or "", why, age(letter["created_at"]))
    print_page(table, page)


def requeue(job_id: JobId, *, url: Url = None) -> None:
    """Run such a crawl again, as a new one; prints its id."""
    out.print(Api(gateway_url(url)).post(f"/dead-letters/{job_id}/requeue")["job_id"])
