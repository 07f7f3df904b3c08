"""The `sitemap` spider on sites with sitemaps of every kind."""

from __future__ import annotations

import gzip
from typing import Any
from urllib.parse import urlsplit

import pytest
from sites.server import Reply, Site, html

from .conftest import Crawl, Run

NAMESPACES = (
    'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:xhtml="http://www.w3.org/1999/xhtml" '
    'xmlns:image="http://www.google.com/schemas/sitemap-image/1.1"'
)


def urlset(*entries: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?><urlset {NAMESPACES}>{"".join(entries)}</urlset>'


def url(loc: str, more: str = "") -> str:
    return f"<url><loc>{loc}</loc>{more}</url>"


def index(*locs: str) -> str:
    return (
        f"<sitemapindex {NAMESPACES}>{''.join(f'<sitemap><loc>{loc}</loc></sitemap>' for loc in locs)}</sitemapindex>"
    )


def xml(text: str) -> Reply:
    return Reply(text, content_type="application/xml")


def paths(crawl: Crawl) -> list[str]:
    return sorted(urlsplit(item["url"]).path for item in crawl.items)


def sitemap_site(**sitemaps: Any) -> Site:
    site = Site({"/a": html("a"), "/b": html("b"), "/to-a": Reply(status=301, headers={"Location": "/a"})})
    for name, content in sitemaps.items():
        site.pages[f"/{name}"] = content
    return site


@pytest.fixture
def site() -> Site:
    """Named in robots.txt: an index of an index, of gzip, of text, of itself and of a page that is none."""
    site = sitemap_site()
    base = site.url
    robots = f"User-agent: *\nDisallow: /b\nDisallow: /robots.txt\nSitemap: {base}/index\nsitemap: /plain"
    site.pages["/robots.txt"] = Reply(robots, content_type="text/plain")
    site.pages["/index"] = xml(
        index(f"{base}/index", f"{base}/inner", f"{base}/a", f"{base}/gone", f"{base}/exploding.gz")
    )
    site.pages["/inner"] = xml(index(f"{base}/packed.xml.gz"))
    full = (
        "<lastmod>2026-03-01</lastmod><changefreq>daily</changefreq><priority>0.8</priority>"
        f'<xhtml:link rel="alternate" hreflang="de" href="{base}/de"/>'
        "<image:image><image:loc>x</image:loc></image:image>"
    )
    packed = urlset(url(f"{base}/a", full), url(f"{base}/a"), url("https://elsewhere.invalid/"), url("/missing"))
    site.pages["/packed.xml.gz"] = Reply(gzip.compress(packed.encode()), content_type="application/gzip")
    site.pages["/exploding.gz"] = Reply(
        gzip.compress(b"<urlset>" + b" " * 5_000_000), content_type="application/gzip"
    )
    site.pages["/plain"] = Reply(f"\ufeff{base}/b\n{base}/to-a\nnot a URL\n", content_type="text/plain")
    return site


def test_all_sitemaps_that_robots_txt_leads_to_are_read(run: Run, site: Site) -> None:
    with site:
        crawl = run("sitemap", f"{site.url}/some/page", environ={"CRAWL_MAX_PAGE_BYTES": "1000000"})
    assert paths(crawl) == ["/a", "/b", "/missing", "/to-a"]
    assert next(item for item in crawl.items if item["url"].endswith("/a")) == {
        "url": f"{site.url}/a",
        "lastmod": "2026-03-01",
        "changefreq": "daily",
        "priority": 0.8,
        "alternates": [{"language": "de", "url": f"{site.url}/de"}],
        "sitemap": f"{site.url}/packed.xml.gz",
    }
    assert f"{site.url}/exploding.gz is no sitemap: it cannot be unpacked" in crawl.log
    assert f"{site.url}/a is no sitemap" in crawl.log


def test_each_page_can_be_asked_whether_it_answers(run: Run, site: Site) -> None:
    with site:
        crawl = run("sitemap", site.url, params={"check": True})
    told = {urlsplit(item["url"]).path: (item["status"], item["redirected_to"]) for item in crawl.items}
    assert told == {
        "/a": (200, None),
        "/b": (None, None),
        "/missing": (404, None),
        "/to-a": (200, f"{site.url}/a"),
    }
    assert next(item["error"] for item in crawl.items if item["url"].endswith("/b")) == "Forbidden by robots.txt"


def test_without_robots_txt_it_looks_where_sitemaps_are(run: Run) -> None:
    with sitemap_site() as site:
        site.pages["/sitemap.xml"] = xml(urlset(url(f"{site.url}/a"), url(f"{site.url}/b")))
        assert paths(run("sitemap", site.url)) == ["/a", "/b"]


def test_a_start_url_may_be_a_sitemap_and_its_entries_can_be_chosen(run: Run) -> None:
    dated = [(n, f"2026-0{n}-15T00:00:00Z") for n in range(1, 6)] + [(6, "2026-03")]
    with Site() as site:
        entries = [url(f"{site.url}/{n}", f"<lastmod>{day}</lastmod>") for n, day in dated]
        site.pages["/pages.xml"] = xml(urlset(*entries, url(f"{site.url}/7"), url(f"{site.url}/8")))
        params = {"since": "2026-03-15", "include": [r"/\d$"], "exclude": ["/8"]}
        crawl = run("sitemap", f"{site.url}/pages.xml", params=params)
    assert paths(crawl) == ["/3", "/4", "/5", "/6", "/7"]
    assert site.paths() == ["/pages.xml"]
