from collections.abc import Iterator
from typing import Any

import scrapy
from dateutil.parser import parse as parse_date
from scrapy.http import Response


class Quotes(scrapy.Spider):
    """The authors of quotes, and when they were born. With `-a tag=humor`, those of quotes with this tag."""

    name = "quotes"
    start_urls = ("https://quotes.toscrape.com",)

    def __init__(self, tag: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tag = tag

    def parse(self, response: Response) -> Iterator[Any]:
        for quote in response.css(".quote"):
            if not self.tag or self.tag in quote.css(".tag::text").getall():
                yield from response.follow_all(quote.css("a[href*=author]"), self.parse_author)
        yield from response.follow_all(css=".next a")

    def parse_author(self, response: Response) -> Iterator[Any]:
        born = response.css(".author-born-date::text").get("")
        yield {
            "name": response.css(".author-title::text").get("").strip(),
            "born": parse_date(born).date().isoformat() if born else None,
            "url": response.url,
        }
