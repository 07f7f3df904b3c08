"""Since which run a field is emptier than it was."""

from __future__ import annotations

import pytest

from gateway.items.coverage import lower_since, over_runs
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
    ],
)
def test_the_run_since_which_a_field_is_emptier(shares: list[float | None], since: int | None) -> None:
    assert lower_since(shares) == since


def counted(*rows: dict[str, object]) -> FieldCounts:
    counts = FieldCounts("5f" * 16, 1)
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
