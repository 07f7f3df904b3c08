"""Spiders that try to get where they should not, or to take more than they may."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.resolver import dnscache


class Trying(Spider):
    """Asks for everything it is told to, and tells what came of it."""

    def ask(self, url: str, **changes: Any) -> Any:
        meta = {"dont_obey_robotstxt": True, **changes.pop("meta", {})}
        label = changes.pop("label", url)
        try:
            return Request(
                url,
                self.parse,
                errback=self.failed,
                dont_filter=True,
                meta=meta,
                cb_kwargs={"label": label},
                **changes,
            )
        except ValueError as error:
            return {"asked": label, "error": str(error)}

    def start_requests(self) -> Iterator[Request]:
        """As Scrapy before 2.13 wants it: requests alone."""
        starting: Any = self.start()
        while True:
            try:
                starting.asend(None).send(None)
            except StopIteration as given:
                one = given.value
                is_request = isinstance(one, Request)
                yield one if is_request else Request("data:,", lambda _, item=one: [item], dont_filter=True)
            except StopAsyncIteration:
                return

    def parse(self, response: Response, label: str) -> Any:
        return {"asked": label, "url": response.url, "bytes": len(response.body)}

    def failed(self, failure: Any) -> Any:
        return {"asked": failure.request.cb_kwargs["label"], "error": f"{failure.type.__name__}: {failure.value}"}


class Tricks(Trying):
    name = "tricks"
    custom_settings = {"DNS_TIMEOUT": 3, "CONCURRENT_REQUESTS_PER_DOMAIN": 50}  # noqa: RUF012 - so declared by Scrapy

    async def start(self) -> AsyncIterator[Any]:
        for url in json.loads(self.urls):
            yield self.ask(url)
        for target, proxy in json.loads(getattr(self, "proxied", "[]")):
            yield self.ask(target, meta={"proxy": proxy}, label=[target, proxy])


class Rebinding(Trying):
    """Of its name, every second answer is the forbidden address."""

    name = "rebinding"
    custom_settings = {"CONCURRENT_REQUESTS": 1}  # noqa: RUF012 - so declared by Scrapy

    async def start(self) -> AsyncIterator[Any]:
        answers = json.loads(self.answers)
        asked: list[str] = []
        dnscache.limit = 0  # so that each connection asks anew

        def lie(name: str) -> str:
            asked.append(name)
            return str(answers[len(asked) % len(answers)])

        socket.gethostbyname = lie
        for number in range(6):
            yield self.ask(f"http://rebind.example:{self.port}/{number}", headers={"Connection": "close"})


class Greedy(Trying):
    """Wants pages larger, and waits longer, than it may."""

    name = "greedy"
    download_maxsize = 0
    download_timeout = 3600
    custom_settings = {"DOWNLOAD_MAXSIZE": 0, "DOWNLOAD_TIMEOUT": 3600, "REDIRECT_MAX_TIMES": 10**6}  # noqa: RUF012 - so declared by Scrapy

    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:
            yield self.ask(url)
            yield self.ask(url, meta={"download_maxsize": 10**12, "download_timeout": 3600}, label=f"{url} with meta")


class Large(Trying):
    """Has a limit of the size of its pages that its project, or its crawl, sets."""

    name = "large"

    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:
            yield self.ask(url)


class Generous(Spider):
    """Has more items than anybody wants, in every way that keeps a spider from its end."""

    name = "generous"
    custom_settings = {"DOWNLOAD_DELAY": 0}  # noqa: RUF012 - so declared by Scrapy

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.start_urls[0], self.give)
        for url in self.start_urls[1:]:
            yield Request(url, getattr(self, self.manner), dont_filter=True)
        await asyncio.sleep(3600)

    def give(self, response: Response) -> Iterator[Any]:
        number = 0
        while True:
            yield {"number": number}
            number += 1

    async def wait(self, response: Response) -> Any:
        self.logger.info("waiting")
        await asyncio.sleep(3600)
        return {"late": True}


class Endless(Spider):
    """Asks for pages without end, before it looks at any."""

    name = "endless"

    async def start(self) -> AsyncIterator[Any]:
        number = 0
        while True:
            yield Request(f"{self.start_urls[0]}/endless/{number}")
            number += 1


class Noisy(Spider):
    """Talks without end, by the means it is told."""

    name = "noisy"

    def parse(self, response: Response) -> Any:
        say: Callable[[str], Any] = {"log": logging.getLogger("noise").info, "print": print}[self.means]
        for number in range(int(self.lines)):
            say(f"{number} {'x' * 200}")
        yield {"said": self.lines}
