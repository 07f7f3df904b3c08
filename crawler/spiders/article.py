"""The `article` spider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import Field
from scrapy.http import HtmlResponse, Response

from crawler.article_text import Format, TooLargeError, article_of
from crawler.spiders.site_spider import FilteredParams, SiteSpider

PRELOAD = ("re2", "trafilatura", "trafilatura.readability_lxml")


class ArticleParams(FilteredParams):
    """Parameters of `article`."""

    format: Format = Field(
        default="text", description="Have the article as `markdown` or `html`, too, in a field of that name."
    )
    min_words: int = Field(default=100, ge=1, le=100_000, description="What has fewer words is no article.")


class ArticleSpider(SiteSpider):
    """Reads the articles of a site: text, title, author, date, without what stands around them.

    Items: one for each page that is an article.
    """

    name = "article"
    Params: ClassVar[type[ArticleParams]] = ArticleParams
    params: ArticleParams

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._wanted = self.params.url_filter()
        # whoever asks for the start URLs alone has chosen them as articles
        self._chosen = str(kwargs.get("depth")) == "0"

    def parse(self, response: Response) -> Iterator[Any]:
        if not self.is_readable(response):
            return
        # before the article: trafilatura may stumble over it, and the rest of the site would be missed
        yield from self.walk(response, self._wanted)
        yield from self._article(response)

    def _article(self, response: HtmlResponse) -> Iterator[dict[str, Any]]:
        params = self.params
        try:
            item = article_of(response, params.format, params.min_words, chosen=self._chosen)
        except TooLargeError:
            self.logger.warning("%s is too large to look for an article in it", response.url)
            self._count("too_large")
            return
        if item is None:
            self._count("no_article")
        else:
            yield item

    def _count(self, what: str) -> None:
        if self.crawler.stats:
            self.crawler.stats.inc_value(f"article/{what}")
