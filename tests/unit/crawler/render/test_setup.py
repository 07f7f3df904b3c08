"""A node without the extra `render`."""

from __future__ import annotations

import sys

import pytest
from scrapy.settings import BaseSettings

from crawler.render.setup import browser_handler, use_browser
from crawler.setting_names import RENDER_PAGES

CHOSEN = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"


@pytest.fixture(autouse=True)
def _without_playwright(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scrapy_playwright", None)


def test_a_crawl_that_renders_pages_ends_with_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"discoverybot\[render\]"):
        use_browser(BaseSettings({RENDER_PAGES: True}))
    use_browser(BaseSettings({RENDER_PAGES: False}))


def test_a_project_that_has_chosen_it_ends_so_too() -> None:
    with pytest.raises(ImportError, match="scrapy-playwright to the requirements"):
        browser_handler(BaseSettings(), CHOSEN)
    assert browser_handler(BaseSettings(), None) is None
    assert browser_handler(BaseSettings(), "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler") is None
