"""`discoverybot keys` and `audit`: who may call the gateway, and who did what."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from pymongo.errors import PyMongoError
from rich.text import Text

from embedded.stack.state import StackState
from gateway.access.audit import AuditEntry, AuditKind, AuditStore
from gateway.access.key_store import KeyIssue, KeyStore
from gateway.access.keys import ApiKey, Scope
from gateway.cli.api import Api, ApiError, ExitCode
from gateway.cli.console import Url, err, gateway_url, home, new_table, out, print_page, program, read_time, shown
from gateway.container import Container
from gateway.sites.site import OPERATOR


def audit(
    *,
    user: Annotated[str | None, typer.Option(help="Only by this user's keys.")] = None,
    key: Annotated[str | None, typer.Option(help="Only by this key (its id).")] = None,
    route: Annotated[str | None, typer.Option(metavar="'/jobs/{job_id}/cancel'", help="Only this.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="At or after.")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=200)] = 20,
    url: Url = None,
) -> None:
    """Who did what: calls that may have changed something, newest first. Takes an admin's key."""
    times = {"since": read_time(since, "--since"), "until": read_time(until, "--until")}
    page = Api(gateway_url(url)).get("/audit", user_id=user, key_id=key, route=route, limit=limit, **times)
    texts = ("WHAT", "ON", "FROM")
    table = new_table("AT", "STATUS", "USER", "KEY", *texts, folded=texts)
    for entry in page["entries"]:
        table.add_row(*map(Text, _audit_cells(entry)))
    print_page(table, page)


def note_command(parts: Container, command: str, **resources: str) -> None:
    """What was done here by whoever can reach the database. Raises `PyMongoError`."""
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    entry = AuditEntry(at=parts.clock(), kind=AuditKind.COMMAND, route=command, resources=resources, address=who)
    parts[AuditStore].insert([entry])


def _audit_cells(entry: dict[str, Any]) -> list[str]:
    what = " ".join(filter(None, (entry["method"], entry["route"])))
    if entry["count"]:
        what = f"{entry['count']} failed logins"
    named = " ".join(f"{name}={value}" for name, value in entry["resources"].items())
    status = str(entry["status"] or "")
    return [
        shown(entry["at"]), status, entry["user_id"] or "", entry["key_id"] or "", what, named, entry["address"] or ""
    ]  # fmt: skip


# --- `discoverybot keys`: who may call the gateway. Asks MongoDB itself, as only those on the server can.

app = typer.Typer(help="Keys: who may call the gateway, and as whom.", no_args_is_help=True, add_completion=False)

#: As the API takes it.
_USER_ID = re.compile(r"[A-Za-z0-9._@+|~=-]{1,128}")
_SPAN = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@app.command("create")
def create_key(
    *,
    user: Annotated[str, typer.Option(help="As whom it acts.")] = OPERATOR,
    scope: Annotated[
        list[Scope], typer.Option(help="read: look at its user's crawls; crawl: make them too; admin: all, for all.")
    ],
    expires: Annotated[str | None, typer.Option(metavar="90d|TIME", help="Until when, or for how long.")] = None,
    note: Annotated[str | None, typer.Option(help="What it is for.")] = None,
) -> None:
    """Make a key, and print it: it cannot be shown again. From the first one on the gateway serves nobody without."""
    user, expires_at = _user(user), _expiry(expires)
    with _parts() as parts:
        first = not parts[KeyStore].any()
        issued = parts[KeyIssue].issue(user, scope, expires_at=expires_at, note=note)
        note_command(parts, "keys create", key_id=issued.key.id, user_id=user)
    out.print(str(issued.token), soft_wrap=True)
    err.print(f"Keep it: it is not shown again. `{program()}` sends it if DISCOVERYBOT_KEY is set to it.")
    if first:
        err.print("It is the first: within a few seconds the gateway serves nobody without a key.", style="yellow")


@app.command("list")
def list_keys(*, user: Annotated[str | None, typer.Option(help="Only this user's.")] = None) -> None:
    """All keys, the oldest first; what they are cannot be shown."""
    table = new_table("KEY", "USER", "SCOPES", "STATE")
    # what a narrow terminal breaks into lines, so that it need not cut the others
    for name in ("CREATED", "EXPIRES", "LAST USED", "NOTE"):
        table.add_column(name)
    with _parts() as parts:
        for key in parts[KeyStore].all():
            if user in {None, key.user_id}:
                table.add_row(*_key_cells(key))
    out.print(table)


@app.command("revoke")
def revoke_key(key_id: Annotated[str, typer.Argument(metavar="ID", help="As `keys list` shows it.")]) -> None:
    """Make a key worthless, within seconds, and with it its sessions, stream tokens and open streams."""
    with _parts() as parts:
        if parts[KeyStore].revoke(key_id) is None:
            raise ApiError(f"there is no key {key_id!r}; `{program()} keys list` shows their ids")
        note_command(parts, "keys revoke", key_id=key_id)
    out.print(f"{key_id}: revoked")


@contextmanager
def _parts() -> Iterator[Container]:
    """On the database that `MONGO_URI` names, else on that of the stack of this data folder. Raises `ApiError`."""
    with closing(Container()) as parts:
        if not os.environ.get("MONGO_URI") and (stack := StackState.read(home())):
            parts.mongo_uri = stack.mongo_uri
        try:
            yield parts
        except PyMongoError as error:
            message = f"MongoDB cannot be asked ({type(error).__name__}): name it with MONGO_URI, or start the stack"
            raise ApiError(message, ExitCode.ERROR) from None


def _user(text: str) -> str:
    if not _USER_ID.fullmatch(text):
        raise typer.BadParameter("1 to 128 letters, digits and . _ @ + | ~ = -", param_hint="--user")
    return text


def _expiry(text: str | None) -> datetime | None:
    """Raises `BadParameter`."""
    now = datetime.now(UTC)
    if text and (span := _SPAN.fullmatch(text)):
        return now + int(span[1]) * _UNITS[span[2]]
    moment = read_time(text, "--expires")
    if moment is None:
        return None
    if (expiry := datetime.fromisoformat(moment).astimezone(UTC)) <= now:
        raise typer.BadParameter("lies in the past", param_hint="--expires")
    return expiry


def _key_cells(key: ApiKey) -> list[Text]:
    state = "revoked" if key.revoked_at else "valid" if key.is_valid(datetime.now(UTC)) else "expired"
    times = (shown(moment.isoformat() if moment else None) for moment in (key.expires_at, key.last_used_at))
    cells = (key.id, key.user_id, ",".join(sorted(key.scopes)), state, shown(key.created_at.isoformat()), *times)
    return [Text(cell) for cell in (*cells, key.note or "")]
