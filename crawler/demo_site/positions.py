"""The demo site's job board: `/positions?q=…&page=…`, and a page for each position, with JSON-LD on it."""

from __future__ import annotations

import json
from html import escape
from typing import NamedTuple
from urllib.parse import parse_qs, urlencode

PATH = "/positions"
PER_PAGE = 4


class Position(NamedTuple):
    title: str
    employer: str
    kind: str
    #: Crowns a month; `None`: not told.
    pay: tuple[int, int] | None
    posted: str
    text: str
    remote: bool = False


POSITIONS = {
    "keeper": Position(
        "Lighthouse keeper", "The Skarholm Light", "FULL_TIME", (31_000, 34_000), "2026-10-01", "Thirty-one winters."
    ),
    "assistant-keeper": Position(
        "Assistant keeper", "The Skarholm Light", "FULL_TIME", (26_000, 28_500), "2026-10-03", "Ninety-one steps."
    ),
    "beekeeper": Position(
        "Beekeeper", "The Skarholm Light", "PART_TIME", (9_000, 9_000), "2026-09-14", "Thirty hives, all named."
    ),
    "foghorn-tuner": Position(
        "Foghorn tuner", "Holm & Daughters", "CONTRACTOR", None, "2026-09-20", "The other half of the waltz."
    ),
    "painter": Position(
        "Painter of towers", "Holm & Daughters", "TEMPORARY", (24_000, 29_000), "2026-08-30", "In the colour ordered."
    ),
    "ferry-cook": Position(
        "Cook on the Little Anna", "Skarholm Ferries", "FULL_TIME", (25_000, 27_000), "2026-10-05", "Eleven guests."
    ),
    "deckhand": Position(
        "Deckhand",
        "Skarholm Ferries",
        "FULL_TIME",
        (23_500, 25_000),
        "2026-10-06",
        "Four cows, if there are no guests.",
    ),
    "tide-clerk": Position(
        "Clerk of tide tables",
        "Harbour Office",
        "PART_TIME",
        (12_000, 14_000),
        "2026-07-19",
        "Twice a day.",
        remote=True,
    ),
    "surveyor": Position(
        "Surveyor", "Harbour Office", "CONTRACTOR", None, "2026-09-02", "To find the island where it is."
    ),
    "cheese-diver": Position(
        "Cheese diver", "Harbour Office", "TEMPORARY", (28_000, 36_000), "2026-08-11", "The schooner had a full hold."
    ),
    "archivist": Position(
        "Archivist",
        "The Skarholm Light",
        "PART_TIME",
        (15_000, 16_000),
        "2026-10-10",
        "Old news, kept dry.",
        remote=True,
    ),
}


def position_page(path: str, query: str) -> str | None:
    """The HTML of a page of results, or of a position; `None` if there is none."""
    if path == PATH:
        return _results(query)
    position = POSITIONS.get(path.removeprefix(f"{PATH}/"))
    return _position(position) if position else None


def _results(query: str) -> str:
    asked = {name: values[0] for name, values in parse_qs(query).items()}
    words, number = asked.get("q", "").lower(), asked.get("page", "1")
    page = max(int(number[:9]), 1) if number.isascii() and number.isdigit() else 1
    found = [name for name, position in POSITIONS.items() if words in position.title.lower()]
    shown = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    rows = "".join(
        f'<li class="position"><a href="{PATH}/{name}">{escape(POSITIONS[name].title)}</a> '
        f"<i>{escape(POSITIONS[name].employer)}</i></li>"
        for name in shown
    )
    # a list of their URLs is what search engines ask boards for
    entries = [{"@type": "ListItem", "position": at, "url": f"{PATH}/{name}"} for at, name in enumerate(shown, 1)]
    data: dict[str, object] = {"@context": "https://schema.org", "@type": "ItemList", "itemListElement": entries}
    following = escape(urlencode({**asked, "page": page + 1}))
    pager = f'<a rel="next" href="{PATH}?{following}">more</a>' if page * PER_PAGE < len(found) else ""
    return _html("Positions", f"<ul>{rows}</ul>{pager}", data)


def _position(position: Position) -> str:
    data: dict[str, object] = {
        "@context": "https://schema.org",
        "@type": "JobPosting",
        "title": position.title,
        "hiringOrganization": {"@type": "Organization", "name": position.employer},
        "jobLocation": {"@type": "Place", "address": {"addressLocality": "Skarholm", "addressCountry": "SE"}},
        "employmentType": position.kind,
        "datePosted": position.posted,
        "description": f"<p>{escape(position.text)}</p>",
        **({"jobLocationType": "TELECOMMUTE"} if position.remote else {}),
    }
    if position.pay:
        low, high = position.pay
        value = {"@type": "QuantitativeValue", "minValue": low, "maxValue": high, "unitText": "MONTH"}
        data["baseSalary"] = {"@type": "MonetaryAmount", "currency": "SEK", "value": value}
    return _html(position.title, f"<p>{escape(position.text)}</p><a href='{PATH}'>All positions</a>", data)


def _html(title: str, body: str, data: dict[str, object]) -> str:
    written = json.dumps(data).replace("</", "<\\/")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<script type="application/ld+json">{written}</script></head>'
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )
