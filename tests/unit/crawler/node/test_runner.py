from __future__ import annotations

from typing import Any, ClassVar

import pytest
from scrapy import Spider
from scrapy.crawler import Crawler
from scrapy.spiders import CrawlSpider, SitemapSpider

from crawler.node.arguments import complete, for_constructor, named_arguments, replaced
from crawler.node.runner import _arguments
from crawler.orders import AttemptOrder
from gateway.contract.param_formats import RESERVED_PARAMS

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


class Declares(Spider):
    """As with `Args` of scrapy-spider-metadata, and a model that refuses what it does not know."""

    name = "declares"

    @classmethod
    def get_param_schema(cls) -> dict[str, Any]:
        return {"properties": {"pages": {"type": "integer"}, "depth": {"type": "integer"}}}

    def __init__(self, **arguments: Any) -> None:
        assert arguments.keys() <= {"pages", "depth"}
        self.args = arguments
        super().__init__(**arguments)


@pytest.mark.parametrize("start_urls", [["http://a/"], []])
def test_declared_arguments_keep_their_types_and_their_model_is_given_no_others(start_urls: list[str]) -> None:
    spec = AttemptOrder("0" * 32, 1, "shop", "offers", params={"pages": 5}, depth=1, start_urls=start_urls)
    arguments = _arguments(spec, Declares)
    built = Declares.from_crawler(Crawler(Declares), **arguments.given)
    complete(built, arguments)
    assert built.args == {"pages": 5, "depth": 1}
    assert built.start_urls == start_urls


class Listed(Spider):
    name = "listed"
    start_urls: ClassVar = ["http://own/"]


@pytest.mark.parametrize(("asked", "expected"), [(["http://a/"], ["http://a/"]), ([], ["http://own/"])])
def test_start_urls_of_the_class_stand_unless_the_crawl_names_others(asked: list[str], expected: list[str]) -> None:
    arguments = _arguments(
        AttemptOrder("0" * 32, 1, "shop", "offers", params={}, depth=None, start_urls=asked), Listed
    )
    built = Listed.from_crawler(Crawler(Listed), **arguments.given)
    complete(built, arguments)
    assert built.start_urls == expected


def test_a_property_stays_what_it_is() -> None:
    arguments = for_constructor(Property, {"start_urls": []})
    built = Property.from_crawler(Crawler(Property))
    complete(built, arguments._replace(left={"depth": 1}))
    assert built.depth == 7


class Theirs(Spider):
    name = "theirs"
    allowed_domains = ("example.com",)
    pages = 3

    def __init__(self, follow: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)

    def parse_item(self, response: Any) -> None: ...

    def follow(self) -> None: ...

    @property
    def limit(self) -> int:
        return 7


@pytest.mark.parametrize(
    "name",
    ["allowed_domains", "custom_settings", "start", "parse", "parse_item", "limit", "_follow", "__class__", "rules"],
)
def test_no_parameter_takes_the_place_of_what_a_spider_does_or_may(name: str) -> None:
    assert replaced(Theirs, [name, "category"]) == {name}


class Window(Spider):
    """Its base class takes what Scrapy has methods for."""

    name = "window"

    def __init__(self, start: str = "", log: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.window = (start, log)


class Derived(Window):
    def __init__(self, *args: Any, close: str = "", name: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.until = close


class Closed(Window):
    def __init__(self) -> None:
        super().__init__(start="then")


def test_a_constructor_may_take_any_name_for_itself() -> None:
    assert named_arguments(Derived) == {"start", "log", "close"}
    params = {"start": "1", "log": "2", "close": "3"}
    assert not replaced(Derived, params)
    built = Derived.from_crawler(Crawler(Derived), **for_constructor(Derived, params).given)
    assert (built.window, built.until) == (("1", "2"), "3")
    assert replaced(Derived, ["name", "settings", "rules", "_job"]) == {"name", "settings", "rules", "_job"}
    # nothing hands it on to the one that would take it
    assert replaced(Closed, params) == set(params)


def test_what_a_constructor_asks_for_and_plain_attributes_may_be_given() -> None:
    assert not replaced(Theirs, ["follow", "pages", "category"])
    assert not replaced(Strict, ["category"])


@pytest.mark.parametrize("base", [Spider, CrawlSpider, SitemapSpider])
def test_every_method_of_scrapys_spiders_is_refused_by_the_gateway_already(base: type[Spider]) -> None:
    own = {name for name in dir(base) if not name.startswith("_") and callable(getattr(base, name))}
    assert own <= RESERVED_PARAMS


def test_a_node_refuses_them_whatever_the_gateway_let_through() -> None:
    spec = AttemptOrder(
        "0" * 32,
        1,
        "shop",
        "offers",
        params={"allowed_domains": "evil.example"},
        depth=None,
        start_urls=["http://a/"],
    )
    with pytest.raises(ValueError, match="not to be used as parameters: allowed_domains"):
        _arguments(spec, Theirs)
