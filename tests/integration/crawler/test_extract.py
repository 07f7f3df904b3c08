"""The `extract` spider on sites with lists, details and pages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from sites.server import Site, html

from .conftest import Run

BOOKS = 7
PER_PAGE = 3


def _list(page: int, *, with_next: bool) -> str:
    rows = "".join(
        f'<li class=book><h2><a href="/book/{n}?ref=list">Book <b>{n}</b></a></h2>'
        f"<span class=price>1.0{n:02},50 €</span></li>"
        for n in range((page - 1) * PER_PAGE + 1, min(page * PER_PAGE, BOOKS) + 1)
    )
    last = page * PER_PAGE >= BOOKS
    link = f'<a rel=next href="/list/{page + 1}">more</a>' if with_next and not last else ""
    return f'<html lang=de-DE><body><ul>{rows}</ul>{link}<a href="/about">About</a></body></html>'


def _book(n: int) -> str:
    return f"""<!doctype html><html lang=de><head><meta property="og:title" content="Book {n}">
        <script type="application/ld+json">{{"sku": "B{n}"}}</script></head><body>
        <h1>Book {n}</h1><p>Preis: <span>12,{n}0&nbsp;€</span></p><p class=stock>noch {n}.000 Stück</p>
        <time datetime="2026-03-0{n}">neulich</time><time class=long>3. März 2026</time>
        <img src="/cover-{n}.jpg"><div class=tags><a>eins</a><a>zwei</a></div>
        <table><tr><th>Format<td>Papier<tr><th>Seiten<td>{n}00</table>
        <section class=review><b class=who>Ann</b><ul><li><i>5</i> gut</li><li><i>4</i> lang</li></ul></section>
        <section class=review><b class=who>Bob</b></section><p>ISBN 978-{n}</p></body></html>"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    pages = {"/": _list(1, with_next=True), "/about": html("<h1>About</h1>")}
    pages |= {f"/list/{n}": _list(n, with_next=True) for n in (2, 3)}
    # beyond the last page it shows the last one again, for ever
    pages |= {"/paged": _list(1, with_next=False)}
    pages |= {f"/paged?page={n}": _list(min(n, 3), with_next=False) for n in range(1, 9)}
    pages |= {f"/book/{n}?ref=list": _book(n) for n in range(1, BOOKS + 1)}
    pages["/shelves"] = html("<nav><a href='/'>novels</a><a href='https://elsewhere.invalid/'>more</a></nav>")
    with Site(pages) as running:
        yield running


def names(items: list[dict[str, Any]]) -> list[str]:
    return [item["name"] for item in items]


ALL = [f"Book {n}" for n in range(1, BOOKS + 1)]
LIST = {"items": "li.book", "fields": {"name": "h2", "price": {"css": ".price", "type": "number"}}}


FIELDS = {
    "name": "h1::text",
    "xpath": "//meta[@property='og:title']/@content",
    "title": "meta[property='og:title']",
    "price": {"xpath": "//p[contains(., 'Preis')]", "type": "number"},
    "stock": {"css": ".stock", "type": "integer"},
    "day": {"css": "time", "type": "date"},
    "spelled": {"css": "time.long", "type": "date"},
    "cover": {"css": "img", "type": "url"},
    "source": {"css": "img", "attribute": "src"},
    "tags": {"css": ".tags a", "list": True},
    "data": {"css": "script[type='application/ld+json']", "type": "json"},
    "isbn": {"regex": r"ISBN ([\d-]+)"},
    "sold_out": {"css": ".sold-out", "type": "boolean"},
    "stars": {"css": "i", "type": "number", "list": True},
    "markup": {"css": ".tags a", "type": "html"},
    "facts": {"css": "tr", "list": True, "fields": {"name": "th", "value": {"css": "td"}}},
    "reviews": {
        "css": ".review",
        "list": True,
        "fields": {"who": ".who", "notes": {"css": "li", "list": True, "fields": {"stars": "i", "all": "."}}},
    },
    "shape": {"css": ".tags", "type": "number", "default": "none"},
    "nothing": {"css": ".nothing", "list": True},
}

READ = {
    "name": "Book 3",
    "xpath": "Book 3",
    "title": "Book 3",
    "price": 12.3,
    "stock": 3000,
    "day": "2026-03-03",
    "spelled": "2026-03-03",
    "cover": "/cover-3.jpg",
    "source": "/cover-3.jpg",
    "tags": ["eins", "zwei"],
    "data": {"sku": "B3"},
    "isbn": "978-3",
    "sold_out": False,
    "stars": [5, 4],
    "markup": "<a>eins</a>",
    "facts": [{"name": "Format", "value": "Papier"}, {"name": "Seiten", "value": "300"}],
    "reviews": [
        {"who": "Ann", "notes": [{"stars": "5", "all": "5 gut"}, {"stars": "4", "all": "4 lang"}]},
        {"who": "Bob", "notes": []},
    ],
    "shape": "none",
    "nothing": [],
}


def test_a_page_is_read_by_its_rules(run: Run, site: Site) -> None:
    url = f"{site.url}/book/3?ref=list"
    crawl = run("extract", url, params={"fields": FIELDS})
    assert crawl.items == [{**READ, "url": url, "cover": f"{site.url}/cover-3.jpg"}]
    assert crawl.report["stats"]["extract/unread/shape"] == 1
    assert crawl.log.count("Cannot read shape") == 1


def test_the_link_to_the_next_page_is_followed_to_the_last(run: Run, site: Site) -> None:
    crawl = run("extract", site.url, params={**LIST, "pagination": "a[rel=next]"})
    assert names(crawl.items) == ALL
    assert [item["price"] for item in crawl.items] == [1000.5 + n for n in range(1, BOOKS + 1)]
    assert crawl.progress["requested_pages"] == 3


def test_a_page_parameter_counts_until_nothing_new_comes(run: Run, site: Site) -> None:
    crawl = run("extract", f"{site.url}/paged", params={**LIST, "pagination": {"page_param": "page"}})
    assert names(crawl.items) == ALL
    assert crawl.progress["requested_pages"] == 4


def test_a_page_parameter_goes_on_from_the_page_that_is_given(run: Run, site: Site) -> None:
    pagination = {"page_param": "page", "max_pages": 2}
    crawl = run("extract", f"{site.url}/paged?page=2", params={**LIST, "pagination": pagination})
    assert names(crawl.items) == ALL[3:]
    assert crawl.progress["requested_pages"] == 2


def test_links_lead_from_lists_to_details(run: Run, site: Site) -> None:
    params = {
        "links": ["nav a", ".book h2"],
        "exclude": [r"/book/5\b"],
        "pagination": {"next": "//a[@rel='next']/@href"},
        "fields": {"name": "h1"},
    }
    crawl = run("extract", f"{site.url}/shelves", params=params)
    assert sorted(names(crawl.items)) == [name for name in ALL if name != "Book 5"]
    assert crawl.report["stats"]["extract/links_to_other_sites"] == 1
    assert crawl.progress["errors_count"] == 0


def test_without_a_word_of_where_to_go_only_the_start_urls_are_read(run: Run, site: Site) -> None:
    assert names(run("extract", site.url, params=LIST).items) == ALL[:PER_PAGE]


def test_it_walks_to_the_depth_and_where_the_patterns_allow(run: Run, site: Site) -> None:
    params = {"fields": {"name": {"css": "h1", "required": True}}, "include": ["/book/[12]"]}
    assert sorted(names(run("extract", site.url, depth=1, params=params).items)) == ["Book 1", "Book 2"]


def test_a_pattern_meant_to_take_for_ever_takes_no_time(run: Run) -> None:
    evil = html(f"<p>{'a' * 50_000}!</p>")
    params = {"fields": {"a": {"css": "p", "regex": r"^(\w+\s?)*$"}, "b": {"css": "p", "regex": r"a!$"}}}
    with Site({"/": evil}) as site:
        begun = time.monotonic()
        crawl = run("extract", site.url, params=params)
    assert [(item["a"], item["b"]) for item in crawl.items] == [(None, "a!")]
    assert time.monotonic() - begun < 20


def test_json_that_no_database_could_hold_is_read_like_any_other(run: Run) -> None:
    written = r'{"large": 123456789012345678901234567890, "half": "\ud83d"}'
    params = {"fields": {"data": {"css": "script", "type": "json"}}}
    with Site({"/": html(f"<script>{written}</script>")}) as site:
        crawl = run("extract", site.url, params=params)
    assert [item["data"]["large"] for item in crawl.items] == [123456789012345678901234567890]
    assert crawl.progress["errors_count"] == 0


def test_rules_that_are_wrong_end_the_crawl_before_its_first_page(run: Run, site: Site) -> None:
    crawl = run("extract", f"{site.url}/about", params={"fields": {"name": "h1["}})
    assert crawl.exit_code == 1
    assert "fields.name" in crawl.log
    assert "not a CSS selector" in crawl.log
