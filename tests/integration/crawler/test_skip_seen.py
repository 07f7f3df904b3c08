"""`SKIP_SEEN`: pages that have given items lately are not fetched again, and nothing else is left out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from sites.server import Reply, Site, html, links
from stores import StoreProcess, valkey_server

from gateway.contract.seen_pages import SKIPPED_SEEN, read_period

from .conftest import Crawl, Run

PAGES = {
    "/": links("/a", "/b", "/moved"),
    "/a": html("one"),
    "/b": html("two"),
    "/moved": Reply(b"", status=301, headers={"Location": "/new"}),
    "/new": html("moved"),
}


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    with valkey_server(tmp_path_factory.mktemp("seen")) as server:
        yield server


@pytest.fixture
def crawl(run: Run, valkey: StoreProcess) -> Any:
    environ = {"HTTP_CACHE_REDIS_URL": valkey, "HTTP_CACHE_TTL": "0"}

    def again(site: Site, period: str | None = "24h", **spec: Any) -> Crawl:
        settings = {"SKIP_SEEN": period} if period else {}
        return run(
            "seo", site.url, **{"depth": 1, "user_id": "ann", "settings": settings, "environ": environ, **spec}
        )

    return again


def test_what_has_given_items_lately_is_not_fetched_again(crawl: Any, valkey: StoreProcess) -> None:
    with Site(PAGES) as site:
        first = crawl(site)
        assert (len(first.pages), first.report["stats"][SKIPPED_SEEN]) == (4, 0)
        again = crawl(site)
        assert (len(again.pages), again.report["stats"][SKIPPED_SEEN]) == (1, 3)
        assert [site.hits(path) for path in ("/", "/a", "/moved", "/new")] == [2, 1, 1, 1]
        assert again.report["finish_reason"] == "finished"
        # neither another user nor another parameter has seen them, and who does not ask skips nothing
        assert len(crawl(site, user_id="bob").pages) == 4
        assert len(crawl(site, params={"check_external": False}).pages) == 4
        assert SKIPPED_SEEN not in (plain := crawl(site, None)).report["stats"]
        assert len(plain.pages) == 4
        # the period of who asks counts
        time.sleep(1.1)
        assert len(crawl(site, "1s").pages) == 4
    with redis.Redis.from_url(valkey) as client:
        keys = list(client.scan_iter("*"))
        assert keys
        assert all(key.startswith((b"cache:ann:seen:", b"cache:bob:seen:")) for key in keys)
        assert all(0 < client.ttl(key) <= read_period("24h") for key in keys)


def test_a_crawl_that_did_not_end_well_is_not_remembered(crawl: Any) -> None:
    with Site(PAGES) as site:
        assert crawl(site, max_items=2).report["finish_reason"] == "closespider_itemcount"
        assert len(crawl(site).pages) == 4


def test_a_memory_that_is_gone_costs_no_page(run: Run, crawl: Any, valkey: StoreProcess) -> None:
    with Site(PAGES) as site:
        crawl(site)
        with valkey.frozen():
            away = crawl(site)
        assert len(away.pages) == 4
        assert away.progress["errors_count"] == 0
        without = run("seo", site.url, depth=1, settings={"SKIP_SEEN": "24h"})
    assert len(without.pages) == 4
    assert "SKIP_SEEN has no effect" in without.log


def test_a_period_that_is_none_ends_the_crawl_with_its_name(crawl: Any) -> None:
    with Site(PAGES) as site:
        broken = crawl(site, "often")
    assert broken.exit_code == 1
    assert "broke down: ValueError: SKIP_SEEN must be a period" in broken.log


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("24h", 86400), ("2w", 1_209_600)])
def test_a_period_is_seconds(text: str, seconds: int) -> None:
    assert read_period(text) == seconds
