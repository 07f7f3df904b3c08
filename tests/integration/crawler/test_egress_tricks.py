"""What is refused when a crawl is submitted is refused at the socket as well: here nobody has looked before."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from egress_tricks import NO_URLS, REACH_INSIDE, REACH_LOOPBACK
from sites.server import Reply, Site, html

from .conftest import Crawl, ProjectPython, Run

SHOP = Path(__file__).parent / "shop"
#: The one address that crawls here may reach.
OPEN = "127.0.0.9"
ENVIRON = {"CRAWL_ALLOW_NETWORKS": f"{OPEN}/32"}
#: Nobody connects to it: what it stands for is asked for through a proxy.
ELSEWHERE = "93.184.215.14"


class Canary:
    """Listens on every address of this machine, and accepts nothing."""

    def __init__(self) -> None:
        self._listeners = [socket.socket(socket.AF_INET)]
        self._listeners[0].bind(("0.0.0.0", 0))
        self.port = self._listeners[0].getsockname()[1]
        if socket.has_ipv6:
            listener = socket.socket(socket.AF_INET6)
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(("::", self.port))
            self._listeners.append(listener)
        for listener in self._listeners:
            listener.listen(200)
            listener.settimeout(0)

    def callers(self) -> list[str]:
        return [peer for listener in self._listeners for peer in _waiting(listener)]

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()

    def tricks(self, *lists: tuple[str, ...]) -> list[str]:
        return [url.replace("PORT", str(self.port)) for one in lists for url in one]


def _waiting(listener: socket.socket) -> Iterator[str]:
    while True:
        try:
            connection, peer = listener.accept()
        except BlockingIOError:
            return
        connection.close()
        yield str(peer)


@pytest.fixture(scope="module")
def canary() -> Iterator[Canary]:
    canary = Canary()
    yield canary
    canary.close()


@pytest.fixture
def open_site() -> Iterator[Site]:
    with Site(host=OPEN) as site:
        yield site


@pytest.fixture(params=["newest", "oldest"])
def run_project(request: pytest.FixtureRequest, run: Run) -> Run:
    """Runs a spider of the shop, with today's Scrapy and with the oldest."""
    python: ProjectPython | None = request.getfixturevalue("oldest") if request.param == "oldest" else None
    # its settings are written for today's
    settings: dict[str, Any] = {"EXTENSIONS": {}} if python else {}
    return lambda *args, **spec: run(*args, cwd=SHOP, python=python, settings=settings, **spec)


def try_all(run_project: Run, *urls: str, proxied: Any = (), **environ: str) -> Crawl:
    params = {"urls": json.dumps(urls), "proxied": json.dumps(proxied)}
    return run_project("tricks", "http://nothing.invalid/", params=params, environ={**ENVIRON, **environ})


def answers(crawl: Crawl) -> dict[str, str]:
    """What was answered to whom, though nothing should have been."""
    return {str(item["asked"]): item["url"] for item in crawl.items if "error" not in item}


def asks_no_dns(url: str) -> bool:
    try:
        ip_address((urlsplit(url).hostname or "").partition("%")[0])
    except ValueError:
        return url.startswith("http://localhost") or not any(char.isalpha() for char in urlsplit(url).hostname or "")
    return True


def test_no_trick_reaches_anything(run_project: Run, canary: Canary) -> None:
    inside = [url for url in canary.tricks(REACH_INSIDE) if asks_no_dns(url)]
    urls = [*canary.tricks(REACH_LOOPBACK), *inside, *(url for url in NO_URLS if not url.startswith("data:"))]
    crawl = try_all(run_project, *urls)
    assert len(crawl.items) == len(urls) > 100
    assert answers(crawl) == {}
    assert canary.callers() == []
    assert sum("is not a public address" in item["error"] for item in crawl.items) > 60


def test_no_redirect_reaches_anything(run_project: Run, canary: Canary, open_site: Site) -> None:
    targets = [url for url in canary.tricks(REACH_LOOPBACK) if url.isprintable()]
    for number, target in enumerate(targets):
        for status in (301, 302, 303, 307, 308):
            # headers are bytes; those of a URL beyond ASCII are UTF-8
            headers = {"Location": target.encode().decode("latin-1")}
            open_site.pages[f"/{status}/{number}"] = Reply(status=status, headers=headers)
        refresh = f'<meta http-equiv="refresh" content="0; url={target}">'
        open_site.pages[f"/meta/{number}"] = html(refresh)
        open_site.pages[f"/header/{number}"] = Reply(html(""), headers={"Refresh": f"0; url={targets[0]}"})
    crawl = try_all(run_project, *(open_site.url + path for path in open_site.pages))
    led_away = {asked: url for asked, url in answers(crawl).items() if not url.startswith(open_site.url)}
    assert led_away == {}
    assert canary.callers() == []
    assert sum("is not a public address" in item.get("error", "") for item in crawl.items) > 5 * 30


def test_no_proxy_reaches_anything(run_project: Run, canary: Canary, open_site: Site) -> None:
    proxies = [
        (f"{scheme}://{ELSEWHERE}/", url) for url in canary.tricks(REACH_LOOPBACK) for scheme in ("http", "https")
    ]
    targets = [(url, open_site.url) for url in canary.tricks(REACH_LOOPBACK, REACH_INSIDE)]
    crawl = try_all(run_project, proxied=[*proxies, *targets])
    # of some tricks nothing is left once Scrapy has read the URL
    assert {urlsplit(url).hostname for url in answers(crawl).values()} <= {"example.com"}
    assert {urlsplit(path).hostname for path in open_site.paths()} <= {"example.com"}
    assert canary.callers() == []


def test_a_proxy_that_may_be_reached_is_used_for_what_may_be_fetched(run_project: Run, open_site: Site) -> None:
    target = f"http://{ELSEWHERE}/page"
    open_site.pages[target] = html("through the proxy")
    crawl = try_all(run_project, proxied=[(target, open_site.url)], http_proxy="http://127.0.0.1:9/")
    assert [item.get("url") for item in crawl.items] == [target]
    assert open_site.paths() == [target]


def test_a_proxy_needs_no_scheme(run: Run, open_site: Site) -> None:
    target = f"http://{ELSEWHERE}/page"
    open_site.pages[target] = html("through the proxy")
    crawl = try_all(partial(run, cwd=SHOP), proxied=[(target, open_site.netloc)])
    assert [item.get("url") for item in crawl.items] == [target]


def test_robots_txt_cannot_lead_inside(run: Run, canary: Canary, open_site: Site) -> None:
    inside = f"http://127.0.0.1:{canary.port}/robots.txt"
    open_site.pages.update({"/robots.txt": Reply(status=302, headers={"Location": inside}), "/": html("open")})
    crawl = run("seo", open_site.url, depth=0, environ=ENVIRON)
    assert canary.callers() == []
    assert crawl.progress["completed_pages"] == 1


def test_a_sitemap_cannot_lead_inside(run: Run, canary: Canary, open_site: Site) -> None:
    urls = "".join(f"<url><loc>http://{host}:{canary.port}/</loc></url>" for host in ("127.0.0.1", "localhost", "0"))
    index = f"<sitemap><loc>http://127.0.0.1:{canary.port}/sitemap.xml</loc></sitemap>"
    for name, body in {
        "/urls.xml": f"<urlset>{urls}</urlset>",
        "/index.xml": f"<sitemapindex>{index}</sitemapindex>",
    }.items():
        open_site.pages[name] = Reply(body, content_type="application/xml")
    starts = [f"{open_site.url}/urls.xml", f"{open_site.url}/index.xml"]
    run("sitemap", *starts, environ=ENVIRON, params={"check": True, "obey_robots": False})
    assert {"/urls.xml", "/index.xml"} <= set(open_site.paths())
    assert canary.callers() == []


def test_the_address_that_was_checked_is_the_one_connected_to(run_project: Run) -> None:
    with Site(host=OPEN) as site, Site(host="127.0.0.1", port=site.port) as inside:
        site.pages.update({f"/{number}": html("here") for number in range(6)})
        params = {"answers": json.dumps([OPEN, "127.0.0.1"]), "port": site.port}
        crawl = run_project("rebinding", "http://nothing.invalid/", params=params, environ=ENVIRON)
        assert sorted("error" in item for item in crawl.items if "asked" in item) == [False] * 3 + [True] * 3
        assert len(site.paths()) == 3
        assert inside.access_log == []
