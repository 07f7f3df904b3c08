"""`discoverybot targets`: what is searched for on a site, again and again."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.table import Table
from rich.text import Text

from gateway.cli.api import Api
from gateway.cli.console import out
from gateway.cli.gateway_address import gateway_url
from gateway.cli.options import Url
from gateway.cli.timing import shown

app = typer.Typer(
    help="Targets: what is searched for on a site, and how often. Without a command: list them.", add_completion=False
)

TargetId = Annotated[str, typer.Argument(metavar="ID", help="Its number, or its id.")]
Site = Annotated[str, typer.Argument(metavar="SITE", help="The site's name.")]
Keywords = Annotated[str | None, typer.Option("--keywords", "-k", help="What to search for.", show_default=False)]
Location = Annotated[str | None, typer.Option("--location", "-l", help="Where.", show_default=False)]
Frequency = Annotated[
    str | None,
    typer.Option(metavar="CRON|MINUTES", help="How often. Default: as often as the site.", show_default=False),
]
Timezone = Annotated[str | None, typer.Option(help="In which cron is read. Default: UTC.", show_default=False)]
Results = Annotated[int | None, typer.Option("--results", help="End with so many.", show_default=False)]
Remote = Annotated[bool | None, typer.Option("--remote/--on-site", help="Only such ones.", show_default=False)]
Enabled = Annotated[bool | None, typer.Option("--enable/--disable", help="Run it by itself.", show_default=False)]


@app.callback(invoke_without_command=True)
def targets(context: typer.Context) -> None:
    """What is searched for on a site, and how often. Without a command: list them."""
    if context.invoked_subcommand is None:
        list_targets()


@app.command("list")
def list_targets(
    *,
    site: Annotated[str | None, typer.Option(help="Only of this site.", show_default=False)] = None,
    url: Url = None,
) -> None:
    """All targets, by number."""
    api = Api(gateway_url(url))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("TARGET", "SITE", "KEYWORDS", "LOCATION", "EVERY", "ENABLED", "LAST SCHEDULED", "NEXT RUN"):
        table.add_column(name, overflow="fold" if name in {"KEYWORDS", "LOCATION"} else "ellipsis")
    after = None
    while True:
        page = api.get("/targets", site=site, limit=200, after=after)
        for target in page["targets"]:
            table.add_row(*_cells(target))
        after = page["next"]
        if after is None:
            break
    out.print(table)


@app.command("show")
def show_target(target: TargetId, *, url: Url = None) -> None:
    """One target, as JSON."""
    out.print_json(data=Api(gateway_url(url)).get(_address(target)))


@app.command("add")
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
    wanted = _fields(
        keywords=keywords, location=location, frequency=_frequency(frequency), timezone=timezone,
        results_wanted=results, is_remote=remote, enabled=enabled,
    )  # fmt: skip
    _tell(Api(gateway_url(url)).post("/targets", json={"site": site, **wanted}))


@app.command("edit")
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
    changes = _fields(
        keywords=keywords, location=location, frequency=_frequency(frequency), timezone=timezone,
        results_wanted=results, is_remote=remote, enabled=enabled,
    )  # fmt: skip
    if not changes:
        raise typer.BadParameter("say what to change")
    _tell(Api(gateway_url(url)).patch(_address(target), json=changes))


@app.command("delete")
def delete_target(target: TargetId, *, url: Url = None) -> None:
    """Delete a target; what runs goes on."""
    Api(gateway_url(url)).delete(_address(target))
    out.print(f"target {target}: deleted")


def _address(target: str) -> str:
    return f"/targets/{quote(target, safe='')}"


def _fields(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _frequency(text: str | None) -> int | str | None:
    return int(text) if text and text.isascii() and text.isdigit() else text


def _tell(target: dict[str, Any]) -> None:
    runs = f"next run {shown(target['next_run'])}" if target["next_run"] else "not run by itself"
    out.print(Text(f"target {target['number']} of {target['site']}: {runs}"))


def _cells(target: dict[str, Any]) -> list[Any]:
    frequency = target["frequency"]
    every = "as the site" if frequency is None else f"{frequency}m" if isinstance(frequency, int) else frequency
    words = (Text(target["keywords"]), Text(target["location"]))
    times = map(shown, (target["last_scheduled"], target["next_run"]))
    return [str(target["number"]), target["site"], *words, every, "yes" if target["enabled"] else "no", *times]
