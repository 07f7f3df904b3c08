"""What all commands share: where they write to, where the gateway is, options and times."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, JustifyMethod
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from embedded.stack.state import StackState
from gateway.contract.log_line import LEVELS

# --- where the CLI writes: results to stdout, everything about them to stderr.
#
# What a page, a log or the gateway says is shown, and never obeyed: a terminal that gets its control characters would
# move the cursor, fill the clipboard (OSC 52) or answer on the keyboard's behalf.

#: C0 but for tab and line feed, DEL, C1, what turns the direction of writing, and halves of surrogate pairs.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
#: Of those, what UTF-8 that JSON holds may have as it is.
_CONTROLS_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""With its control characters as `\x1b`, `\r` or `\u202e`."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def visible_json(text: str) -> str:
    """The same JSON, and nothing in it that a terminal obeys."""
    return _CONTROLS_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Visible(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        # before rich takes some of them away without a word
        return super().render_str(visible(text), **options)

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """Whatever it was that was printed, it comes by here; `control` is rich's own."""
        return super()._render_buffer(
            part if part.control else part._replace(text=visible(part.text)) for part in buffer
        )


# what others have named is shown as it is: `[/b]` is no markup, and `:key:` no picture
_console = partial(_Visible, highlight=False, markup=False, emoji=False)
#: Columns of what is piped somewhere: tables must not lose their right half to a terminal that is not there.
_PIPED = 200

out = _console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED)
err = _console(stderr=True)


def new_table(*columns: str, folded: Collection[str] = (), right: Collection[str] = ()) -> Table:
    """Each row is a line, but for the columns that are `folded`: they give way where the terminal is narrow."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        justify: JustifyMethod = "right" if name in right else "left"
        table.add_column(name, justify=justify, **({"overflow": "fold"} if name in folded else {"no_wrap": True}))
    return table


def print_page(table: Table, page: dict[str, Any]) -> None:
    """Rows of a list, and whether there are more."""
    out.print(table)
    if page.get("next"):
        out.print("more: --limit", style="dim")


def program() -> str:
    """What to type to run us again: our name where the shell finds it, else the path from the present folder."""
    path = Path(sys.executable).with_name("discoverybot")
    if shutil.which("discoverybot") or not path.exists():
        return "discoverybot"
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def counted(number: int, thing: str) -> str:
    """`1 page`, `2 pages`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


# --- where the gateway is: said on the command line, in the environment, or by the stack that runs here

DEFAULT_PORT = 8001


def home() -> Path:
    """The data folder. The rest of the settings may be wrong: the CLI talks to a gateway that has its own."""
    return Path(os.environ.get("DISCOVERYBOT_HOME") or ".discoverybot").absolute()


def gateway_url(given: str | None = None) -> str:
    """`--url`, else `DISCOVERYBOT_URL`, else the stack of the data folder, else `GATEWAY_PORT` here."""
    found = given or os.environ.get("DISCOVERYBOT_URL")
    if not found:
        stack = StackState.read(home())
        port = os.environ.get("GATEWAY_PORT") or DEFAULT_PORT
        found = stack.gateway_url if stack else f"http://127.0.0.1:{port}"
    return found.rstrip("/")


# --- when: options that `crawl` and `schedules edit` share, and how times are read and shown

At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Run it then: 2027-06-01T09:00; local time, or with an offset."),
]
Every = Annotated[str | None, typer.Option("--every", metavar="15m", help="Run it again and again: s, m, h, d or w.")]
Cron = Annotated[
    str | None, typer.Option("--cron", metavar="'0 9 * * *'", help="The same by five-field cron, or @daily.")
]
Timezone = Annotated[str | None, typer.Option(help="That cron is read in. Default: UTC.")]
Jitter = Annotated[float | None, typer.Option(help="Part of the gap by which runs are moved.")]
Overlap = Annotated[str | None, typer.Option(help="While the run before goes on: skip, queue or allow.")]
CatchUp = Annotated[str | None, typer.Option(help="For runs that were missed: one, none or all.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="No run after that.")]
MaxRuns = Annotated[int | None, typer.Option(help="End after so many runs.")]


def timing(
    *,
    at: str | None = None,
    every: str | None = None,
    cron: str | None = None,
    until: str | None = None,
    **others: Any,
) -> dict[str, Any]:
    """As the API takes it; only what was given. Raises `BadParameter`."""
    if every and cron:
        raise typer.BadParameter("choose one of --every and --cron", param_hint="--cron")
    fields = {
        "schedule_at": read_time(at, "--at"),
        "interval": f"every {every.strip().removeprefix('every').strip()}" if every else cron,
        "ends_at": read_time(until, "--until"),
        **others,
    }
    return given(**fields)


def given(**fields: Any) -> dict[str, Any]:
    """Those that somebody has named."""
    return {name: value for name, value in fields.items() if value is not None}


def read_time(text: str | None, option: str) -> str | None:
    """With an offset: this machine's, where it has none. Raises `BadParameter`."""
    if text is None:
        return None
    try:
        # without a zone, `astimezone` takes it for local time
        return datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError):
        hint = "2027-06-01T09:00, or with an offset, 2027-06-01T09:00+02:00"
        raise typer.BadParameter(f"{text!r} is not a time such as {hint}", param_hint=option) from None


def shown(moment: str | None) -> str:
    """An ISO time in this machine's time, with its offset; a dash for none."""
    if moment is None:
        return "-"
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")


def until_then(moment: str, now: datetime | None = None) -> str:
    """`in 42s`, `in 5m`, `in 3h`, `in 2d`."""
    return f"in {_span(datetime.fromisoformat(moment) - (now or datetime.now(UTC)))}"


def age(moment: str, now: datetime | None = None) -> str:
    """`42s`, `5m`, `3h`, `2d` since an ISO time."""
    return _span((now or datetime.now(UTC)) - datetime.fromisoformat(moment))


def _span(time: timedelta) -> str:
    seconds = int(time.total_seconds())
    for unit, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit:
            return f"{seconds // unit}{letter}"
    return f"{max(seconds, 0)}s"


def tell_scheduled(receipt: dict[str, Any]) -> None:
    """What `crawl` says of a crawl that is run later."""
    job_id = receipt["job_id"]
    out.print(Text.assemble("scheduled ", (job_id, "bold")))
    if next_run := receipt.get("next_run"):
        out.print(f"next run: {shown(next_run)} ({until_then(next_run)})")
    out.print(f"to watch it: {program()} logs -f {job_id}", style="dim", soft_wrap=True)


def command_group(about: str) -> typer.Typer:
    """Commands about one thing, among them `list`, which is what is meant without any."""
    app = typer.Typer(help=f"{about} Without a command: list them.", add_completion=False)

    @app.callback(invoke_without_command=True)
    def list_unless_asked(context: typer.Context) -> None:
        callbacks = {command.name: command.callback for command in app.registered_commands}
        if context.invoked_subcommand is None and (list_all := callbacks["list"]):
            list_all()

    return app


# --- options that several commands share

Url = Annotated[
    str | None, typer.Option("--url", help="The gateway. Default: DISCOVERYBOT_URL, else the stack that runs here.")
]
JobId = Annotated[str, typer.Argument(metavar="ID", help="A job's id.")]


def _known_level(name: str | None) -> str | None:
    if name is not None and name.upper() not in LEVELS:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(LEVELS)}")
    return name and name.upper()


Level = Annotated[
    str | None,
    typer.Option(
        "--level",
        metavar="LEVEL",
        help="Only lines of at least this level (DEBUG … CRITICAL).",
        callback=_known_level,
    ),
]
