"""What is expected of a crawl, against what it has found."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gateway.contract.crawl import Expect
from gateway.contract.expectations import Tally, breaches, early_breaches

PRICE = {"fields": {"price": 0.9}}
FULL = {"min_items": 10, "max_error_rate": 0.1, "fields": {"title": 1, "price": 0.9}, "stop_early_after": 20}


@pytest.mark.parametrize(
    ("expect", "tally", "broken"),
    [
        ({"min_items": 10}, Tally(5, 0, 10), []),
        ({"min_items": 10}, Tally(5, 0, 9), ["9 items, expected at least 10"]),
        ({"max_error_rate": 0.1}, Tally(9, 1, 0), []),
        ({"max_error_rate": 0.1}, Tally(8, 2, 0), ["2 of 10 requests failed, expected at most 10 %"]),
        ({"max_error_rate": 0}, Tally(0, 0, 0), []),
        ({"max_error_rate": 0}, Tally(99, 1, 0), ["1 of 100 requests failed, expected at most 0 %"]),
        (PRICE, Tally(1, 0, 10, {"price": 9}), []),
        (PRICE, Tally(1, 0, 10, {"price": 8}), ["8 of 10 items have 'price', expected at least 90 %"]),
        (PRICE, Tally(1, 0, 10, {}), ["0 of 10 items have 'price', expected at least 90 %"]),
        # `min_items` is for that
        (PRICE, Tally(1, 0, 0, {"price": 0}), []),
        # a node of an older version counts no fields
        (PRICE, Tally(1, 0, 10, None), []),
        ({}, Tally(0, 9, 0), []),
    ],
)  # fmt: skip
def test_what_was_found_is_compared_with_what_was_expected(
    expect: dict[str, Any], tally: Tally, broken: list[str]
) -> None:
    assert breaches(Expect.model_validate(expect), tally) == broken


@pytest.mark.parametrize("share", [0.07, 0.1, 0.29, 0.3, 0.57, 0.7, 0.9, 0.95, 1])
def test_a_share_is_met_by_exactly_so_many(share: float) -> None:
    expect = Expect(fields={"title": share}, max_error_rate=share)
    count = round(share * 100)
    assert not breaches(expect, Tally(100 - count, count, 100, {"title": count}))
    assert len(breaches(expect, Tally(99 - count, count + 1, 100, {"title": count - 1}))) == 2


@pytest.mark.parametrize(
    ("tally", "count"),
    [
        (Tally(15, 4, 0), 0),
        (Tally(16, 4, 0), 1),
        (Tally(1, 0, 19, {}), 0),
        (Tally(1, 0, 20, {}), 2),
        (Tally(1, 0, 20, {"title": 20, "price": 18}), 0),
        (Tally(16, 4, 20, {"title": 20}), 2),
    ],
)
def test_a_crawl_ends_early_once_it_has_shown_enough_and_never_for_too_few_items(tally: Tally, count: int) -> None:
    assert len(early_breaches(Expect.model_validate(FULL), tally)) == count
    assert not early_breaches(Expect.model_validate({**FULL, "stop_early_after": None}), tally)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_items", 0), ("min_items", "5"), ("min_items", 1.5), ("max_error_rate", 1.01), ("max_error_rate", -0.1),
        ("max_error_rate", float("nan")), ("max_error_rate", "5 %"), ("fields", {"a": 0}), ("fields", {"a": 1.1}),
        ("fields", {"a": "90 %"}), ("fields", {"a.b": 1}), ("fields", {"$a": 1}), ("fields", {"": 1}),
        ("fields", {"a\0": 1}), ("fields", {"a\n": 1}), ("fields", {"\ud800": 1}), ("fields", {"x" * 101: 1}),
        ("fields", {f"f{number}": 1 for number in range(51)}), ("fields", ["a"]), ("stop_early_after", 0),
        ("max_items", 5),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Expect.model_validate({**FULL, field: value})
    assert {problem["loc"][0] for problem in caught.value.errors()} == {field}


def test_too_few_items_show_at_the_end_only() -> None:
    with pytest.raises(ValidationError, match="stop_early_after needs max_error_rate or fields"):
        Expect(min_items=5, stop_early_after=10)
