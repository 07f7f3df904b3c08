from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gateway.web.schemas.crawl import CrawlRequest
from gateway.web.schemas.types import MAX_PARAMS_BYTES, MAX_PARAMS_VALUES

GOOD = {"user_id": "abc123", "spider": "seo", "start_urls": ["https://example.com"]}


def deep(levels: int) -> dict[str, Any]:
    return {"x": deep(levels - 1)} if levels else {}


def test_three_fields_are_enough() -> None:
    request = CrawlRequest.model_validate(GOOD)
    assert (request.depth, request.priority, request.params, request.tags) == (None, 0, {}, [])


@pytest.mark.parametrize("field", ["user_id", "spider", "start_urls"])
def test_each_of_the_three_is_required(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        CrawlRequest.model_validate({name: value for name, value in GOOD.items() if name != field})


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
        ("start_urls", []),
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
        ("schedule_at", "2027-06-01T09:00:00Z"),
        ("interval", "@daily"),
        ("timezone", "Europe/Paris"),
        ("jitter", 0.1),
        ("overlap", "skip"),
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


def test_a_schedule_is_refused_with_the_reason() -> None:
    with pytest.raises(ValidationError, match="schedules are not there yet"):
        CrawlRequest.model_validate({**GOOD, "interval": "@daily"})
