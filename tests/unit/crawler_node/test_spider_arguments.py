from __future__ import annotations

from typing import Any

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler

from crawler.node.spider_arguments import complete, for_constructor

ALL = {"category": "books", "depth": 1, "start_urls": ["http://a/"]}


class Open(Spider):
    name = "open"


class Strict(Spider):
    name = "strict"

    def __init__(self, category: str) -> None:
        super().__init__()


class PassesOn(Strict):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class StrictFactory(Spider):
    name = "strict_factory"

    @classmethod
    def from_crawler(cls, crawler: Crawler, category: str) -> StrictFactory:
        return super().from_crawler(crawler, category=category)


class Forgets(Spider):
    name = "forgets"

    def __init__(self, category: str, **kwargs: Any) -> None:
        super().__init__()


class Computes(Strict):
    def __init__(self, category: str) -> None:
        super().__init__(category)
        self.start_urls = [f"http://b/{category}"]


class Property(Spider):
    name = "property"

    @property
    def depth(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("spider", "given"),
    [
        (Open, {"category", "depth", "start_urls"}),
        (Strict, {"category"}),
        (PassesOn, {"category"}),
        (StrictFactory, {"category"}),
        (Forgets, {"category", "depth", "start_urls"}),
    ],
)
def test_a_constructor_is_given_what_it_takes(spider: type[Spider], given: set[str]) -> None:
    arguments = for_constructor(spider, ALL)
    assert set(arguments.given) == given
    assert {**arguments.given, **arguments.left} == ALL


@pytest.mark.parametrize("spider", [Open, Strict, PassesOn, StrictFactory, Forgets])
def test_whatever_it_takes_the_spider_has_the_start_urls(spider: type[Spider]) -> None:
    arguments = for_constructor(spider, ALL)
    built = spider.from_crawler(Crawler(spider), **arguments.given)
    complete(built, arguments)
    assert built.start_urls == ["http://a/"]


def test_start_urls_that_the_constructor_has_made_stay() -> None:
    arguments = for_constructor(Computes, ALL)
    built = Computes.from_crawler(Crawler(Computes), **arguments.given)
    complete(built, arguments)
    assert built.start_urls == ["http://b/books"]
    assert vars(built)["depth"] == 1


def test_a_property_stays_what_it_is() -> None:
    arguments = for_constructor(Property, {"start_urls": []})
    built = Property.from_crawler(Crawler(Property))
    complete(built, arguments._replace(left={"depth": 1}))
    assert built.depth == 7
