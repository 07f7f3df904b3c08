"""The demo site over HTTP: the lighthouse of Skarholm, which does not exist, and its keepers."""

from __future__ import annotations

import json
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlencode

ROBOTS = "User-agent: *\nDisallow: /keepers-only/\n"
#: Path → status and target. The old news takes three hops.
REDIRECTS = {
    "/visit": (301, "/visiting"),
    "/news": (302, "/log"),
    "/old-news": (301, "/older-news"),
    "/older-news": (301, "/news-archive"),
    "/news-archive": (302, "/archive"),
}
#: One page each under `/log/` (a logbook), `/keepers/` and `/ships/`.
MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
KEEPERS = {
    "aino-berg": "kept the light for thirty-one winters and the bees for thirty",
    "jonas-vik": "repainted the tower four times and never in the colour that was ordered",
    "marta-holm": "taught the foghorn to play the first half of a waltz",
    "otto-lind": "is said to have mistaken the moon for a ship, and to have been polite to it",
}
SHIPS = {
    "gull": "a mail boat, always late and always forgiven",
    "patience": "a barge that took the wrong turn in 1931 and stayed",
    "northern-star": "a schooner, wrecked on the Teeth without loss of anything but the cheese",
    "little-anna": "a ferry, which carries eleven passengers or four cows",
    "ebb": "a survey ship that found the island two metres from where it had been",
}


class DemoPage(NamedTuple):
    title: str | None
    heading: str
    text: str
    links: tuple[str, ...] = ()
    description: str | None = None
    extra_head: str = ""
    second_heading: str = ""


def _entry(month: str) -> DemoPage:
    index = MONTHS.index(month)
    around = tuple(f"/log/{MONTHS[i]}" for i in (index - 1, index + 1) if 0 <= i < len(MONTHS))
    ship = list(SHIPS)[index % len(SHIPS)]
    return DemoPage(
        # spring has no title, and the autumn forgot its descriptions
        None if month in {"march", "april"} else f"Logbook, {month}",
        f"The logbook for {month}",
        f"Wind, weather and what passed the light in {month}: the {ship} most of all.",
        (*around, f"/ships/{ship}", "/log"),
        None if month in MONTHS[8:] else f"What the keepers of Skarholm wrote down in {month}.",
    )


def _keeper(name: str) -> DemoPage:
    spoken = name.replace("-", " ").title()
    data = {"@context": "https://schema.org", "@type": "Person", "name": spoken, "worksFor": {"@type": "Place"}}
    return DemoPage(
        f"{spoken}, keeper",
        spoken,
        f"{spoken} {KEEPERS[name]}.",
        ("/keepers", "/lamp-room", *(f"/keepers/{other}" for other in KEEPERS if other != name)),
        f"The life of {spoken}, keeper of the Skarholm light.",
        f'<script type="application/ld+json">{json.dumps(data)}</script>',
    )


def _ship(name: str) -> DemoPage:
    spoken = name.replace("-", " ").title()
    return DemoPage(
        "Ships of Skarholm",  # the same for all of them
        f"The {spoken}",
        f"The {spoken}: {SHIPS[name]}.",
        ("/ships", f"/photos/{name}.html" if name == "ebb" else "/visiting"),
        second_heading=f"The {spoken}" if name == "gull" else "",
    )


_PLACE = {
    "@context": "https://schema.org",
    "@graph": [{"@type": "LandmarksOrHistoricalBuildings"}, {"@type": "WebSite"}],
}
PAGES = {
    "/": DemoPage(
        "The Skarholm Light",
        "The Skarholm Light",
        "A lighthouse on a rock that is on no map but ours. It has been lit every night since 1874, bar one.",
        (
            "/history",
            "/keepers",
            "/ships",
            "/log",
            "/visit",
            "/lamp-room",
            "/old-news",
            "/shop",
            "/keepers-only/rota",
        ),
        "The lighthouse of Skarholm: its history, its keepers, its ships and how to visit it.",
        f'<link rel="canonical" href="/"><script type="application/ld+json">{json.dumps(_PLACE)}</script>',
    ),
    "/history": DemoPage(
        "History", "How it began", "First a fire, then a lamp, then a committee.", ("/", "/keepers", "/plans.pdf")
    ),
    "/keepers": DemoPage(
        "The keepers", "The keepers", "Four of them are remembered here.", tuple(f"/keepers/{k}" for k in KEEPERS)
    ),
    "/ships": DemoPage(
        "Ships of Skarholm", "Ships", "Those that passed, and one that stayed.", tuple(f"/ships/{s}" for s in SHIPS)
    ),
    "/log": DemoPage("The logbook", "The logbook", "A page for each month.", tuple(f"/log/{m}" for m in MONTHS)),
    "/visiting": DemoPage(
        "Visiting",
        "How to get here",
        "By the Little Anna, tide permitting.",
        ("/tide-tables", "/ships/little-anna", "/"),
    ),
    "/lamp-room": DemoPage(
        "The lamp room",
        "The lamp room",
        "Ninety-one steps up.",
        ("/history", "/lenses"),
        second_heading="The lamp room",
    ),
    "/lenses": DemoPage(
        None,
        "The lenses",
        "Two of glass and one of ice.",
        ("/lamp-room",),
        extra_head='<meta name="robots" content="noindex">',
    ),
    "/archive": DemoPage(
        "Archive", "The archive", "Old news, kept dry.", ("/news", "/gone-fishing", "https://example.com/")
    ),
    "/shop": DemoPage("The shop", "The shop", "Closed until there are visitors.", ("/visit", "/gone-fishing")),
    "/keepers-only/rota": DemoPage("Rota", "Who does the dishes", "Not for visitors.", ("/",)),
    **{f"/log/{month}": _entry(month) for month in MONTHS},
    **{f"/keepers/{name}": _keeper(name) for name in KEEPERS},
    **{f"/ships/{name}": _ship(name) for name in SHIPS},
}


def page(path: str) -> str | None:
    """The HTML of the page at `path`, or `None` if there is none (which is the case for some that are linked)."""
    found = PAGES.get(path)
    return _render(found) if found else None


def _render(page: DemoPage) -> str:
    title = f"<title>{page.title}</title>" if page.title else ""
    description = f'<meta name="description" content="{page.description}">' if page.description else ""
    links = "".join(f'<li><a href="{link}">{link.strip("/").replace("-", " ") or "home"}</a>' for link in page.links)
    second = f"<h1>{page.second_heading}</h1>" if page.second_heading else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">{title}{description}{page.extra_head}</head>'
        f"<body><h1>{page.heading}</h1><p>{page.text}</p>{second}<h2>See also</h2><ul>{links}</ul></body></html>"
    )


# --- its job board: `/positions?q=…&page=…`, and a page for each position, with JSON-LD on it

PATH = "/positions"
PER_PAGE = 4


class JobOffer(NamedTuple):
    title: str
    employer: str
    kind: str
    #: Crowns a month; `None` if the posting does not name it.
    pay: tuple[int, int] | None
    posted: str
    text: str
    remote: bool = False


POSITIONS = {
    "keeper": JobOffer(
        "Lighthouse keeper", "The Skarholm Light", "FULL_TIME", (31_000, 34_000), "2026-10-01", "Thirty-one winters."
    ),
    "assistant-keeper": JobOffer(
        "Assistant keeper", "The Skarholm Light", "FULL_TIME", (26_000, 28_500), "2026-10-03", "Ninety-one steps."
    ),
    "beekeeper": JobOffer(
        "Beekeeper", "The Skarholm Light", "PART_TIME", (9_000, 9_000), "2026-09-14", "Thirty hives, all named."
    ),
    "foghorn-tuner": JobOffer(
        "Foghorn tuner", "Holm & Daughters", "CONTRACTOR", None, "2026-09-20", "The other half of the waltz."
    ),
    "painter": JobOffer(
        "Painter of towers", "Holm & Daughters", "TEMPORARY", (24_000, 29_000), "2026-08-30", "In the colour ordered."
    ),
    "ferry-cook": JobOffer(
        "Cook on the Little Anna", "Skarholm Ferries", "FULL_TIME", (25_000, 27_000), "2026-10-05", "Eleven guests."
    ),
    "deckhand": JobOffer(
        "Deckhand",
        "Skarholm Ferries",
        "FULL_TIME",
        (23_500, 25_000),
        "2026-10-06",
        "Four cows, if there are no guests.",
    ),
    "tide-clerk": JobOffer(
        "Clerk of tide tables",
        "Harbour Office",
        "PART_TIME",
        (12_000, 14_000),
        "2026-07-19",
        "Twice a day.",
        remote=True,
    ),
    "surveyor": JobOffer(
        "Surveyor", "Harbour Office", "CONTRACTOR", None, "2026-09-02", "To find the island where it is."
    ),
    "cheese-diver": JobOffer(
        "Cheese diver", "Harbour Office", "TEMPORARY", (28_000, 36_000), "2026-08-11", "The schooner had a full hold."
    ),
    "archivist": JobOffer(
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
    # search engines ask job boards for a list of their postings' URLs
    entries = [{"@type": "ListItem", "position": at, "url": f"{PATH}/{name}"} for at, name in enumerate(shown, 1)]
    data: dict[str, object] = {"@context": "https://schema.org", "@type": "ItemList", "itemListElement": entries}
    following = escape(urlencode({**asked, "page": page + 1}))
    pager = f'<a rel="next" href="{PATH}?{following}">more</a>' if page * PER_PAGE < len(found) else ""
    return _html("Positions", f"<ul>{rows}</ul>{pager}", data)


def _position(position: JobOffer) -> str:
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


# --- over HTTP


class DemoServer(ThreadingHTTPServer):
    """Serves the demo site on loopback only. `port` 0 takes a free port."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path in REDIRECTS:
            status, target = REDIRECTS[path]
            self._send(status, "", {"Location": target})
        elif path == "/robots.txt":
            self._send(200, ROBOTS, content_type="text/plain")
        elif path == "/tide-tables":
            self._send(500, "<h1>The tide table machine is out of order</h1>")
        else:
            text = page(path) or position_page(path, query)
            self._send(404 if text is None else 200, text or "<h1>Lost at sea</h1>")

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    def _send(
        self, status: int, text: str, headers: dict[str, str] | None = None, content_type: str = "text/html"
    ) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing: the crawl's own log is the one to watch."""
