"""Spiders that fail before their first page: in `start()`, or because something of their project's cannot connect."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler


class FailsInStart(Spider):
    """Asks for its start URLs, and then raises what it is told to."""

    name = "fails_in_start"

    async def start(self) -> AsyncIterator[Any]:
        for one in self.start_requests():
            yield one

    def start_requests(self) -> Iterator[Request]:
        """As Scrapy before 2.13 wants it."""
        for url in self.start_urls:
            yield Request(url)
        if self.raises == "refused":
            _connect()
        if self.raises == "variable":
            _ = os.environ["SHOP_TOKEN"]
        raise ValueError("which category?")

    def parse(self, response: Any) -> Any:
        return {"url": response.url}


class Exits(Spider):
    """Ends its own process."""

    name = "exits"

    def parse(self, response: Any) -> Any:
        sys.exit(0)


class Wordy(Spider):
    """Raises errors that have the page in them."""

    name = "wordy"

    def parse(self, response: Any) -> Any:
        yield {"url": response.url}
        raise ValueError(f"not understood: {response.text}")


class WithoutCategory(Spider):
    name = "without_category"

    def __init__(self, category: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if category is None:
            raise ValueError("which category?")


class RefusedScheduler(Spider):
    name = "refused_scheduler"
    custom_settings = {"SCHEDULER": "walk.failing.StoreScheduler"}  # noqa: RUF012 - so declared by Scrapy


class RefusedQueue(Spider):
    name = "refused_queue"
    custom_settings = {"SCHEDULER": "walk.failing.StoreQueue"}  # noqa: RUF012 - so declared by Scrapy


class RefusedPipeline(Spider):
    name = "refused_pipeline"
    custom_settings = {"ITEM_PIPELINES": {"walk.failing.StorePipeline": 1}}  # noqa: RUF012 - so declared by Scrapy


class RefusedExtension(Spider):
    name = "refused_extension"
    custom_settings = {"EXTENSIONS": {"walk.failing.StoreExtension": 1}}  # noqa: RUF012 - so declared by Scrapy


class StoreError(Exception):
    """As `redis.ConnectionError` is no `OSError`, and is not raised from one either."""


def _connect() -> socket.socket:
    """To a store at a port where nobody listens."""
    try:
        return socket.create_connection(("127.0.0.1", 9), timeout=5)
    except OSError as error:
        raise StoreError(f"error {error.errno} connecting to localhost:9")  # noqa: B904 - as said above


class StoreScheduler(Scheduler):
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        _connect()
        return super().from_crawler(crawler)


class StoreQueue(Scheduler):
    def open(self, spider: Spider) -> Any:
        self.store = _connect()
        return super().open(spider)

    def close(self, reason: str) -> Any:
        self.store.close()
        return super().close(reason)


class StorePipeline:
    def open_spider(self, spider: Any = None) -> None:
        self.store = _connect()

    def close_spider(self, spider: Any = None) -> None:
        self.store.close()

    def process_item(self, item: Any, spider: Any = None) -> Any:
        return item


class StoreExtension:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        _connect()
        return cls()
