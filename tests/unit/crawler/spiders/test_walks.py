"""What bounds a walk over a site that has no end."""

from __future__ import annotations

from typing import Any

import pytest
from scrapy.crawler import Crawler

from crawler.setting_names import MAX_ITEMS, MAX_PAGES
from crawler.spiders.article import ArticleSpider
from crawler.spiders.extract import ExtractSpider
from crawler.spiders.pages import PagesSpider
from crawler.spiders.seo import SeoSpider
from crawler.spiders.site_spider import MOST_PAGES, SiteSpider
from crawler.spiders.sitemap import SitemapSpider

FIELDS = {"fields": {"title": "h1"}}


def limit(spider: type[SiteSpider], given: dict[str, int] | None = None, **arguments: Any) -> int:
    crawler = Crawler(spider, given)
    spider.from_crawler(crawler, start_urls="https://example.com", **arguments)
    return crawler.settings.getint(MAX_PAGES)


@pytest.mark.parametrize("spider", [SeoSpider, ArticleSpider, PagesSpider])
def test_a_walk_without_any_limit_gets_one(spider: type[SiteSpider]) -> None:
    assert limit(spider) == MOST_PAGES
    assert limit(spider, {MAX_PAGES: 50_000}) == 50_000
    assert limit(spider, {MAX_ITEMS: 5}) == 0
    assert limit(spider, depth=3) == 0


def test_what_follows_no_links_or_only_those_that_a_rule_names_has_none() -> None:
    assert limit(SitemapSpider) == 0
    assert limit(PagesSpider, sitemap="only") == 0
    assert limit(ExtractSpider, **FIELDS) == 0
    assert limit(ExtractSpider, **FIELDS, links="a.more") == 0
    assert limit(ExtractSpider, **FIELDS, include=["/shop/"]) == MOST_PAGES
