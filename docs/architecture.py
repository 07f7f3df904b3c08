"""Draws `architecture.svg`: `python docs/architecture.py` writes it, and a test holds it against this file."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

PICTURE = Path(__file__).with_suffix(".svg")
WIDTH, HEIGHT = 1000, 730
#: The picture has a ground of its own, so that it can be read whatever page it stands on.
STYLE = """
  .ground { fill: #ffffff }
  .frame { fill: #f6f8fa; stroke: #8c959f; stroke-dasharray: 6 4 }
  .process { fill: #ddf4ff; stroke: #0969da }
  .store { fill: #fff8c5; stroke: #9a6700 }
  .other { fill: #f6f8fa; stroke: #8c959f }
  .way { fill: none; stroke: #57606a; stroke-width: 1.6 }
  .head { fill: #57606a }
  text { font: 14px system-ui, sans-serif; fill: #1f2328 }
  .name { font-weight: 600; font-size: 16px }
  .small { font-size: 12.5px; fill: #57606a }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 }
    .frame { fill: #161b22; stroke: #6e7681 }
    .process { fill: #0c2d6b; stroke: #58a6ff }
    .store { fill: #3b2300; stroke: #d29922 }
    .other { fill: #21262d; stroke: #6e7681 }
    .way { stroke: #adbac7 }
    .head { fill: #adbac7 }
    text { fill: #e6edf3 }
    .small { fill: #adbac7 }
  }
"""
HEAD = """<defs>
<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">
<path class="head" d="M0,0 L10,5 L0,10 z"/>
</marker>
</defs>"""


class Box(NamedTuple):
    kind: str
    name: str
    says: tuple[str, ...]
    left: int
    top: int
    width: int
    height: int = 64


class Way(NamedTuple):
    """An arrow through these points, and what it carries, beginning (or with `anchor` ending) at a place."""

    points: tuple[tuple[int, int], ...]
    says: tuple[str, ...]
    at: tuple[int, int]
    anchor: str = "start"


FRAME = Box("frame", "", (), 170, 490, 770, 124)
BOXES = (
    Box("other", "Clients", ("browser, curl, CLI",), 20, 50, 160),
    Box("process", "Gateway", ("HTTP API, event streams",), 310, 50, 200),
    Box("store", "Redis", ("live lines, dedupe keys",), 750, 50, 190),
    Box(
        "store", "MongoDB", ("the record of all jobs,", "schedules, nodes,", "items, logs, eggs"), 750, 190, 190, 240
    ),
    Box("store", "Broker", ("RabbitMQ or Redis",), 310, 250, 160),
    Box("process", "Beat", ("clock, sweep",), 560, 250, 120),
    Box("process", "Worker", ("gives jobs to nodes",), 310, 370, 160),
    Box("process", "Scrapyd", ("starts spiders",), 320, 532, 140),
    Box("process", "Spider", ("Scrapy",), 520, 532, 100),
    Box("store", "Files", ("the outbox",), 670, 532, 90),
    Box("process", "Tailer", ("ships files",), 810, 532, 110),
    Box("other", "Sites", ("that are crawled",), 490, 650, 160, 60),
)
WAYS = (
    Way(((180, 72), (310, 72)), ("1  POST /crawl",), (190, 64)),
    Way(((310, 98), (180, 98)), ("9  live log",), (204, 117)),
    Way(((480, 114), (480, 214), (750, 214)), ("2  the job",), (560, 206)),
    Way(((390, 114), (390, 250)), ("3  wake: look", "at this job"), (380, 180), "end"),
    Way(((560, 282), (470, 282)), ("wake",), (498, 274)),
    Way(((680, 272), (750, 272)), ("due?",), (696, 264)),
    Way(((390, 314), (390, 370)), ("wake",), (380, 347), "end"),
    Way(((470, 402), (750, 402)), ("4  whose turn? assign it to a node",), (494, 394)),
    Way(((390, 434), (390, 532)), ("5  start",), (380, 470), "end"),
    Way(((460, 564), (520, 564)), ("fork",), (474, 556)),
    Way(((570, 596), (570, 650)), ("6  pages",), (580, 638)),
    Way(((620, 564), (670, 564)), ("7",), (638, 556)),
    Way(((760, 564), (810, 564)), (), (0, 0)),
    Way(((850, 532), (850, 430)), ("8  facts, items, log",), (840, 470), "end"),
    Way(((920, 564), (970, 564), (970, 82), (940, 82)), ("8  live lines",), (960, 150), "end"),
    Way(((750, 82), (510, 82)), ("9  live lines",), (580, 74)),
)


def text(x: float, y: float, says: str, kind: str = "", anchor: str = "start") -> str:
    described = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{described}>{escape(says)}</text>'


def box(one: Box) -> Iterator[str]:
    place = f'x="{one.left}" y="{one.top}" width="{one.width}" height="{one.height}" rx="8"'
    yield f'<rect class="{one.kind}" {place}/>'
    middle, first = one.left + one.width / 2, one.top + one.height / 2 - 9 * len(one.says) + 5
    if one.name:
        yield text(middle, first, one.name, "name", "middle")
    for number, line in enumerate(one.says, start=1):
        yield text(middle, first + 19 * number, line, "small", "middle")


def way(one: Way) -> Iterator[str]:
    points = " ".join(f"{x},{y}" for x, y in one.points)
    yield f'<polyline class="way" points="{points}" marker-end="url(#head)"/>'
    for number, line in enumerate(one.says):
        yield text(one.at[0], one.at[1] + 17 * number, line, anchor=one.anchor)


def picture() -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title">',
        '<title id="title">How a crawl goes through DiscoveryBot, from the request to the live log</title>',
        f"<style>{STYLE}</style>",
        HEAD,
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>',
        *box(FRAME),
        text(FRAME.left + 12, FRAME.top + 24, "Crawl node", "name"),
        text(FRAME.left + 12, FRAME.top + 44, "one or many", "small"),
        *(line for one in BOXES for line in box(one)),
        *(line for one in WAYS for line in way(one)),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
