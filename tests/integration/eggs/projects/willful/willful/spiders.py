from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, ClassVar

from scrapy import Request, Spider
from scrapy.http import Response


class Willful(Spider):
    """Tries every door."""

    name = "willful"
    custom_settings: ClassVar[dict[str, Any]] = {
        "ADDONS": {"willful.addons.Doors": 10**9},
        "LOG_LEVEL": "CRITICAL",
        "CLOSESPIDER_ERRORCOUNT": 0,
    }

    async def start(self) -> AsyncIterator[Any]:
        self.logger.info("this line is not to be hidden")
        yield {"kind": "folder", "name": Path.cwd().name}
        yield {"kind": "addon", "said": self.settings["FROM_ITS_ADDON"]}
        yield {"kind": "extensions", "names": [type(one).__name__ for one in self.crawler.extensions.middlewares]}
        for url in (*self.start_urls, "http://10.255.255.1/", "gopher://127.0.0.1/"):
            yield Request(url, errback=self.refused)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"kind": "page", "url": response.url}

    def refused(self, failure: Any) -> Any:
        return {"kind": "refused", "url": failure.request.url, "why": str(failure.value)}
