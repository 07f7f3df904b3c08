"""Spiders that walk over a whole site, each in another of Scrapy's ways."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import scrapy
from scrapy.exceptions import DropItem, IgnoreRequest
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.pipelines.files import FilesPipeline
from scrapy.spiders import CrawlSpider, Rule
from w3lib.http import basic_auth_header


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
            await asyncio.sleep(float(os.environ.get("EACH", "0.05")))
            yield {"url": response.url, "number": number}


class AnyOrder:
    """A pipeline in which items overtake each other, and which no item leaves as it came."""

    def __init__(self) -> None:
        self._chance = random.Random(os.environ.get("SEED"))

    async def process_item(self, item: Any) -> Any:
        slowest = float(os.environ.get("SLOWEST", "0.1"))
        # some are never through before the crawl is interrupted
        await asyncio.sleep(10 * slowest if item["number"] % 10 == 8 else self._chance.uniform(0, slowest))
        if item["number"] % 10 == 9:
            raise DropItem("one of ten")
        return {**item, "at": time.time()}


class Shuffled(scrapy.Spider):
    """Many items of a page, whose pipeline is done with them in another order each time."""

    name = "shuffled"
    custom_settings: ClassVar[dict[str, Any]] = {"ITEM_PIPELINES": {AnyOrder: 100}}

    async def start(self) -> AsyncIterator[Any]:
        for number in range(20):
            yield {"number": number, "url": "start"}
        async for request in super().start():
            yield request

    def parse(self, response: Response) -> Iterator[Any]:
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)
        for number in range(40):
            yield {"number": number, "url": response.url}
        # on purpose
        yield {"number": 0, "url": response.url}


class Twins(scrapy.Spider):
    """A long callback that asks for one page for several purposes, and for others with what differs each time."""

    name = "twins"
    custom_settings: ClassVar[dict[str, Any]] = {"CONCURRENT_REQUESTS": 1, "ITEM_PIPELINES": {}}

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        for number in range(6):
            kwargs = {"number": number}
            # the last one first
            yield response.follow("/twin", self.leaf, dont_filter=True, cb_kwargs=kwargs, priority=number)
            meta = {"at": time.time()}
            yield response.follow(f"/leaf/{number}", self.leaf, dont_filter=True, meta=meta, priority=number)
        await asyncio.sleep(float(os.environ.get("SLOWEST", "0")))

    def leaf(self, response: Response, number: int = -1) -> Iterator[Any]:
        yield {"url": response.url, "number": number}


class WithFiles(scrapy.Spider):
    """Items with a file each."""

    name = "files"
    custom_settings: ClassVar[dict[str, Any]] = {
        "ITEM_PIPELINES": {FilesPipeline: 1},
        "FILES_STORE": os.environ.get("STORE"),
    }

    def parse(self, response: Response) -> Iterator[Any]:
        for number in range(5):
            yield {"number": number, "file_urls": [response.urljoin(f"/file/{number}")]}


class Unspeakable:
    def __str__(self) -> str:
        raise LookupError("it has no name")


def unwritable() -> Iterator[Any]:
    """Items that JSON cannot say."""
    deep: Any = []
    for _ in range(2000):
        deep = [deep]
    circular: dict[str, Any] = {}
    circular["self"] = circular
    for value in (deep, circular, 10**5000, Unspeakable(), {(1, 2): 3}):
        yield {"value": value}


class Odd(scrapy.Spider):
    """Some of its items cannot be written, and it logs them all."""

    name = "odd"
    custom_settings: ClassVar[dict[str, Any]] = {"LOG_LEVEL": "DEBUG", "CONCURRENT_ITEMS": 2, "RETRY_ENABLED": False}

    async def start(self) -> AsyncIterator[Any]:
        yield {"value": Unspeakable()}
        for url in self.start_urls:
            yield scrapy.Request(url)
        yield scrapy.Request("http://127.0.0.1:9/", errback=self.fail)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": "before"}
        yield from unwritable()
        yield {"url": "after"}

    def fail(self, failure: Any) -> Iterator[Any]:
        yield {"value": Unspeakable()}


class Polls(scrapy.Spider):
    """Gives the very request that was answered once more, until it has had three answers."""

    name = "polls"
    polls = 0

    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:
            yield scrapy.Request(url, dont_filter=True)

    def parse(self, response: Response) -> Iterator[Any]:
        self.polls += 1
        yield {"polls": self.polls}
        yield response.request if self.polls < 3 else response.follow("/last", self.last)

    def last(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


class SecondRound(scrapy.Spider):
    """Asks for each page once more when it is idle, with what the first answer's request had in `meta`."""

    name = "second_round"

    @classmethod
    def from_crawler(cls, crawler: scrapy.crawler.Crawler, *args: Any, **kwargs: Any) -> SecondRound:
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.answered = []
        crawler.signals.connect(spider.ask_again, scrapy.signals.spider_idle)
        return spider

    def parse(self, response: Response) -> None:
        self.answered.append(response.request)

    def ask_again(self) -> None:
        answered, self.answered = self.answered, []
        for request in answered:
            self.crawler.engine.crawl(request.replace(callback=self.second, dont_filter=True))

    def second(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


class Jars(scrapy.Spider):
    """A session for each start URL: one cookie that its first request has, and one that the site sets."""

    name = "jars"
    custom_settings: ClassVar[dict[str, Any]] = {
        "CONCURRENT_REQUESTS": 99,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 99,
    }

    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:
            session = url.rpartition("/")[2]
            yield scrapy.Request(url, cookies={"own": session}, meta={"cookiejar": session})

    def parse(self, response: Response) -> Iterator[Any]:
        meta = {"cookiejar": response.meta["cookiejar"]}
        yield {"url": response.url}
        yield response.follow("/p/last", self.last, dont_filter=True, meta=meta, priority=-1)

    def last(self, response: Response) -> Iterator[Any]:
        yield {"sent": response.request.headers["Cookie"].decode()}


class Keyed(scrapy.Spider):
    """Shows a secret to each page."""

    name = "keyed"

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        key = os.environ["API_KEY"]
        for href in response.css("a::attr(href)").getall():
            headers = {"Authorization": basic_auth_header("user", key), "X-Key": f"Key {key}"}
            yield response.follow(href, headers=headers, cookies={"key": key}, meta={"key": key})


class Mails(scrapy.Spider):
    """Sends a mail by an address."""

    name = "mails"

    async def start(self) -> AsyncIterator[Any]:
        from scrapy.mail import MailSender  # noqa: PLC0415 - it needs the reactor

        try:
            MailSender("127.0.0.1", smtpport=int(self.port)).send(["to@example.com"], "subject", "body")
        except IgnoreRequest as error:
            yield {"problem": str(error)}


class Thing:
    """Something of the project's in `meta`."""


class Changing(scrapy.Spider):
    """Of which another version is deployed while it is paused."""

    name = "changing"

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        callback = getattr(self, "parse_page", self.parse)
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, callback, meta={"thing": Thing()} if "THING" in os.environ else {})

    def parse_page(self, response: Response) -> Iterator[Any]:
        yield from self.parse(response)


if "NEW_VERSION" in os.environ:
    del Changing.parse_page, Thing
