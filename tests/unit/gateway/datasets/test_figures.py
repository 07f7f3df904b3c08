"""What is counted of a run."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from math import exp, inf, nan
from typing import Any

import bson
import orjson
import pytest
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from gateway.datasets.figures import (
    MAX_DISTINCT,
    MAX_FIELDS,
    MAX_NAME,
    STEP,
    WINDOW,
    JsonType,
    RunFigures,
    Sketch,
    number_in,
)

NUMBERS = st.lists(st.floats(allow_nan=False) | st.integers(), max_size=200)


def observed(items: Iterable[Mapping[str, Any]], empty_values: Iterable[str] = ()) -> RunFigures:
    figures = RunFigures(frozenset(empty_values))
    for item in items:
        figures.observe(item)
    return figures


def sketch(numbers: Iterable[Any]) -> Sketch:
    found = Sketch()
    for number in numbers:
        found.add(number)
    return found


@pytest.mark.parametrize("value", [None, "", " \n\t", [], {}, "N/A", " N/A "])
def test_a_field_is_empty_if_there_is_nothing_in_it(value: Any) -> None:
    figures = observed([{"price": value}], ["N/A"])
    assert (figures.items, figures.fields) == (1, {})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("12", JsonType.STRING),
        (datetime(2026, 1, 2, tzinfo=UTC), JsonType.STRING),
        (0, JsonType.NUMBER),
        (12.5, JsonType.NUMBER),
        (Int64(5), JsonType.NUMBER),
        (False, JsonType.BOOLEAN),
        ([None], JsonType.ARRAY),
        ({"a": None}, JsonType.OBJECT),
    ],
)
def test_what_fills_a_field_has_a_type(value: Any, kind: JsonType) -> None:
    found = observed([{"price": value}]).fields["price"]
    assert (found.filled, found.count(kind)) == (1, 1)


def test_more_fields_than_are_counted_are_counted_together() -> None:
    names = [*(f"field {number}" for number in range(MAX_FIELDS + 3)), "x" * (MAX_NAME + 1)]
    figures = observed([dict.fromkeys(names, 1)] * 2)
    assert (len(figures.fields), figures.rest, figures.is_full) == (MAX_FIELDS, 2 * 4, True)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("£51.77", 51.77), ("EUR 1.299,00", 1299), ("1,299", 1299), ("12 reviews", 12), ("0.5", 0.5), ("7.", 7),
        ("from about 12", None), ("", None), ("12" * 20, None),
    ],
)  # fmt: skip
def test_a_short_text_may_begin_with_a_number(text: str, number: float | None) -> None:
    assert number_in(text) == number


# --- numbers


def test_a_median_is_exact_to_three_percent() -> None:
    found = sketch(range(1, 10_000))
    assert exp(found.median()) == pytest.approx(5000, rel=0.2)
    assert exp(sketch([19.99] * 5).median()) == pytest.approx(19.99, rel=0.03)


@given(numbers=NUMBERS)
def test_a_sketch_does_not_depend_on_the_order_and_does_not_grow(numbers: list[float]) -> None:
    found = sketch(numbers)
    assert found == sketch(reversed(numbers))
    assert len(found.buckets) <= Sketch.MAX_BUCKETS


@given(one=NUMBERS, other=NUMBERS)
def test_sketches_of_two_parts_are_that_of_the_whole(one: list[float], other: list[float]) -> None:
    merged = sketch(one)
    merged.merge(sketch(other))
    assert merged == sketch([*one, *other])


def test_what_is_no_number_is_left_out_and_nothing_is_too_large() -> None:
    found = sketch([nan, inf, -inf, 0, 10**400, -5])
    assert found.count == 3


# --- windows


@pytest.mark.parametrize("first", [0, 1, 104, 250])
def test_the_barest_window_is_found_wherever_it_is(first: int) -> None:
    items = [{} if first <= at < first + WINDOW + STEP else {"price": 1.5} for at in range(400)]
    assert observed(items).fields["price"].fewest == [0] * 6


def test_figures_that_were_put_away_go_on_with_new_windows() -> None:
    figures = observed([{"price": 1}] * 100)
    resumed = RunFigures.from_dict(figures.to_dict())
    for _ in range(WINDOW + STEP):
        resumed.observe({"price": None})
    assert resumed.fields["price"].filled == 100
    assert resumed.fields["price"].fewest == [0] * 6


def test_a_field_that_comes_late_was_missing_before() -> None:
    figures = observed([*[{"a": 1}] * WINDOW, *[{"a": 1, "b": 1}] * WINDOW])
    assert [one.fewest and one.fewest[0] for one in figures.fields.values()] == [WINDOW, 0]


def test_before_the_first_window_nothing_is_known() -> None:
    assert observed([{"a": 1}] * (WINDOW - 1)).fields["a"].fewest is None
    assert observed([{"a": 1}] * WINDOW).fields["a"].fewest == [WINDOW, 0, WINDOW, 0, 0, 0]


def test_refused_responses_are_seen_where_they_are_many() -> None:
    figures = RunFigures()
    for responses, refused in ((40, 0), (200, 0), (240, 30), (260, 50), (2000, 50)):
        figures.answered(pages=responses, failed=0, responses=responses, refused=refused)
    assert figures.most_refused == pytest.approx(50 / 60)


# --- kept and added up


def run_of(chance: random.Random, items: int) -> RunFigures:
    values = (None, 1, 2.5, "a", "£5", [1], {"x": 1}, True)
    rows = [{name: chance.choice(values) for name in ("a", "b.c", "$d", "\ud800")} for _ in range(items)]
    figures = observed(rows)
    figures.answered(pages=items, failed=1, responses=items, refused=items // 3)
    figures.seconds = 2.5
    return figures


def test_what_is_kept_is_read_again() -> None:
    kept = run_of(random.Random(1), 120).to_dict()
    for stored in (bson.decode(bson.encode(kept)), orjson.loads(orjson.dumps(kept))):
        assert RunFigures.from_dict(stored).to_dict() == kept


def test_parts_of_a_run_are_added_up() -> None:
    one, other = run_of(random.Random(1), 80), run_of(random.Random(2), 90)
    merged = RunFigures.from_dict(one.to_dict())
    merged.merge(other)
    assert (merged.items, merged.seconds, merged.failed, merged.responses) == (170, 5.0, 2, 170)
    assert merged.fields["a"].filled == one.fields["a"].filled + other.fields["a"].filled
    assert merged.fields["a"].fewest == list(map(min, one.fields["a"].fewest or [], other.fields["a"].fewest or []))
    assert len(merged.fields["a"].distinct) <= MAX_DISTINCT


def test_a_field_that_one_part_lacks_was_missing_there() -> None:
    for one, other in (({"a": 1}, {"b": 1}), ({"b": 1}, {"a": 1})):
        merged = observed([one] * WINDOW)
        merged.merge(observed([other] * (WINDOW + STEP)))
        assert [merged.fields[name].fewest for name in "ab"] == [[0] * 6, [0] * 6]
