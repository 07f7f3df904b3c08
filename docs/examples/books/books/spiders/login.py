import os
from collections.abc import Iterator
from typing import Any

import scrapy
from scrapy.exceptions import CloseSpider
from scrapy.http import Response, TextResponse


class Login(scrapy.Spider):
    """Signs in by a form, and reads what only members see. The password is a secret of the project."""

    name = "login"
    start_urls = ("https://quotes.toscrape.com/login",)

    def parse(self, response: TextResponse) -> Iterator[Any]:
        form = {"username": "reader", "password": os.environ["BOOKS_PASSWORD"]}
        # takes the hidden fields of the form along, such as its CSRF token
        yield scrapy.FormRequest.from_response(response, formdata=form, callback=self.signed_in)

    def signed_in(self, response: Response) -> Iterator[Any]:
        if not response.css("a[href='/logout']"):
            # the crawl is then `partial`, and says why
            raise CloseSpider("login_refused")
        for quote in response.css(".quote"):
            yield {"text": quote.css(".text::text").get(), "author": quote.css(".author::text").get()}
