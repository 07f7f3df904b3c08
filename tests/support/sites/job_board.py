"""A job board for tests: a few hundred made-up postings, always the same, in all forms of presentation.

    with job_board(postings=300) as board:
        crawl("jobs", board.search_url("json-ld", "next_link"), …)
        assert {item["url"] for item in items} == {board.posting_url("json-ld", job) for job in board.postings}

`/search/<markup>/<pagination>?q=…&l=…&page=…` is a page of results (20 each, by keywords in the title and by city),
`/jobs/<markup>/<n>` a posting's own page.

=================  ==================================================================================
markup             `json-ld` result pages carry a JobPosting for each; `html` nothing carries any; `details` only
                   the postings' own pages do
pagination         `next_link` · `page_param` (beyond the end the last page comes again and again) ·
                   `infinite_scroll` and `load_more` (scripts ask for more) · `none` (all on one page)
=================  ==================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qs, urlencode, urlsplit

from sites.server import Reply, Site, html

Markup = Literal["json-ld", "html", "details"]
Pagination = Literal["next_link", "page_param", "infinite_scroll", "load_more", "none"]
PER_PAGE = 20
SELECTORS = {
    "result": "li.job",
    "title": "h2",
    "company": ".company",
    "location": ".place",
    "salary": ".pay",
    "posted": "time",
    "description": ".about",
}
_TITLES = ("Lighthouse Keeper", "Python Developer", "Cheese Taster", "Data Engineer", "Beekeeper", "Ship's Cook")
_COMPANIES = ("Skarholm Light", "Müller & Söhne", "O'Brien Ltd", "Fromagerie du Port", "Ebb Surveys")
_CITIES = (("Berlin", "DE"), ("Lyon", "FR"), ("Leeds", "GB"), ("Austin", "US"), ("Göteborg", "SE"), ("Porto", "PT"))
_CURRENCIES = {"DE": ("EUR", "€"), "FR": ("EUR", "€"), "PT": ("EUR", "€"), "GB": ("GBP", "£"), "US": ("USD", "$")}
_PERIODS = (("year", "YEAR", 40_000), ("hour", "HOUR", 20), ("month", "MONTH", 3_000))
_TYPES = ("FULL_TIME", "PART_TIME", "CONTRACTOR")
_MORE = """let page = 1, busy = false;
async function more() {
  if (busy || page >= PAGES) return;
  busy = true;
  const text = await (await fetch("URL&part=1&page=" + ++page)).text();
  document.querySelector("ul").append(document.createRange().createContextualFragment(text));
  busy = false;
  if (page >= PAGES) document.querySelector(".more")?.remove();
}
"""
_START = {
    "infinite_scroll": "new IntersectionObserver(seen => seen[0].isIntersecting && more())"
    ".observe(document.querySelector('footer'));",
    "load_more": "document.querySelector('button.more')?.addEventListener('click', more);",
}


class Pay(NamedTuple):
    low: int
    high: int
    currency: str
    period: str


class JobAd(NamedTuple):
    """A posting as a crawl should report it."""

    number: int
    title: str
    company: str
    city: str
    country: str
    remote: bool
    pay: Pay | None
    posted: str
    employment_type: str
    description: str


def job_ad(number: int) -> JobAd:
    city, country = _CITIES[number // len(_TITLES) % len(_CITIES)]
    period, _, base = _PERIODS[number % len(_PERIODS)]
    low = base + base // 20 * (number % 7)
    paid = country in _CURRENCIES and number % 5 != 4
    title = _TITLES[number % len(_TITLES)]
    return JobAd(
        number,
        f"{title} {number}",
        _COMPANIES[number % len(_COMPANIES)],
        city,
        country,
        number % 4 == 0,
        Pay(low, low + base // 4, _CURRENCIES[country][0], period) if paid else None,
        f"2026-{number % 10 + 1:02}-{number % 28 + 1:02}",
        _TYPES[number % len(_TYPES)],
        f"{title}s wanted in {city}. You bring patience, we bring <tea> & biscuits.",
    )


class JobBoard(Site):
    """`postings` are the expected results of a crawl."""

    def __init__(self, postings: int = 300, **options: Any) -> None:
        super().__init__(**options)
        self.postings: list[JobAd] = [job_ad(number) for number in range(postings)]

    def search_url(self, markup: Markup, pagination: Pagination, keywords: str = "", location: str = "") -> str:
        """The URL of the first page of results."""
        asked: dict[str, str] = {"q": keywords, "l": location}
        query = urlencode({name: text for name, text in asked.items() if text})
        return f"{self.url}/search/{markup}/{pagination}" + (f"?{query}" if query else "")

    def template(self, markup: Markup, pagination: Pagination) -> str:
        """The search URL with the placeholders of a site's record."""
        url = f"{self.url}/search/{markup}/{pagination}?q={{keywords}}&l={{location}}"
        return url + "&page={page}" if pagination == "page_param" else url

    def record(self, name: str, markup: Markup, pagination: Pagination) -> dict[str, Any]:
        """The record that is posted to `/sites`."""
        scripts = pagination in {"infinite_scroll", "load_more"}
        return {
            "name": name,
            "search_url": self.template(markup, pagination),
            "requires_playwright": scripts,
            "pagination_type": "infinite_scroll" if scripts else pagination,
            "selectors": self.selectors(markup, pagination),
        }

    @staticmethod
    def selectors(markup: Markup, pagination: Pagination) -> dict[str, str]:
        wanted = {} if markup == "json-ld" else dict(SELECTORS) if markup == "html" else {"result": "li.job"}
        return wanted | ({"load_more": ".more"} if pagination == "load_more" else {})

    def posting_url(self, markup: Markup, ad: JobAd) -> str:
        return f"{self.url}/jobs/{markup}/{ad.number}"

    def found(self, keywords: str = "", location: str = "") -> list[JobAd]:
        """The postings that a search must find."""
        words = keywords.lower().split()
        return [
            ad
            for ad in self.postings
            if all(word in ad.title.lower() for word in words)
            and (not location or ad.city.lower() == location.lower())
        ]

    def reply(self, path: str) -> Reply:
        parts = urlsplit(path)
        match parts.path.strip("/").split("/"):
            case ["search", markup, pagination]:
                return Reply(self._results(markup, pagination, parts.query))
            case ["jobs", markup, number] if number.isdigit() and int(number) < len(self.postings):
                return Reply(self._posting(markup, self.postings[int(number)]))
        return super().reply(path)

    def _results(self, markup: str, pagination: str, query: str) -> str:
        asked: dict[str, str] = {name: values[0] for name, values in parse_qs(query).items()}
        found = self.found(asked.get("q", ""), asked.get("l", ""))
        size = len(found) if pagination == "none" else PER_PAGE
        pages = max(1, -(-len(found) // max(size, 1)))
        page = min(int(asked.get("page", 1)), pages)
        shown = self._entries(markup, found[(page - 1) * size : page * size])
        if "part" in asked:
            return shown
        rest = urlencode([(name, asked[name]) for name in ("q", "l") if name in asked])
        return html(
            f"<h1>{len(found)} jobs</h1><ul>{shown}</ul>{_pager(markup, pagination, page, pages, rest)}", "Jobs"
        )

    def _entries(self, markup: str, ads: Sequence[JobAd]) -> str:
        if markup == "html":
            return "".join(self._row(markup, ad) for ad in ads)
        rows = "".join(
            f"<li class=job><a href='/jobs/{markup}/{ad.number}'>{escape(ad.title)}</a></li>" for ad in ads
        )
        return rows + ("".join(self._json_ld(markup, ad) for ad in ads) if markup == "json-ld" else "")

    @staticmethod
    def _row(markup: str, ad: JobAd) -> str:
        return (
            f"<li class=job><h2><a href='/jobs/{markup}/{ad.number}'>{escape(ad.title)}</a></h2>"
            f"<span class=company>{escape(ad.company)}</span> <span class=place>{_place(ad)}</span>"
            f"<span class=pay>{_pay(ad.pay)}</span><time datetime={ad.posted}>some days ago</time>"
            f"<div class=about><p>{escape(ad.description)}</p></div></li>"
        )

    def _posting(self, markup: str, ad: JobAd) -> str:
        written = f"<h1>{escape(ad.title)}</h1><div class=about><p>{escape(ad.description)}</p></div>"
        return html(written + ("" if markup == "html" else self._json_ld(markup, ad)), ad.title)

    def _json_ld(self, markup: str, ad: JobAd) -> str:
        data: dict[str, Any] = {
            "@context": "https://schema.org",
            "@type": "JobPosting",
            "title": ad.title,
            "identifier": {"@type": "PropertyValue", "name": ad.company, "value": f"ad-{ad.number}"},
            "hiringOrganization": {"@type": "Organization", "name": ad.company},
            "jobLocation": {
                "@type": "Place",
                "address": {"@type": "PostalAddress", "addressLocality": ad.city, "addressCountry": ad.country},
            },
            "datePosted": ad.posted,
            "employmentType": ad.employment_type,
            "url": f"{self.url}/jobs/{markup}/{ad.number}",
            "description": f"<p>{escape(ad.description)}</p>",
        }
        if ad.remote:
            data["jobLocationType"] = "TELECOMMUTE"
        if ad.pay:
            unit = next(unit for period, unit, _ in _PERIODS if period == ad.pay.period)
            value = {"@type": "QuantitativeValue", "minValue": ad.pay.low, "maxValue": ad.pay.high, "unitText": unit}
            data["baseSalary"] = {"@type": "MonetaryAmount", "currency": ad.pay.currency, "value": value}
        # a script must not contain an end tag
        written = json.dumps(data).replace("</", "<\\/")
        return f'<script type="application/ld+json">{written}</script>'


def job_board(postings: int = 300, **options: Any) -> JobBoard:
    return JobBoard(postings, **options)


def _pager(markup: str, pagination: str, page: int, pages: int, rest: str) -> str:
    here = f"?{rest}" if rest else "?"
    if pagination == "next_link" and page < pages:
        return f"<a rel=next href='{escape(f'{here}&page={page + 1}')}'>next</a>"
    if pagination in _START:
        script = _MORE.replace("PAGES", str(pages)).replace("URL", here) + _START[pagination]
        # some boards have a link in place of a button
        more = (
            "<button class=more>more</button>"
            if markup == "html"
            else "<a class=more href='javascript:more()'>more</a>"
        )
        button = more if pagination == "load_more" and pages > 1 else ""
        return f"{button}<footer>the end</footer><script>{script if pages > 1 else ''}</script>"
    return ""


def _place(ad: JobAd) -> str:
    return f"{ad.city}, {ad.country}" + (" (remote)" if ad.remote else "")


def _pay(pay: Pay | None) -> str:
    if pay is None:
        return ""
    symbol = next(symbol for currency, symbol in _CURRENCIES.values() if currency == pay.currency)
    return f"{symbol}{pay.low:,} – {symbol}{pay.high:,} a {pay.period}"
