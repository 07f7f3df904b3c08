"""Where a spider may connect to is decided at the connection, so nothing gets around it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from sites.server import Reply, Site, links

from .conftest import Crawl, ProjectPython, Run

WALK = Path(__file__).parent / "walk"


@pytest.fixture(params=["newest", "oldest"])
def visit(request: pytest.FixtureRequest, run: Run) -> Run:
    """Crawls with a spider of ours and today's Scrapy, and with a project's and the oldest."""
    if request.param == "newest":
        return lambda *urls, **spec: run("seo", *urls, **spec)
    python: ProjectPython = request.getfixturevalue("oldest")
    settings = {"ITEM_PIPELINES": {}, "ROBOTSTXT_OBEY": True}
    return lambda *urls, **spec: run("plain", *urls, cwd=WALK, python=python, settings=settings, **spec)


def refused(crawl: Crawl) -> set[str]:
    return {error["url"] for error in crawl.report["errors"] if "is not a public address" in error["reason"]}


def test_loopback_is_refused_in_every_spelling_unless_it_is_allowed(visit: Run, site: Site) -> None:
    spellings = ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "0")
    urls = [f"http://{host}:{site.port}/" for host in spellings]
    crawl = visit(*urls, depth=0, environ={"CRAWL_ALLOW_NETWORKS": ""})
    assert refused(crawl) == set(urls)
    assert crawl.progress["errors_count"] == len(urls)
    assert crawl.progress["completed_pages"] == 0
    assert site.access_log == [], "not even robots.txt was asked for"


def test_a_mail_to_a_forbidden_address_is_not_sent(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        port = str(server.getsockname()[1])
        crawl = run("mails", cwd=WALK, params={"port": port}, environ={"CRAWL_ALLOW_NETWORKS": ""})
        with pytest.raises(BlockingIOError):
            server.accept()
    assert crawl.items == [{"problem": "127.0.0.1 is not a public address"}]


@pytest.mark.parametrize("scrapy", ["newest", "oldest"])
def test_a_cookie_makes_nobody_ask_for_a_list_of_suffixes(
    request: pytest.FixtureRequest, run: Run, site: Site, tmp_path: Path, scrapy: str
) -> None:
    python = request.getfixturevalue("oldest") if scrapy == "oldest" else None
    site.pages["/"] = Reply(headers={"Set-Cookie": "a=b"})
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0)
        proxy = f"http://127.0.0.1:{elsewhere.getsockname()[1]}"
        environ = {"HTTPS_PROXY": proxy, "TLDEXTRACT_CACHE": str(tmp_path), "CRAWL_ALLOW_NETWORKS": "127.0.0.0/8"}
        crawl = run("plain", f"{site.url}/", cwd=WALK, python=python, depth=0, environ=environ)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
    assert crawl.progress["completed_pages"] == 1


def test_a_redirect_to_a_forbidden_address_is_refused_at_its_hop(visit: Run) -> None:
    with Site(host="127.0.0.2") as inside, Site() as site:
        targets = (
            inside.url,
            f"http://localhost.localdomain.invalid:{inside.port}",
            "ftp://127.0.0.2/",
            "file:///etc/passwd",
        )
        starts = [f"{site.url}/redirect-to?{target}" for target in targets]
        crawl = visit(*starts, depth=0, environ={"CRAWL_ALLOW_NETWORKS": "127.0.0.1/32"})
        assert inside.access_log == []
    assert inside.url in refused(crawl)
    assert not any(item.get("type", "page") == "page" for item in crawl.items)


def test_a_name_that_does_not_resolve_is_said_to_be_that(visit: Run) -> None:
    crawl = visit("http://nosuchhost.invalid/", depth=0)
    reasons = {error["reason"] for error in crawl.report["errors"]}
    assert reasons == {"the host name could not be resolved"}
    assert "UnicodeError" not in crawl.log
    assert crawl.report["stats"]["retry/count"] > 0


def test_what_is_allowed_is_fetched_by_name_as_well(visit: Run) -> None:
    with Site({"/": links()}) as site:
        crawl = visit(f"http://localhost:{site.port}/", depth=0)
    assert crawl.progress["completed_pages"] == 1
    assert crawl.progress["errors_count"] == 0
