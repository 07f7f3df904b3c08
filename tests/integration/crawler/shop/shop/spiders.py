"""Spiders that know nothing of DiscoveryBot."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.downloadermiddlewares.retry import get_retry_request
from scrapy.http import Response


class Doors(Spider):
    """Tells what it was given and what it may do."""

    name = "doors"
    custom_settings = {  # noqa: RUF012 - so declared by Scrapy
        "REMOTE_CONTROL_ENABLED": True,
        "HTTPPROXY_ENABLED": True,
        "ITEM_PIPELINES": {"shop.spiders.Picky": 1},
    }

    async def start(self) -> AsyncIterator[Any]:
        arguments = {name: getattr(self, name, None) for name in ("start_urls", "depth", "text", "number", "flag")}
        yield {"type": "arguments", **arguments}
        yield {"type": "environment", **{name: os.environ.get(name) for name in ("SCRAPY_JOB", "SHUB_JOBKEY")}}
        yield {"type": "odd", "big": 2**70, "bytes": b"caf\xe9", "set": {1}, "half": "\ud800"}
        yield {"type": "bad"}
        yield Request("file:///etc/hostname", errback=self.refused)
        yield Request(self.start_urls[0] + "?proxied", errback=self.refused, meta={"proxy": "http://127.0.0.1:9"})
        for url in self.start_urls:
            yield Request(url)

    def parse(self, response: Response) -> Iterator[Any]:
        extensions = [type(one).__name__ for one in self.crawler.extensions.middlewares]
        yield {"type": "extensions", "names": extensions}
        yield {"type": "deeper", "depth": response.meta["depth"]}
        yield response.follow("/deeper", self.parse)

    def refused(self, failure: Any) -> Any:
        return {"type": "refused", "url": failure.request.url, "error": str(failure.value)}


class Picky:
    def process_item(self, item: Any) -> Any:
        if item["type"] == "bad":
            raise ValueError("a bad item")
        return item


class RaisesAtStart(Spider):
    name = "raises_at_start"

    async def start(self) -> AsyncIterator[Any]:
        raise RuntimeError("no start today")
        yield


class RaisesWhenBuilt(Spider):
    name = "raises_when_built"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        raise RuntimeError("cannot be built")


class RaisesInCallback(Spider):
    name = "raises_in_callback"

    def parse(self, response: Response) -> Any:
        raise RuntimeError(f"cannot read {response.url}")


class Trips(Spider):
    """Fails in as many ways as it is asked for pages: by the first word of their paths."""

    name = "trips"
    custom_settings = {"ITEM_PIPELINES": {"shop.spiders.Picky": 1}, "RETRY_TIMES": 1}  # noqa: RUF012 - Scrapy's way

    def parse(self, response: Response) -> Any:
        way, _, number = response.url.partition("://")[2].partition("/")[2].partition("-")
        return getattr(self, way)(response, number)

    def price(self, response: Response, number: str) -> Any:
        return float(f"€ {number}")

    def sku(self, response: Response, number: str) -> Any:
        return {}[number]

    def item(self, response: Response, number: str) -> Any:
        return [{"type": "bad", "number": number}]

    def said(self, response: Response, number: str) -> None:
        self.logger.error("No stock of %s on %s", number, response.url)

    def formatted(self, response: Response, number: str) -> None:
        self.logger.error(f"No colour of {number}")  # noqa: G004 - as many spiders do

    def again(self, response: Response, number: str) -> Any:
        return get_retry_request(response.request, spider=self, reason="an empty page", max_retry_times=0)

    def warned(self, response: Response, number: str) -> None:
        self.logger.warning("No more of %s", number)


class Catalogue(Spider):
    """An item for each start URL that has one, with a price in every `priced`-th."""

    name = "catalogue"
    priced = "1"

    def parse(self, response: Response) -> Iterator[Any]:
        number = int(response.url.rpartition("/")[2])
        yield {"number": number, "price": 9.5 if number % int(self.priced) == 0 else ""}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


class Silenced(Spider):
    """Puts something in the place of its output that is none."""

    name = "silenced"

    def parse(self, response: Response) -> Any:
        sys.stdout = None  # type: ignore[assignment]
        yield {"url": response.url}


class StopsItself(Spider):
    """Ends its process as its node would."""

    name = "stops_itself"

    def parse(self, response: Response) -> Iterator[Any]:
        from twisted.internet import reactor  # noqa: PLC0415 - installs a reactor if none was chosen before

        yield {"url": response.url}
        reactor.callLater(0, reactor.stop)
