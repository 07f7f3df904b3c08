"""Spiders as people write them, none of which has heard of DiscoveryBot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response


class Page(Spider):
    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "depth": response.meta["depth"]}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)


class Argument(Page):
    """Crawls one category.

    As in Scrapy's documentation: the argument decides where it starts.
    """

    name = "argument"

    def __init__(self, category: str | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.start_urls = [f"{self.start_urls[0]}/{category}"]


class Strict(Page):
    name = "strict"

    def __init__(self, category: str) -> None:
        super().__init__()
        self.category = category

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"category": self.category, "depth": getattr(self, "depth", None), "note": getattr(self, "note", None)}
        yield from super().parse(response)


class Listed(Page):
    name = "listed"
    start_urls = ("http://127.0.0.1:9/of-the-class",)


class HardCoded(Page):
    name = "hard_coded"

    async def start(self) -> AsyncIterator[Any]:
        self.logger.info("starts where it wants")
        yield Request(f"{self.start_urls[0]}/hard-coded")


class Former(Page):
    """Written before Scrapy 2.13."""

    name = "former"

    def start_requests(self) -> Iterator[Any]:
        yield Request(f"{self.start_urls[0]}/former")


class Knows(Page):
    """Has start URLs of its own, which a crawl need not name."""

    name = "knows"
    at: str

    @property
    def start_urls(self) -> list[str]:
        return [f"{self.at}/a"]


class Elsewhere(Page):
    name = "elsewhere"
    allowed_domains = ("example.com",)
