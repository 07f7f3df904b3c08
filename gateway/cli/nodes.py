"""`discoverybot nodes`: the crawl nodes, and which of them get work."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.text import Text

from gateway.cli.api import Api
from gateway.cli.console import Url, age, command_group, err, gateway_url, new_table, out

app = command_group("Crawl nodes.")

Name = Annotated[str, typer.Argument(metavar="NODE", help="As `nodes` shows it.")]
_STYLES = {"up": "green", "resting": "yellow", "draining": "yellow"}


@app.command("list")
def list_nodes(*, url: Url = None) -> None:
    """All nodes: which get work, which do not, and why."""
    found = Api(gateway_url(url)).get("/nodes")
    numbers, texts = ("SLOTS", "FAILURES", "SEEN"), ("URL", "WHY")
    table = new_table("NODE", "STATE", *numbers, *texts, folded=texts, right=numbers)
    for node in found["nodes"]:
        table.add_row(*_cells(node))
    out.print(table)
    for node in found["nodes"]:
        if node["todo"]:
            err.print(f"{node['name']}: {node['todo']}", style="yellow", soft_wrap=True, markup=False)
    for missing in found["missing"]:
        err.print(f"nobody is {missing['url']}: {missing['todo']}", style="yellow", soft_wrap=True, markup=False)


@app.command("drain")
def drain_node(node: Name, *, url: Url = None) -> None:
    """Give a node no new work; what runs there ends by itself."""
    answer = Api(gateway_url(url)).post(f"/nodes/{quote(node, safe='')}/drain")
    out.print(Text(f"{node}: draining; {answer['used_slots']} of its slots are in use"))


@app.command("resume")
def resume_node(node: Name, *, url: Url = None) -> None:
    """Give a node work again: one that was drained, and one in quarantine as soon as it answers a probe."""
    answer = Api(gateway_url(url)).post(f"/nodes/{quote(node, safe='')}/resume")
    out.print(Text(f"{node}: {answer['state']}"))


def _cells(node: dict[str, Any]) -> list[Any]:
    slots = f"{node['used_slots']}/{node['max_slots']}"
    state = Text(node["state"], style=_STYLES.get(node["state"], "red"))
    told = (slots, str(node["failures"]), age(node["heartbeat_at"]), node["url"], node["why"] or "")
    return [Text(node["name"]), state, *map(Text, told)]
