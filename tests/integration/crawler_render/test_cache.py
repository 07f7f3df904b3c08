"""The HTTP cache holds what sites sent, whoever asked for it."""

from __future__ import annotations

from pathlib import Path

from integration.crawler.conftest import Run
from integration.crawler_render.test_rendering import script
from sites.server import Site
from stores import valkey_server


def test_rendered_and_plain_crawls_share_the_document_and_nothing_else(run: Run, tmp_path: Path) -> None:
    with valkey_server(tmp_path) as cache, Site({"/": script("document.title = 'made'", title="sent")}) as site:
        environ = {"HTTP_CACHE_REDIS_URL": cache, "HTTP_CACHE_TTL": "60"}
        titles = [
            run("seo", site.url, depth=0, user_id="ann", params={"render": render}, environ=environ).pages[0]["title"]
            for render in (True, False, True)
        ]
        assert site.hits("/") == 1
    assert titles == ["made", "sent", "made"]
