from collections.abc import Iterator
from typing import Any, ClassVar

import scrapy
from scrapy.http import Response


class Images(scrapy.Spider):
    """The covers of the books on the first page of a shop.

    The pipeline downloads what `file_urls` names. The platform keeps the files: `discoverybot files ID` lists them.
    """

    name = "images"
    start_urls = ("https://books.toscrape.com",)
    # Scrapy's ImagesPipeline also makes thumbnails; it needs pillow in requirements.txt
    custom_settings: ClassVar[dict[Any, Any]] = {"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}}

    def parse(self, response: Response) -> Iterator[Any]:
        for book in response.css("article.product_pod"):
            yield {
                "title": book.css("h3 a::attr(title)").get(),
                "file_urls": [response.urljoin(book.css("img::attr(src)").get(""))],
            }
