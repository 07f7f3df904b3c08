"""Spiders that walk over a whole site, each in another of Scrapy's ways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class SlowPipeline:
    async def process_item(self, item: Any) -> Any:
        await asyncio.sleep(0.005)
        return item


class Plain(scrapy.Spider):
    """Follows links, leaves the filtering to Scrapy, and asks for some pages whether or not it has seen them."""

    name = "plain"

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "title": response.css("a::text").get()}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, self.parse, errback=self.fail)
        if response.url.endswith("0"):
            yield response.follow(f"/flaky/0/{response.url.rpartition('/')[2]}", self.again, dont_filter=True)

    def again(self, response: Response) -> Iterator[Any]:
        yield {"again": response.url}

    def fail(self, failure: Any) -> Iterator[Any]:
        yield {"failed": failure.request.url}


class Waits(scrapy.Spider):
    """Callbacks that wait between what they give."""

    name = "waits"

    async def start(self) -> AsyncIterator[Any]:
        yield {"first": True}
        for url in self.start_urls:
            yield scrapy.Request(url)
        yield {"second": True}

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        for number, href in enumerate(response.css("a::attr(href)").getall()):
            if number % 5 == 4:
                await asyncio.sleep(0.01)
            yield response.follow(href)
            yield {"url": response.url, "link": href, "number": number}


class Rules(CrawlSpider):
    name = "rules"
    rules = (Rule(LinkExtractor(), callback="parse_page", follow=True),)

    def parse_page(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


class Nameless(scrapy.Spider):
    """Its requests cannot be written down."""

    name = "nameless"

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, lambda response: self.parse(response))  # noqa: PLW0108 - that is the point


class Slow(scrapy.Spider):
    """One callback that gives items for long."""

    name = "slow"

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        for number in range(200):
            await asyncio.sleep(0.05)
            yield {"url": response.url, "number": number}
