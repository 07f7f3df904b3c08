"""Where a browser is told to take cookies to."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy.settings import Settings

from crawler.render.playwright_handler import context_cookies
from crawler.setting_names import FETCH_OPTIONS, FETCH_START_URLS
from gateway.contract.crawl import FetchOptions


@pytest.mark.parametrize(
    ("name", "start_url", "place"),
    [
        ("key", "http://jobs.example/a", {"domain": ".jobs.example", "path": "/", "secure": False}),
        ("key", "https://jobs.example/a", {"domain": ".jobs.example", "path": "/", "secure": True}),
        ("__Secure-key", "http://jobs.example/a", {"domain": ".jobs.example", "path": "/", "secure": True}),
        ("__Host-key", "http://jobs.example/a", {"url": "https://jobs.example/"}),
        ("key", "http://127.0.0.1:81/a", {"url": "http://127.0.0.1/"}),
        ("key", "https://[::1]:81/a", {"url": "https://[::1]/"}),
    ],
)
def test_a_cookie_goes_where_it_may(name: str, start_url: str, place: dict[str, Any]) -> None:
    settings = Settings()
    settings.set(FETCH_OPTIONS, FetchOptions(cookies={name: "value"}))
    settings.set(FETCH_START_URLS, [start_url])
    assert context_cookies(settings) == [{"name": name, "value": "value", **place}]
