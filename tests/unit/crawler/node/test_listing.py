"""What is found out about a spider without running it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel, Field
from scrapy import Request, Spider
from scrapy.spiders import CrawlSpider, SitemapSpider

from crawler.node.listing import _declared_params, _needs_urls


class Plain(Spider):
    name = "plain"


class Listed(Spider):
    name = "listed"
    start_urls: ClassVar = ["https://example.com/"]


class Emptied(Listed):
    start_urls: ClassVar = []


class Computed(Spider):
    @property
    def start_urls(self) -> list[str]:
        return ["https://example.com/"]


class Starts(Spider):
    async def start(self) -> AsyncIterator[Any]:
        yield Request("https://example.com/")


class StartsAsBefore(Spider):
    def start_requests(self) -> Iterator[Any]:
        yield Request("https://example.com/")


class WalksThrough(Spider):
    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:
            yield Request(url, dont_filter=True)


class WalksThroughItsOwn(WalksThrough, Listed):
    pass


class Makes(Spider):
    def __init__(self, category: str = "all", **more: Any) -> None:
        super().__init__(**more)
        self.start_urls = [f"https://example.com/{category}"]


class Splits(Spider):
    def __init__(self, start_urls: str = "", **more: Any) -> None:
        super().__init__(**more)
        self.start_urls = start_urls.split(",")


class Changes(Spider):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.start_urls = [f"{url}?all" for url in self.start_urls]


class SaysThatItNeedsThem(Starts):
    needs_urls = True


class SaysThatItDoesNot(WalksThrough):
    needs_urls = False


@pytest.mark.parametrize(
    ("spider", "needs"),
    [
        (Plain, True),
        (CrawlSpider, True),
        (SitemapSpider, False),
        (Listed, False),
        (Emptied, True),
        (Computed, False),
        (Starts, False),
        (StartsAsBefore, False),
        (WalksThrough, True),
        (WalksThroughItsOwn, False),
        (Makes, False),
        (Splits, True),
        (Changes, True),
        (SaysThatItNeedsThem, True),
        (SaysThatItDoesNot, False),
    ],
)
def test_a_crawl_needs_start_urls_unless_the_spider_has_them(spider: type[Spider], *, needs: bool) -> None:
    assert _needs_urls(spider) == needs


class Params(BaseModel):
    pages: int = Field(default=1, ge=1)
    category: str
    start_urls: list[str]


class Declares(Spider):
    """As with `Args` of scrapy-spider-metadata."""

    @classmethod
    def get_param_schema(cls) -> dict[str, Any]:
        return Params.model_json_schema()


class Fails(Spider):
    @classmethod
    def get_param_schema(cls) -> dict[str, Any]:
        raise AssertionError


class NoJson(Spider):
    @classmethod
    def get_param_schema(cls) -> dict[str, Any]:
        return {"properties": {"pages": {"default": object()}}}


def test_declared_parameters_are_told_but_for_those_that_the_platform_gives() -> None:
    schema = _declared_params(Declares)
    assert schema is not None
    assert set(schema["properties"]) == {"pages", "category"}
    assert schema["required"] == ["category"]


@pytest.mark.parametrize("spider", [Plain, Fails, NoJson])
def test_what_is_not_declared_or_not_in_json_is_free_form(spider: type[Spider]) -> None:
    assert _declared_params(spider) is None
