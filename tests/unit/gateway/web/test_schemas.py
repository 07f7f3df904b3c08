from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.schedules.schedule import CatchUp, Overlap
from gateway.web.schemas.crawl import CrawlRequest
from gateway.web.schemas.types import MAX_PARAMS_BYTES, MAX_PARAMS_VALUES, JobsFilter

GOOD = {"user_id": "abc123", "spider": "seo", "start_urls": ["https://example.com"]}


def deep(levels: int) -> dict[str, Any]:
    return {"x": deep(levels - 1)} if levels else {}


def test_what_is_not_asked_for_has_a_default() -> None:
    request = CrawlRequest.model_validate(GOOD)
    assert (request.depth, request.priority, request.params, request.tags) == (None, 0, {}, [])


def test_only_the_spider_is_always_required() -> None:
    request = CrawlRequest.model_validate({"spider": "seo"})
    assert (request.user_id, request.start_urls, request.project) == (None, [], None)
    with pytest.raises(ValidationError, match="spider"):
        CrawlRequest.model_validate({name: value for name, value in GOOD.items() if name != "spider"})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user_id", "a b"),
        ("user_id", "a:b"),
        ("user_id", "a\n"),
        ("user_id", 7),
        ("spider", ""),
        ("spider", "\ud800"),
        ("start_urls", "https://example.com"),
        ("start_urls", ["https://example.com"] * 1001),
        ("start_urls", ["https://example.com/" + "x" * 2083]),
        ("start_urls", ["https://example.com/\x00"]),
        ("depth", "2"),
        ("depth", -1),
        ("depth", 2.0),
        ("depth", 10**40),
        ("depth", True),
        ("ignore_cache", 0),
        ("ignore_cache", "true"),
        ("priority", 101),
        ("tags", ["a"] * 21),
        ("tags", [""]),
        ("tags", ["a\x00"]),
        ("max_pages", 0),
        ("max_items", 0),
        ("max_items", "5"),
        ("expect", {"min_items": 0}),
        ("expect", {"fields": {"a.b": 1}}),
        ("expect", {"min_itmes": 1}),
        ("version", ""),
        ("version", 1.4),
        ("version", "1\n"),
        ("timeout", 0),
        ("timeout", 8 * 24 * 3600),
        ("max_retries", 21),
        ("webhook_url", 1),
        ("params", []),
        ("params", {"$where": 1}),
        ("params", {"a.b": 1}),
        ("params", {"": 1}),
        ("params", {"a": {"\x00": 1}}),
        ("params", {"a": 2**63}),
        ("params", {"a": float("nan")}),
        ("params", {"a": "\udfff"}),
        ("params", {"\ud800": 1}),
        ("params", deep(18)),
        ("params", {"a": [0] * MAX_PARAMS_VALUES}),
        ("params", {"a": "x" * MAX_PARAMS_BYTES}),
        ("schedule_at", "2027-06-01T09:00:00"),
        ("schedule_at", 1811840400),
        ("interval", ""),
        ("interval", 900),
        # without an interval
        ("timezone", "Europe/Paris"),
        ("jitter", 0.1),
        ("overlap", "skip"),
        ("catch_up", "one"),
        ("ends_at", "2027-06-01T09:00:00Z"),
        ("max_runs", 3),
        ("ignore_cash", True),
    ],
)
def test_what_is_wrong_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        CrawlRequest.model_validate({**GOOD, field: value})
    assert {problem["loc"][0] for problem in caught.value.errors()} == {field}


def test_params_may_nest() -> None:
    params = {"a": [{"b": [1, 2.5, None, True, "é"]}]}
    assert CrawlRequest.model_validate({**GOOD, "params": params}).params == params


PERIODIC = {**GOOD, "interval": "@daily"}


def test_what_belongs_to_an_interval_is_taken_with_one() -> None:
    given = {"timezone": "Europe/Paris", "jitter": 0, "overlap": "queue", "catch_up": "all", "max_runs": 3}
    request = CrawlRequest.model_validate({**PERIODIC, **given, "ends_at": "2027-06-01T09:00:00+02:00"})
    assert (request.overlap, request.catch_up, request.jitter) == (Overlap.QUEUE, CatchUp.ALL, 0)
    assert str(request.ends_at) == "2027-06-01 07:00:00+00:00"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("jitter", value) for value in (0.51, -0.1, float("nan"), "0.1", True)),
        *(("overlap", value) for value in ("never", 1, "SKIP")),
        *(("max_runs", value) for value in (0, "3", 1.5)),
        ("catch_up", "two"),
        ("timezone", ""),
        ("ends_at", "tomorrow"),
    ],
)
def test_what_is_wrong_about_a_schedule_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        CrawlRequest.model_validate({**PERIODIC, field: value})
    assert {problem["loc"][0] for problem in caught.value.errors()} == {field}


def test_of_thousands_of_unknown_fields_some_are_named() -> None:
    body = {"spider": "seo", **{f"x{number}": 1 for number in range(15_000)}, "depth": -1}
    with pytest.raises(ValidationError) as refused:
        CrawlRequest.model_validate(body)
    faults = Counter(fault["type"] for fault in refused.value.errors())
    assert faults == {"extra_forbidden": 20, "greater_than_equal": 1}


@pytest.mark.parametrize("given", ["shop.example:8443", "https://Shop.example:8443/offers", "shop.example."])
def test_a_host_counts_with_all_of_its_ports(given: str) -> None:
    assert JobsFilter(host=given).host == "shop.example"


@pytest.mark.parametrize("given", ["", ":80", "shop example"])
def test_what_is_no_host_is_refused(given: str) -> None:
    with pytest.raises(ValidationError, match="must be a host"):
        JobsFilter(host=given)
