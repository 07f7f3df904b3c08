"""The `seo` spider on sites of every kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import urldefrag, urljoin, urlsplit
from urllib.request import urlopen

import pytest
from lxml import html as lxml_html
from sites.server import Reply, Site, html, links

from .conftest import Crawl, Run

FULL_PAGE = """<!doctype html><html lang="en-GB"><head>
<title> A  page </title><meta name="Description" content="What it is"><meta name=robots content="NoIndex, nofollow">
<link rel="Canonical" href="/full?canonical">
<script type="application/ld+json">{"@graph": [{"@type": "Article", "author": {"@type": ["Person"]}}]}</script>
<script type="application/ld+json">not json</script></head>
<body><h1>One <b>head</b></h1><h3>Three</h3><script>var not_words = 1</script><p>four words are here</p>
<a href="/fine#part">in</a><a href=" /fine ">again</a>
<a href="https://elsewhere.invalid/">out</a><a href="mailto:x@y">m</a>
</body></html>"""

PAGES = {
    "/": links(
        "/full", "/missing", "/redirect/2", "/file.pdf", "/status/503", "/latin-1", "/loop", "/a", "/large/3000000"
    ),
    "/full": Reply(FULL_PAGE, headers={"X-Robots-Tag": "noarchive"}),
    "/fine": html("<p>fine</p>"),
    "/file.pdf": Reply(b"%PDF" * 1000, content_type="application/pdf"),
    "/a": links("/missing", "/private/x", "/to-a", "/off-site", "/torn"),
    "/to-a": Reply(status=302, headers={"Location": "/a"}),
    "/off-site": Reply(status=302, headers={"Location": "http://127.0.0.2:1/"}),
    "/torn": Reply(b"<html><p>\xff\xfe<a href='/deep'>", content_type="text/html; charset=utf-8"),
    "/private/x": html("secret"),
    "/deep": links("/deeper"),
    "/deeper": html("not within the depth"),
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site(PAGES, robots="User-agent: discoverybot\nDisallow: /private/\n") as running:
        yield running


@pytest.fixture(scope="module")
def crawl(site: Site, run: Run) -> Crawl:
    return run("seo", site.url, depth=3, environ={"CRAWL_MAX_PAGE_BYTES": "1000000"})


def page(crawl: Crawl, path: str) -> dict[str, object]:
    return next(item for item in crawl.pages if urlsplit(item["url"]).path == path)


def test_a_page_says_what_it_says_about_itself(crawl: Crawl, site: Site) -> None:
    full = page(crawl, "/full")
    timing = full.pop("response_time_ms")
    assert isinstance(timing, float)
    assert full == {
        "type": "page",
        "url": f"{site.url}/full",
        "status": 200,
        "depth": 1,
        "redirects": [],
        "size": len(FULL_PAGE),
        "from_cache": False,
        "title": "A page",
        "description": "What it is",
        "canonical": f"{site.url}/full?canonical",
        "language": "en-GB",
        "robots": ["noindex", "nofollow", "noarchive"],
        "h1": ["One head"],
        "headings": [{"level": 1, "text": "One head"}, {"level": 3, "text": "Three"}],
        "word_count": 11,
        "structured_data": ["Article", "Person"],
        "internal_links_count": 1,
        "external_links_count": 1,
        "internal_links": [f"{site.url}/fine"],
        "external_links": ["https://elsewhere.invalid/"],
    }


def test_each_html_page_within_the_depth_is_one_item(crawl: Crawl) -> None:
    paths = Counter(urlsplit(item["url"]).path for item in crawl.pages)
    assert paths == Counter(["/", "/full", "/fine", "/redirect/0", "/latin-1", "/a", "/torn", "/deep"])


def test_a_broken_link_is_told_of_every_page_that_it_is_on(crawl: Crawl, site: Site) -> None:
    told = {(item["url"], item["page"], item["status"]) for item in crawl.broken if item["status"]}
    on_home, on_a = f"{site.url}/", f"{site.url}/a"
    missing, failing = f"{site.url}/missing", f"{site.url}/status/503"
    assert told == {(missing, on_home, 404), (missing, on_a, 404), (failing, on_home, 503)}


def test_what_cannot_be_fetched_is_an_error_with_a_reason(crawl: Crawl, site: Site) -> None:
    reasons = {urlsplit(error["url"]).path: error["reason"] for error in crawl.report["errors"]}
    assert "HTTP 503" in reasons["/status/503"]
    assert "larger than" in reasons["/large/3000000"]
    assert "max redirections" in reasons["/loop"] if "/loop" in reasons else "max redirections" in reasons["/loop/b"]
    assert crawl.progress["errors_count"] == 3
    errors = {urlsplit(item["url"]).path: item["error"] for item in crawl.broken if item["error"]}
    assert errors.keys() == {"/loop", "/large/3000000"}


def test_redirects_are_told_in_their_order(crawl: Crawl, site: Site) -> None:
    hops = [{"url": f"{site.url}/redirect/{n}", "status": 301} for n in (2, 1)]
    assert page(crawl, "/redirect/0")["redirects"] == hops


def test_a_redirect_to_a_page_that_is_fetched_anyway_is_not_fetched_again(site: Site, crawl: Crawl) -> None:
    assert site.hits("/a") == 1


def test_a_page_in_latin_1_keeps_its_letters(crawl: Crawl) -> None:
    assert page(crawl, "/latin-1")["title"] == "Déjà vu"


def test_robots_txt_is_obeyed_and_no_error(crawl: Crawl, site: Site) -> None:
    assert site.hits("/private/x") == 0
    assert not any("private" in error["url"] for error in crawl.report["errors"])


def test_the_report_counts_pages_and_not_hops_retries_or_robots_txt(crawl: Crawl, site: Site) -> None:
    asked = {visit.path for visit in site.access_log if visit.path != "/robots.txt"}
    hops = {"/redirect/1", "/redirect/0", "/loop/b"}
    assert site.hits("/status/503") == 3
    assert crawl.progress["requested_pages"] == len(asked - hops)
    assert crawl.progress["completed_pages"] == len(crawl.pages) + len({"/missing", "/file.pdf"})
    assert crawl.progress["items_count"] == len(crawl.items)
    assert crawl.report["finish_reason"] == "finished"
    assert crawl.exit_code == 0


def test_an_endless_site_ends_at_max_pages_and_not_a_page_later(run: Run) -> None:
    with Site(delay=0.01) as site:
        crawl = run("seo", site.url + "/endless/0", max_pages=25)
        assert len(site.paths()) == crawl.progress["requested_pages"] == 25
    assert crawl.report["finish_reason"] == "closespider_pagecount"


def test_depth_0_without_robots_is_the_start_urls_alone(run: Run) -> None:
    with Site({"/": links("/x"), "/two": links("/x")}, robots="User-agent: *\nDisallow: /") as site:
        crawl = run("seo", site.url, site.url + "/two", depth=0, params={"obey_robots": False})
        assert sorted(site.paths()) == ["/", "/two"]
        assert site.hits("/robots.txt") == 0
    assert [item["depth"] for item in crawl.pages] == [0, 0]


def test_links_to_other_sites_are_looked_up_when_asked_to(run: Run) -> None:
    with Site({"/good": html("body")}) as other:
        good, bad = f"{other.url}/good", f"{other.url}/bad"
        with Site({"/": links(good, bad, "http://no-such-host.invalid/")}) as site:
            crawl = run("seo", site.url, depth=0, params={"check_external": True})
        assert sorted(other.paths()) == ["/bad", "/good"]
    assert {item["url"] for item in crawl.broken} == {bad, "http://no-such-host.invalid/"}
    assert len(crawl.pages) == 1


def test_exactly_the_pages_that_an_independent_walk_lists(run: Run) -> None:
    """The shortest way to a page is often the slowest: here every level has a page that comes late."""
    with Site(_maze()) as site:
        crawl = run("seo", site.url, depth=3)
        walked = _walk(site.url + "/", 3)
    assert {item["url"]: item["depth"] for item in crawl.pages} == walked


def _maze() -> dict[str, str | Reply]:
    """Each page of a level links to all of the next and back; a chain of quick pages leads round the slow ones."""
    pages: dict[str, str | Reply] = {"/": links("/quick/1", "/late?to=/x", "/dir/../dot", "?q=1&p=2", "/sp ace")}
    pages |= {f"/quick/{n}": links(f"/quick/{n + 1}", "/x", f"../quick/{n + 2}#f") for n in range(1, 8)}
    pages |= {f"/x{'/y' * n}": links(f"/x{'/y' * (n + 1)}", "/", "//127.0.0.1:1/other") for n in range(6)}
    pages |= {
        "/late?to=/x": Reply(status=302, headers={"Location": "/x/y"}, delay=0.4),
        "/dot": html("dot"),
        "/?q=1&p=2": html("query"),
    }
    pages |= {
        "/sp%20ace": html("<base href='/x/'><a href='y/y'>based</a>"),
        "/text": Reply("no", content_type="text/plain"),
    }
    return pages


def _walk(start: str, depth_limit: int) -> dict[str, int]:
    seen, level, found = {start}, [start], dict[str, int]()
    for depth in range(depth_limit + 1):
        following: list[str] = []
        for url in level:
            try:
                with urlopen(url) as response:
                    if response.headers.get_content_type() != "text/html":
                        continue
                    final, body = response.url, response.read()
            except OSError:
                continue
            found.setdefault(final, depth)
            tree = lxml_html.document_fromstring(body or b"<html/>", base_url=final)
            tree.make_links_absolute(final, resolve_base_href=True)
            for href in tree.xpath("//a/@href"):
                link = urldefrag(urljoin(final, href)).url.replace(" ", "%20")
                if urlsplit(link).netloc == urlsplit(start).netloc and link not in seen:
                    seen.add(link)
                    following.append(link)
        level = following
    return found


def test_nofollow_is_obeyed_where_that_is_asked_for(run: Run) -> None:
    pages = {
        "/": html('<a href="/a" rel="external NoFollow">a</a><a href="/b" rel="nofollower">b</a><a href="/c">c</a>'),
        "/b": Reply(links("/behind-b"), headers={"X-Robots-Tag": "nofollow"}),
        "/c": html('<meta name="robots" content="None"><a href="/behind-c">behind</a>'),
        **dict.fromkeys(("/a", "/behind-b", "/behind-c"), html("a page")),
    }
    with Site(pages) as site:
        obeyed = run("seo", site.url, params={"obey_nofollow": True})
        assert sorted(urlsplit(page["url"]).path for page in obeyed.pages) == ["/", "/b", "/c"]
        start = next(page for page in obeyed.pages if urlsplit(page["url"]).path == "/")
        assert start["internal_links"] == [f"{site.url}{path}" for path in ("/a", "/b", "/c")]
        assert len(run("seo", site.url).pages) == len(pages)


def test_a_calendar_is_left_out_by_a_pattern(run: Run) -> None:
    with Site({"/": links("/calendar/1", "/about"), "/about": links("/calendar/2")}) as site:
        crawl = run("seo", site.url, params={"exclude": ["/calendar/"]})
        assert (sorted(site.paths()), crawl.broken) == (["/", "/about"], [])
