"""`discoverybot dead` and `discoverybot requeue`: crawls that are out of retries."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from gateway.cli.api import Api
from gateway.cli.console import out, visible
from gateway.cli.gateway_address import gateway_url
from gateway.cli.jobs import age
from gateway.cli.options import JobId, Url


def dead(
    *,
    user: Annotated[str | None, typer.Option(help="Only those of this user.", show_default=False)] = None,
    spider: Annotated[str | None, typer.Option(help="Only those of this spider.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    url: Url = None,
) -> None:
    """Crawls that failed for good and wait for somebody to see to them, newest first."""
    page = Api(gateway_url(url)).get("/dead-letters", user_id=user, spider=spider, limit=limit)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("JOB", "SPIDER", "SITE"):
        table.add_column(name, no_wrap=True)
    table.add_column("WHY", overflow="fold")
    table.add_column("AGE", no_wrap=True, justify="right")
    for letter in page["dead_letters"]:
        why = Text(visible(letter["message"] or ""))
        table.add_row(letter["id"], letter["spider"], letter["site"] or "", why, age(letter["created_at"]))
    out.print(table)
    if page.get("next"):
        out.print("more: --limit", style="dim")


def requeue(job_id: JobId, *, url: Url = None) -> None:
    """Run such a crawl again, as a new one; prints its id."""
    out.print(Api(gateway_url(url)).post(f"/dead-letters/{job_id}/requeue")["job_id"])
