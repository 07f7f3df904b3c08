from __future__ import annotations

from site_records import make_site, make_target

from crawler.spiders.jobs import JobsParams, SiteSelectors
from gateway.contract.crawl import Expect, FetchOptions, PaginationType
from gateway.sites.crawl import JOBS_PAYLOAD, SiteSearch, site_crawl
from gateway.sites.site import SELECTORS

SAID_BY_THE_SITE = {"search_url", "pagination_type", "selectors", "keywords", "location", "extra"}


def test_the_gateway_knows_the_parameters_and_selectors_that_the_spider_takes() -> None:
    assert set(JobsParams.model_fields) - SAID_BY_THE_SITE == JOBS_PAYLOAD
    assert set(SiteSelectors.model_fields) == set(SELECTORS)


def test_a_board_is_searched_as_its_record_and_the_target_say() -> None:
    site = make_site(
        pagination_type=PaginationType.PAGE_PARAM,
        selectors={"title": "h2::text"},
        rate_limit="30/m",
        requires_playwright=True,
        payload={"first_page": 0, "page_step": 20, "team": "north", "keywords": "unused"},
        fetch=FetchOptions(user_agent="Mozilla/5.0"),
    )
    target = make_target(keywords="c++ dev", location="Paris", results_wanted=50, is_remote=True)
    spec = site_crawl(site, SiteSearch.of_target(target), timeout=60)
    assert spec.start_urls == ("https://jobs.example.com/search?q=c%2B%2B%20dev&l=Paris&p=0",)
    assert spec.params == {
        "search_url": "https://jobs.example.com/search?q=c%2B%2B%20dev&l=Paris&p={page}",
        "pagination_type": "page_param",
        "selectors": {"title": "h2::text"},
        "first_page": 0,
        "page_step": 20,
        "results_wanted": 50,
        "is_remote": True,
        "keywords": "c++ dev",
        "location": "Paris",
        "render": True,
        "extra": {"team": "north"},
    }
    JobsParams.model_validate(spec.params)
    assert (spec.site, spec.site_rate_limit, spec.timeout, spec.max_items) == ("board", "30/m", 60, None)
    assert spec.fetch == FetchOptions(user_agent="Mozilla/5.0", min_pause_seconds=2, max_pause_seconds=8)


def test_the_payload_speaks_where_the_search_says_nothing() -> None:
    site = make_site(payload={"results_wanted": 5, "is_remote": False})
    assert site_crawl(site, SiteSearch("go"), 60).params["results_wanted"] == 5
    assert site_crawl(site, SiteSearch("go", results_wanted=7), 60).params["results_wanted"] == 7


def test_no_run_is_answered_with_the_pages_of_the_one_before() -> None:
    assert site_crawl(make_site(), SiteSearch("go"), 60).ignore_cache


def test_endless_scrolling_needs_a_browser() -> None:
    spec = site_crawl(make_site(pagination_type=PaginationType.INFINITE_SCROLL), SiteSearch("go"), 60)
    JobsParams.model_validate(spec.params)
    assert spec.params["render"] is True


def test_another_spider_of_ours_is_given_the_payload_alone() -> None:
    site = make_site(spider="seo", payload={"keywords": "go", "subdomains": True}, requires_playwright=True)
    spec = site_crawl(site, SiteSearch("go", results_wanted=10), 60)
    assert spec.params == {"subdomains": True, "render": True}
    assert spec.max_items == 10


def test_an_egg_is_told_in_strings_what_is_searched_for() -> None:
    site = make_site(project="shop", spider="offers", payload={"team": "north"}, requires_playwright=True)
    assert site_crawl(site, SiteSearch("go", "Paris"), 60).params == {
        "team": "north",
        "keywords": "go",
        "location": "Paris",
        "search_url": "https://jobs.example.com/search?q=go&l=Paris&p={page}",
    }


def test_no_run_is_expected_to_find_more_than_it_is_asked_for() -> None:
    expect = Expect(min_items=20, fields={"company": 0.8})
    site = make_site(expect=expect)
    assert site_crawl(site, SiteSearch("go"), 60).expect == expect
    assert site_crawl(site, SiteSearch("go", results_wanted=50), 60).expect == expect
    few = site_crawl(site, SiteSearch("go", results_wanted=5), 60).expect
    assert few == expect.model_copy(update={"min_items": 5})
    assert site_crawl(make_site(), SiteSearch("go", results_wanted=5), 60).expect is None
