"""A project that uses scrapy-playwright itself runs unchanged, with the node's browser behind the node's proxy."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.crawler.conftest import Run
from integration.crawler_render.canary import ADDRESS, Canary
from sites.server import Site, html

JS_SHOP = Path(__file__).parent / "js_shop"


@pytest.fixture(scope="session")
def browser(chromium: str) -> str:
    """The whole Chromium."""
    return chromium


def test_it_runs_and_cannot_get_past_the_proxy(run: Run) -> None:
    made = html("<script>document.body.insertAdjacentHTML('beforeend', '<h1>made</h1>')</script>")
    with Canary() as canary, Site(dict.fromkeys(("/", "/two", "/?plain"), made)) as site:
        inside = f"{ADDRESS}:{canary.port}"
        crawl = run(
            "browsing",
            *(f"{site.url}/", f"{site.url}/two", f"http://{inside}/", f"https://{inside}/"),
            cwd=JS_SHOP,
            params={"inside": f"https://{inside}/"},
            environ={"CRAWL_ALLOW_NETWORKS": "127.0.0.1/32"},
        )
        assert canary.heard == []
    rendered = [item for item in crawl.items if item["type"] == "rendered"]
    assert [item["h1"] for item in rendered] == ["made"] * 2
    assert {item["agent"] for item in rendered} == {"JsShop/1"}
    assert {item["inside"] for item in rendered} == {"failed"}
    assert "en-GB" in {item["locale"] for item in rendered}
    assert [item["h1"] for item in crawl.items if item["type"] == "plain"] == [None]
    refused = [item["error"] for item in crawl.items if item["type"] == "refused"]
    assert refused == [f"EgressBlockedError: {ADDRESS} is not a public address"] * 2
    assert crawl.report["finish_reason"] == "finished"
    assert "PLAYWRIGHT_CDP_URL is not used" in crawl.log
