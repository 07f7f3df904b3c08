"""`discoverybot spiders`: what can be run, and what it takes."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from gateway.cli.api import Api, ApiError
from gateway.cli.console import out
from gateway.cli.gateway_address import gateway_url
from gateway.cli.options import Url
from gateway.domain.job import DEFAULT_PROJECT

#: What a spider without a schema takes.
_ANY_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}


def spiders(
    *,
    project: Annotated[str | None, typer.Option(help="Only of this project.", show_default=False)] = None,
    version: Annotated[str | None, typer.Option(help="Only of this version.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="Earlier versions, too.")] = False,
    schema: Annotated[
        str | None,
        typer.Option(metavar="SPIDER", help="Print the JSON Schema of its parameters.", show_default=False),
    ] = None,
    url: Url = None,
) -> None:
    """Spiders that can be run, in the latest version of each project."""
    api = Api(gateway_url(url))
    found = api.get("/spiders", project=project, version=version, name=schema)["spiders"]
    wanted = [one for one in found if every or version or one["latest"]]
    if schema:
        out.print_json(data=_schema(schema, wanted))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("PROJECT", "VERSION", "SPIDER"):
        table.add_column(name, no_wrap=True)
    table.add_column("DOES", overflow="fold")
    for one in wanted:
        table.add_row(one["project"], one["version"] or "", one["name"], _does(one))
    out.print(table)


def _schema(name: str, found: list[dict[str, Any]]) -> Any:
    """Of our own spider where others have one of the same name."""
    if not found:
        raise ApiError(f"there is no spider {name!r}")
    one = min(found, key=lambda info: info["project"] != DEFAULT_PROJECT)
    return one["params_schema"] or _ANY_STRINGS


def _does(spider: dict[str, Any]) -> str:
    notes = [spider["description"]] if spider["description"] else []
    if spider["allowed_domains"]:
        notes.append(f"keeps to {', '.join(spider['allowed_domains'])}")
    if spider["own_start"]:
        notes.append("decides by itself where it starts")
    return "; ".join(notes)
