from collections.abc import Iterator
from typing import Any

import scrapy
from scrapy.http import Response


class Pagination(scrapy.Spider):
    """The books of a shop with their prices, page after page. `-a pages=3` ends after three pages of the list."""

    name = "pagination"
    start_urls = ("https://books.toscrape.com",)

    def __init__(self, pages: str = "100", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pages = int(pages)

    def parse(self, response: Response, page: int = 1) -> Iterator[Any]:
        for book in response.css("article.product_pod"):
            yield {
                "url": response.urljoin(book.css("h3 a::attr(href)").get("")),
                "title": book.css("h3 a::attr(title)").get(),
                "price": float(book.css(".price_color::text").re_first(r"[\d.]+") or 0),
                "in_stock": "In stock" in "".join(book.css(".availability::text").getall()),
            }
        if page < self.pages:
            # the last page has no such link, so the crawl ends there
            yield from response.follow_all(css="li.next a", cb_kwargs={"page": page + 1})
