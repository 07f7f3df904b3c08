"""Since which run a field is emptier than it was."""

from __future__ import annotations

import pytest

from gateway.items.coverage import compare, judge, lower_since, over_runs
from gateway.items.fields import MAX_FIELDS, FieldCounts


@pytest.mark.parametrize(
    ("shares", "since"),
    [
        ([], None),
        ([0.0], None),
        ([0.9, 0.9, 0.9], None),
        ([0.9, 0.2], 1),
        ([0.9, 0.9, 0.2, 0.3, 0.1], 2),
        # as it was again
        ([0.9, 0.2, 0.9], None),
        # a run without items says nothing
        ([0.9, None, 0.2, None], 2),
        ([None, 0.2], None),
        # within what is tolerated, and beyond it
        ([0.9, 0.86, 0.86], None),
        ([0.9, 0.84, 0.84], 1),
        # it has come slowly: since when it is below what was usual before
        ([1.0, 0.97, 0.94, 0.91, 0.88], 3),
        # it was never full
        ([0.0, 0.0, 0.0], None),
        # a single bad run before does not hide it
        ([0.9, 0.1, 0.9, 0.9, 0.1, 0.1], 4),
        # nor do many
        ([1.0, 1.0, *[0.0] * 18], 2),
        # nor if it was taken back once
        ([1.0, 0.0, 0.0, 0.0, 1.0, 0.0], 5),
        # it is of another size in each run, however often it is compared
        ([0.1, 0.6] * 8 + [0.1], None),
    ],
)
def test_the_run_since_which_a_field_is_emptier(shares: list[float | None], since: int | None) -> None:
    assert lower_since(shares, judge(shares)) == since


def test_the_runs_in_which_a_field_is_emptier_stay_so_after_a_good_one() -> None:
    judged = judge([1.0, 0.98, 0.0, None, 0.0, 0.0, 0.0, 1.0, 0.99])
    assert [place for place, one in enumerate(judged) if one.is_lower] == [2, 4, 5, 6]
    assert [one.usual for one in judged] == [None, 1.0, *[0.99] * 6, 1.0]


def test_a_run_is_compared_with_what_was_usual_before_a_field_was_lost() -> None:
    good, broken = counted({"price": 1}), counted({"price": None})
    (price,) = compare(broken, [good, *[broken] * 6])
    assert (price.share, price.share_before, price.is_lower, price.since) == (0, 1, True, 1)
    (price,) = compare(good, [good, *[broken] * 6])
    assert (price.share_before, price.is_lower, price.since) == (1, False, None)


def test_a_few_items_of_many_say_nothing_about_a_run() -> None:
    few = counted({"price": None})
    few.is_complete = False
    (price,) = compare(counted({"price": None}), [counted({"price": 1}), few])
    assert (price.share_before, price.since) == (1, 2)


def counted(*rows: dict[str, object]) -> FieldCounts:
    counts = FieldCounts("5f" * 16, 1, is_complete=True)
    for row in rows:
        counts.items += 1
        counts.add(row)
    return counts


def test_fields_that_are_emptier_come_first_also_if_they_are_gone() -> None:
    full = counted({"name": "a", "price": 1, "seller": {"name": "x"}}, {"name": "b", "price": 2, "seller": None})
    runs = [full, full, counted(), counted({"name": "a", "stock": 4})]
    found = {one.path: one for one in over_runs(runs)}
    assert list(found)[:3] == [("price",), ("seller",), ("seller", "name")]
    assert found["price",].shares == [1.0, 1.0, None, 0.0]
    assert (found["price",].since, found["seller", "name"].since, found["name",].since) == (3, 3, None)
    assert (found["stock",].since, found["stock",].types) == (None, {"integer": 1})


def test_a_field_that_was_not_counted_for_want_of_room_is_not_emptier() -> None:
    many = dict.fromkeys((f"size_{number}" for number in range(MAX_FIELDS)), 1)
    found = {one.path: one for one in over_runs([counted({"price": 1}), counted({**many, "price": 1})])}
    assert (found["price",].shares, found["price",].since) == ([1.0, None], None)
