"""A browser appears as whoever asked for the crawl wants it to, and takes nothing to where it was not meant for."""

from __future__ import annotations

from pathlib import Path

from integration.crawler.conftest import Run
from sites.server import Site, html

JS_SHOP = Path(__file__).parent / "js_shop"
FETCH = {"user_agent": "Ours/1", "headers": {"X-Key": "k3y"}, "cookies": {"session": "c00kie"}}


def told(site: Site, path: str) -> tuple[str | None, ...]:
    """Agent, cookie and key with which it was asked for."""
    visit = next(visit for visit in site.access_log if visit.path == path)
    return tuple(visit.headers.get(name) for name in ("User-Agent", "Cookie", "X-Key"))


def test_documents_get_all_of_it_and_what_they_load_all_but_the_headers(run: Run) -> None:
    with Site(host="127.0.0.2") as other, Site() as site:
        away = f"fetch('{other.url}/elsewhere', {{mode: 'no-cors'}}); fetch('/redirect-to?{other.url}/r')"
        site.pages["/"] = html(f"<script>document.title = navigator.userAgent; fetch('/data'); {away}</script>")
        site.pages["/data"] = "data"
        crawl = run("seo", site.url, depth=0, params={"render": True}, fetch=FETCH)
        assert [page["title"] for page in crawl.pages] == ["Ours/1"]
        assert told(site, "/") == ("Ours/1", "session=c00kie", "k3y")
        assert told(site, "/data") == ("Ours/1", "session=c00kie", None)
        assert told(other, "/elsewhere") == told(other, "/r") == ("Ours/1", None, None)


def test_pages_that_a_projects_own_browser_opens_get_all_but_the_headers_and_no_other_site_anything(run: Run) -> None:
    with Site(host="127.0.0.2") as other, Site() as site:
        site.pages["/"] = other.pages["/"] = html("<h1>here</h1>")
        away = f"/redirect-to?{other.url}/"
        crawl = run("browsing", f"{site.url}/", f"{site.url}{away}", cwd=JS_SHOP, params={"inside": ""}, fetch=FETCH)
        assert told(site, "/") == told(site, away) == ("Ours/1", "session=c00kie", None)
        assert told(other, "/") == ("Ours/1", None, None)
    assert {item["agent"] for item in crawl.items if item["type"] == "rendered"} == {"Ours/1"}
    assert crawl.log.count("are not sent with pages that the browser itself opens") == 1


def test_a_cookie_that_a_browser_takes_for_secure_places_alone_keeps_no_page_from_being_rendered(run: Run) -> None:
    cookies = {"__Host-key": "a", "__Secure-key": "b", "plain": "c"}
    with Site() as site:
        site.pages["/"] = html("<script>fetch('/data')</script><h1>here</h1>")
        crawl = run("seo", site.url, depth=0, params={"render": True}, fetch={"cookies": cookies})
        assert crawl.progress["errors_count"] == 0, crawl.log
        assert "plain=c" in (told(site, "/data")[1] or "")


def test_a_browser_does_not_go_past_the_proxy_of_the_crawl(run: Run) -> None:
    proxy = {"proxy": "http://127.0.0.1:9"}
    with Site() as site:
        crawl = run("browsing", f"{site.url}/", cwd=JS_SHOP, params={"inside": ""}, fetch=proxy)
        assert "does not go through the proxy" in crawl.log
        crawl = run("seo", site.url, depth=0, params={"render": True}, fetch=proxy)
        assert crawl.exit_code == 1
        assert "cannot have a proxy" in crawl.log
        assert site.access_log == []
