"""The HTTP cache saves visits to the site, and is never in the way of a crawl."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from sites.server import Reply, Site, html, links
from stores import StoreProcess, valkey_server

from .conftest import Run

PAGES = {
    "/": links("/a", "/missing", "/status/500", "/file.bin", "/personal"),
    "/a": html("<p>" + "words " * 1000 + "</p>", "Déjà vu"),
    "/file.bin": Reply(b"\0" * 1000, content_type="application/octet-stream"),
    "/personal": Reply(html("yours"), headers={"Cache-Control": "private, no-store"}),
}
CACHED = {"/", "/a", "/missing"}


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("cache")) as server:
        yield server


def test_a_second_crawl_of_the_same_user_asks_the_cache(run: Run, valkey: StoreProcess) -> None:
    environ = {"HTTP_CACHE_REDIS_URL": valkey, "HTTP_CACHE_TTL": "60"}
    with Site(PAGES) as site:
        first = run("seo", site.url, depth=1, user_id="ann", environ=environ)
        assert all(site.hits(path) == 1 for path in CACHED)
        again = run("seo", site.url, depth=1, user_id="ann", environ=environ)
        assert all(site.hits(path) == 1 for path in CACHED), "asked the site again"
        assert site.hits("/file.bin") == 2, "kept half a file"
        assert site.hits("/personal") == 2, "kept what was not to be kept"
        assert site.hits("/status/500") == 6, "kept a server's distress"
        run("seo", site.url, depth=0, user_id="bob", environ=environ)
        assert site.hits("/") == 2, "took another user's page"
        run("seo", site.url, depth=0, user_id="ann", ignore_cache=True, environ=environ)
        assert site.hits("/") == 3, "asked the cache, which was to be ignored"
    told = ("type", "url", "title", "status", "word_count", "internal_links")
    assert _told(again.pages, told) == _told(first.pages, told)
    assert {page["title"] for page in again.pages if page["from_cache"]} >= {"Déjà vu"}
    assert again.progress["requested_pages"] == first.progress["requested_pages"]
    assert again.progress["completed_pages"] == first.progress["completed_pages"]
    with redis.Redis.from_url(valkey) as client:
        keys = list(client.scan_iter("*"))
        assert all(key.startswith((b"cache:ann:", b"cache:bob:")) for key in keys)
        assert all(0 < client.ttl(key) <= 60 for key in keys)


def _told(pages: list[dict[str, object]], names: tuple[str, ...]) -> list[list[object]]:
    return sorted([page[name] for name in names] for page in pages)


def test_a_cache_that_hangs_or_is_gone_costs_its_time_out_once_and_no_page(
    run: Run, valkey: StoreProcess, tmp_path: Path
) -> None:
    with Site() as site, valkey.frozen():
        began = time.monotonic()
        crawl = run("seo", f"{site.url}/tree/60", environ={"HTTP_CACHE_REDIS_URL": valkey})
        assert time.monotonic() - began < 20
    assert crawl.progress["completed_pages"] == 61
    assert crawl.progress["errors_count"] == 0
    with Site() as site:
        crawl = run("seo", f"{site.url}/tree/5", environ={"HTTP_CACHE_REDIS_URL": "redis://127.0.0.1:1/0"})
    assert crawl.progress["errors_count"] == 0
    assert crawl.report["finish_reason"] == "finished"
