"""The two orders are one: what compares less in memory compares less as bytes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import bson
from bson import Binary, ObjectId
from hypothesis import given
from hypothesis import strategies as st

from embedded.mongo.keys import AFTER, encode, equal, inverted, sort_key
from embedded.mongo.paths import EMPTY_ARRAY, MISSING

INT64 = st.integers(-(2**63), 2**63 - 1)
MOMENTS = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)).map(  # noqa: DTZ001 - as BSON decodes them
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(
    ["", "\0", "\0\0", "a\0", "a\0b", "a", "ab"]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    INT64,
    st.integers(-3, 3),
    st.integers(2**53 - 2, 2**53 + 2),
    st.floats(),
    st.sampled_from([0.0, -0.0, 2.0**53, 2.0**63, float("nan"), float("inf"), float("-inf")]),
    TEXT,
    st.binary(max_size=4),
    st.binary(max_size=4).map(lambda value: Binary(value, 5)),
    st.binary(min_size=12, max_size=12).map(ObjectId),
    MOMENTS,
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "ab"]), inner, max_size=3),
    max_leaves=6,
)


def sign(one: Any, other: Any) -> int:
    return (one > other) - (one < other)


@given(VALUES, VALUES)
def test_bytes_compare_as_values_do(one: Any, other: Any) -> None:
    assert sign(encode(one), encode(other)) == sign(sort_key(one), sort_key(other))
    assert (encode(one) == encode(other)) == equal(one, other)


@given(VALUES, VALUES)
def test_inverted_bytes_compare_the_other_way(one: Any, other: Any) -> None:
    assert sign(inverted(encode(one)), inverted(encode(other))) == -sign(encode(one), encode(other))


@given(st.tuples(SCALARS, SCALARS), st.tuples(SCALARS, SCALARS))
def test_concatenated_bytes_compare_field_by_field(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    joined = [encode(first) + inverted(encode(second)) for first, second in (one, other)]
    by_first = sign(sort_key(one[0]), sort_key(other[0]))
    assert sign(*joined) == (by_first or -sign(sort_key(one[1]), sort_key(other[1])))


@given(VALUES, VALUES)
def test_no_key_continues_another_or_reaches_what_ends_an_interval(one: Any, other: Any) -> None:
    for key, another in ((encode(one), encode(other)), (inverted(encode(one)), inverted(encode(other)))):
        assert key == another or not another.startswith(key)
        assert key < AFTER


@given(VALUES)
def test_a_value_is_itself_after_a_way_through_bson(value: Any) -> None:
    assert encode(bson.decode(bson.encode({"v": value}))["v"]) == encode(value)


def test_types_are_in_the_order_of_the_manual() -> None:
    # https://www.mongodb.com/docs/manual/reference/bson-type-comparison-order/
    moment = datetime(2026, 1, 1)  # noqa: DTZ001 - as BSON decodes it
    ordered = [EMPTY_ARRAY, None, -1.5, 7, "", {}, [], b"", ObjectId(), False, True, moment, moment + timedelta(1)]
    mixed = list(reversed(ordered))
    assert sorted(mixed, key=sort_key) == ordered
    assert sorted(mixed, key=encode) == ordered
    assert encode(MISSING) == encode(None)
