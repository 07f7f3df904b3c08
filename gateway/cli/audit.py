"""`discoverybot audit`: who did what; and the note of what is done here on the database itself."""

from __future__ import annotations

import getpass
import socket
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from gateway.cli.api import Api
from gateway.cli.console import out
from gateway.cli.gateway_address import gateway_url
from gateway.cli.options import Url
from gateway.cli.timing import read_time, shown
from gateway.container import Container
from gateway.domain.audit import AuditEntry, AuditKind
from gateway.storage.audit import AuditStore


def audit(
    *,
    user: Annotated[str | None, typer.Option(help="Only by this user's keys.", show_default=False)] = None,
    key: Annotated[str | None, typer.Option(help="Only by this key (its id).", show_default=False)] = None,
    route: Annotated[
        str | None, typer.Option(metavar="'/jobs/{job_id}/cancel'", help="Only this.", show_default=False)
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="At or after.", show_default=False)] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    url: Url = None,
) -> None:
    """Who did what: calls that may have changed something, newest first. Takes an admin's key."""
    times = {"since": read_time(since, "--since"), "until": read_time(until, "--until")}
    page = Api(gateway_url(url)).get("/audit", user_id=user, key_id=key, route=route, limit=limit, **times)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("AT", "STATUS", "USER", "KEY"):
        table.add_column(name, no_wrap=True)
    for name in ("WHAT", "ON", "FROM"):
        table.add_column(name, overflow="fold")
    for entry in page["entries"]:
        table.add_row(*map(Text, _cells(entry)))
    out.print(table)
    if page.get("next"):
        out.print("more: --limit", style="dim")


def note_command(parts: Container, command: str, **resources: str) -> None:
    """What was done here by whoever can reach the database. Raises `PyMongoError`."""
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    entry = AuditEntry(at=parts.clock(), kind=AuditKind.COMMAND, route=command, resources=resources, address=who)
    parts[AuditStore].insert([entry])


def _cells(entry: dict[str, Any]) -> list[str]:
    what = " ".join(filter(None, (entry["method"], entry["route"])))
    if entry["count"]:
        what = f"{entry['count']} failed logins"
    named = " ".join(f"{name}={value}" for name, value in entry["resources"].items())
    status = str(entry["status"] or "")
    return [
        shown(entry["at"]), status, entry["user_id"] or "", entry["key_id"] or "", what, named, entry["address"] or ""
    ]  # fmt: skip
