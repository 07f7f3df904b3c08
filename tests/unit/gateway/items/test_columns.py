from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import TooManyColumnsError
from gateway.items import columns
from gateway.items.columns import ColumnKind, Columns, Type, as_text

DAY, LOCAL, INSTANT = "2026-11-27", "2026-11-27 08:30:00", "2026-11-27T08:30:00.5+01:00"


def learned(*values: Any) -> Type:
    table = Columns()
    for value in values:
        table.add({"a": value})
    return dict(table)["a"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([None], ColumnKind.EMPTY),
        ([None, True], ColumnKind.BOOLEAN),
        ([1, -5], ColumnKind.INTEGER),
        ([1, 2**60], ColumnKind.LONG),
        # as MongoDB has what is larger than 32 bits
        ([1, Int64(4_006_381_333_931)], ColumnKind.INTEGER),
        ([1, Int64(2**60)], ColumnKind.LONG),
        ([1, 2.5], ColumnKind.NUMBER),
        ([2.5, 2**60], ColumnKind.TEXT),
        ([1, 2**63], ColumnKind.TEXT),
        ([True, 1], ColumnKind.TEXT),
        ([1, "1"], ColumnKind.TEXT),
        ([DAY, None], ColumnKind.DATE),
        ([LOCAL, LOCAL.replace(" ", "T")], ColumnKind.DATETIME),
        ([INSTANT, "2026-11-27T08:30:00Z"], ColumnKind.INSTANT),
        ([DAY, LOCAL], ColumnKind.TEXT),
        ([LOCAL, INSTANT], ColumnKind.TEXT),
        ([DAY, ""], ColumnKind.TEXT),
        ([{"a": 1}], ColumnKind.JSON),
        ([{"a": 1}, "text"], ColumnKind.JSON),
    ],
)
def test_a_type_is_as_wide_as_the_values_need(values: list[Any], kind: ColumnKind) -> None:
    assert {learned(*order) for order in permutations(values)} == {Type(kind)}


@pytest.mark.parametrize(
    "text",
    [
        *("2026-02-30", "2026-11-27T25:00:00", "2026-11-27T08:30", "20261127", "27.11.2026", " 2026-11-27"),
        *("2026-11-27T08:30:00.1234567", "0001-01-01T00:00:00+01:00", "2026-11-27T08:30:00+25:00", "２026-11-27"),
    ],
)
def test_what_is_not_surely_a_date_is_text(text: str) -> None:
    assert learned(text) == Type(ColumnKind.TEXT)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([[1, 2.5], []], Type(ColumnKind.NUMBER, is_list=True)),
        ([["a"], ["b", None]], Type(ColumnKind.TEXT, is_list=True)),
        ([["a"], [1]], Type(ColumnKind.TEXT, is_list=True)),
        ([[]], Type(ColumnKind.EMPTY, is_list=True)),
        ([["a"], "a"], Type(ColumnKind.JSON)),
        ([[{"a": 1}]], Type(ColumnKind.JSON)),
        ([["a"], [["b"]]], Type(ColumnKind.JSON)),
    ],
)
def test_lists_of_plain_values_have_a_type_of_their_own(values: list[Any], found: Type) -> None:
    assert {learned(*order) for order in permutations(values)} == {found}


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.sampled_from([DAY, LOCAL, "x"])
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("k"), inner, max_size=1),
    max_leaves=3,
)


@given(st.lists(VALUES, min_size=1, max_size=4), st.randoms())
def test_the_order_of_the_rows_does_not_matter(values: list[Any], chance: Any) -> None:
    shuffled = [*values]
    chance.shuffle(shuffled)
    assert learned(*shuffled) == learned(*values)


def test_columns_come_in_the_order_of_their_appearance_or_as_they_are_named() -> None:
    found, named = Columns(), Columns(["b", "c"])
    for row in ({"a": 1}, {"b": 2, "a": 3}):
        found.add(row)
        named.add(row)
    assert found.names == ["a", "b"]
    assert dict(named) == {"b": Type(ColumnKind.INTEGER), "c": Type(ColumnKind.EMPTY)}


def test_names_that_are_data_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_COLUMNS", 3)
    with pytest.raises(TooManyColumnsError) as refused:
        Columns().add(dict.fromkeys("abcd", 1))
    assert (refused.value.code, refused.value.field) == ("too_many_columns", "fields")


def test_numbers_in_a_column_of_text_are_as_json_has_them() -> None:
    assert [as_text(value) for value in ("a", 1.5, True, 2**70)] == ["a", "1.5", "true", str(2**70)]
