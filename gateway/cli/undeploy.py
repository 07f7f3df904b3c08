"""`discoverybot undeploy`: delete a deployed version everywhere."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer
from rich.text import Text

from gateway.cli.api import Api
from gateway.cli.console import err, out
from gateway.cli.gateway_address import gateway_url
from gateway.cli.options import Url

Project = Annotated[str, typer.Argument(help="As `discoverybot spiders --all` spells it.", show_default=False)]
Version = Annotated[str, typer.Argument(show_default=False)]


def undeploy(project: Project, version: Version, *, url: Url = None) -> None:
    """Delete a deployed version from every crawl node; crawls that run go on."""
    path = f"/projects/{quote(project, safe='')}/versions/{quote(version, safe='')}"
    for node in Api(gateway_url(url)).delete(path)["nodes"]:
        mark = ("✓ ", "green") if node["removed"] else ("✗ ", "bold red")
        where = out if node["removed"] else err
        where.print(Text.assemble(mark, node["node"], ": ", node["message"] or "removed"), soft_wrap=True)
    out.print(f"{project} {version}: deleted")
