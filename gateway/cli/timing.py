"""When: options that `crawl` and `schedules edit` share, and how times are read and shown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from gateway.cli.console import out, program

At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Run it then: 2027-06-01T09:00; local time, or with an offset.",
        show_default=False,
    ),
]
Every = Annotated[
    str | None,
    typer.Option("--every", metavar="15m", help="Run it again and again: s, m, h, d or w.", show_default=False),
]
Cron = Annotated[
    str | None,
    typer.Option("--cron", metavar="'0 9 * * *'", help="The same by five-field cron, or @daily.", show_default=False),
]
Timezone = Annotated[str | None, typer.Option(help="That cron is read in. Default: UTC.", show_default=False)]
Jitter = Annotated[float | None, typer.Option(help="Part of the gap by which runs are moved.", show_default=False)]
Overlap = Annotated[
    str | None, typer.Option(help="While the run before goes on: skip, queue or allow.", show_default=False)
]
CatchUp = Annotated[str | None, typer.Option(help="For runs that were missed: one, none or all.", show_default=False)]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="No run after that.", show_default=False)]
MaxRuns = Annotated[int | None, typer.Option(help="End after so many runs.", show_default=False)]


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
    seconds = int((datetime.fromisoformat(moment) - (now or datetime.now(UTC))).total_seconds())
    for unit, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= unit:
            return f"in {seconds // unit}{letter}"
    return f"in {max(seconds, 0)}s"


def tell_scheduled(receipt: dict[str, Any]) -> None:
    """What `crawl` says of a crawl that is run later."""
    job_id = receipt["job_id"]
    out.print(Text.assemble("scheduled ", (job_id, "bold")))
    if next_run := receipt.get("next_run"):
        out.print(f"next run: {shown(next_run)} ({until_then(next_run)})")
    out.print(f"to watch it: {program()} logs -f {job_id}", style="dim", soft_wrap=True)
