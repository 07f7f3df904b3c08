"""A record that could not be crawled is refused, and the refusal names the field."""

from __future__ import annotations

from typing import Any

import mongomock
import pytest
from site_records import make_site, make_target

from crawler.spiders.jobs import JobsParams
from gateway.clock import utc_now
from gateway.contract.crawl import FetchOptions, PaginationType
from gateway.contract.public_address import parse_networks
from gateway.contract.records import SpiderInfo
from gateway.errors import ForbiddenAddressError, InvalidRequestError
from gateway.projects.catalog import SpiderCatalog
from gateway.projects.eggs import SpiderStore
from gateway.projects.versions import VersionStore
from gateway.sites.crawl import SiteCheck

NO_PAGE = "https://jobs.example.com/?q={keywords}"
SPIDERS = [
    SpiderInfo(project="default", name="jobs", params_schema=JobsParams.model_json_schema()),
    SpiderInfo(
        project="default",
        name="plain",
        params_schema={"type": "object", "properties": {"colour": {}}, "additionalProperties": False},
    ),
    SpiderInfo(project="shop", version="1", name="offers", allowed_domains=["shop.example.com"]),
]


def check_with(*spiders: SpiderInfo, allowed: str = "") -> SiteCheck:
    database: Any = mongomock.MongoClient(tz_aware=True)["sites"]
    store = SpiderStore(database)
    store.publish("n1", spiders)
    return SiteCheck(SpiderCatalog(store, VersionStore(database)), parse_networks([allowed]))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {
            "pagination_type": PaginationType.PAGE_PARAM,
            "payload": {"first_page": 0, "page_step": 10, "x": {"y": [1]}},
        },
        {"pagination_type": PaginationType.INFINITE_SCROLL, "payload": {"scroll": 5}},
        {"selectors": {"result": "li.job", "title": "h2 > a::text", "url": "a::attr(href)", "load_more": "button"}},
        {"payload": {"keywords": "go", "location": ""}},
        {"spider": "plain", "search_url": "https://a.example/", "payload": {"colour": "red"}},
        {"project": "SHOP", "spider": "offers", "search_url": "https://shop.example.com/?q={keywords}"},
        {"fetch": FetchOptions(proxy="http://proxy.example.com:8080", headers={"X-A": "b"})},
    ],
)
def test_what_can_be_crawled_is_taken(fields: dict[str, Any]) -> None:
    check_with(*SPIDERS).check(make_site(**fields))


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("search_url", {"search_url": "https://a.example/{term}"}),
        ("search_url", {"search_url": "https://a.example/{keywords"}),
        ("search_url", {"search_url": "https://{location}.example/"}),
        ("search_url", {"search_url": "ftp://a.example/"}),
        ("search_url", {"search_url": "https://a b.example/"}),
        ("search_url", {"search_url": NO_PAGE, "pagination_type": PaginationType.PAGE_PARAM}),
        ("search_url", {"project": "shop", "spider": "offers"}),
        ("max_pause_seconds", {"min_pause_seconds": 5, "max_pause_seconds": 4}),
        ("selectors.titel", {"selectors": {"titel": "h2"}}),
        ("selectors.title", {"selectors": {"title": "h2["}}),
        ("selectors", {"spider": "plain", "selectors": {"title": "h2"}, "search_url": "https://a.example/"}),
        ("payload.keywords", {"payload": {"keywords": 7}}),
        ("payload.keywords", {"payload": {"keywords": "go", "location": ""}, "search_url": "https://a.example/"}),
        ("payload.location", {"search_url": "https://a.example/{location}", "payload": {"location": ""}}),
        ("payload.first_page", {"payload": {"first_page": "1"}}),
        ("payload.search_url", {"payload": {"search_url": "http://127.0.0.1/"}}),
        ("payload.max_result_pages", {"payload": {"max_result_pages": 0}}),
        ("payload.size", {"spider": "plain", "search_url": "https://a.example/", "payload": {"size": 1}}),
        ("payload.n", {"project": "shop", "spider": "offers", "search_url": "https://shop.example.com/"}
         | {"payload": {"n": 1}}),
        ("requires_playwright", {"spider": "plain", "search_url": "https://a.example/", "requires_playwright": True}),
        ("spider", {"spider": "job"}),
        ("project", {"project": "shoe"}),
        ("fetch.rate_limit", {"fetch": FetchOptions(rate_limit="1/s")}),
        ("fetch.proxy", {"fetch": FetchOptions(proxy="http://p.example:80"), "requires_playwright": True}),
    ],
)  # fmt: skip
def test_what_cannot_is_refused_by_its_field(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        check_with(*SPIDERS).check(make_site(**fields))
    assert (refused.value.field, refused.value.detail["field"]) == (field, field)
    assert refused.value.message.startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("search_url", {"search_url": "http://127.0.0.1:8000/?q={keywords}"}),
        ("fetch.proxy", {"fetch": FetchOptions(proxy="http://user:secret@127.0.0.1:8080")}),
    ],
)
def test_no_site_leads_where_crawls_may_not_go_unless_it_is_allowed(field: str, fields: dict[str, Any]) -> None:
    site = make_site(**fields)
    with pytest.raises(ForbiddenAddressError) as refused:
        check_with(*SPIDERS).check(site)
    assert refused.value.field == field
    check_with(*SPIDERS, allowed="127.0.0.0/8").check(site)


def test_before_any_node_has_published_its_spiders_a_site_is_taken_on_trust() -> None:
    check_with().check(make_site(spider="later"))


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("location", {"location": "Paris"}),
        ("frequency", {"frequency": "0 0 30 2 *"}),
        ("frequency", {"frequency": "* * * * * *"}),
        ("frequency", {"frequency": "0"}),
        ("frequency", {"frequency": "sometimes"}),
        ("timezone", {"frequency": "@daily", "timezone": "Mars/Base"}),
    ],
)
def test_a_target_must_suit_its_site_and_have_a_frequency_that_comes(field: str, fields: dict[str, Any]) -> None:
    site = make_site(search_url=NO_PAGE)
    target = make_target(**({"location": ""} | fields))
    with pytest.raises(InvalidRequestError) as refused:
        check_with().check_target(site, target, utc_now())
    assert refused.value.field == field
