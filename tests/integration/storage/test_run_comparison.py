"""The items of two runs, compared by a key."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from pymongo.database import Database
from stores import REAL_BACKENDS

from gateway.datasets import run_comparison
from gateway.datasets.fold_plan import RunItems
from gateway.datasets.run_comparison import ComparedItems, ItemComparing, ItemsKey
from gateway.items.items import Item, ItemStore
from gateway.jobs.job import new_job_id

Rows = list[dict[str, Any]]
pytestmark = pytest.mark.parametrize("database", REAL_BACKENDS, indirect=True)


@pytest.fixture
def items(database: Database[dict[str, Any]]) -> ItemStore:
    return ItemStore(database)


def run_of(items: ItemStore, rows: Rows) -> RunItems:
    run = RunItems(items, new_job_id(), 1)
    items.insert([Item(run.job_id, 1, place, row) for place, row in enumerate(rows, 1)])
    return run


def compared(items: ItemStore, before: Rows, now: Rows, key: ItemsKey | None = None, shown: int = 9) -> ComparedItems:
    return ItemComparing().compare(run_of(items, before), run_of(items, now), key or ItemsKey(), shown)


def counts(found: ComparedItems) -> tuple[int, int, int, int]:
    return found.new, found.changed, found.removed, found.same


def page(number: int, **fields: Any) -> dict[str, Any]:
    return {"url": f"http://shop.example/{number}", **fields}


def test_items_are_compared_by_their_urls(items: ItemStore) -> None:
    before = [page(1, price=1), page(2, price=2), page(3, price=3.0, at="2027-06-01T09:00:00Z")]
    # the same values in another form
    now = [page(4), page(3, price=3, at="2027-06-01T11:00:00+02:00"), page(1, price=9)]
    found = compared(items, before, now)
    assert counts(found) == (1, 1, 1, 1)
    changed, new, removed = found.examples
    assert (changed.key, changed.row) == ({"url": "http://shop.example/1"}, page(1, price=9))
    assert [(one.field, one.previous, one.current) for one in changed.differences or []] == [("price", 1, 9)]
    assert (new.row, new.differences) == (page(4), None)
    assert (removed.row, removed.type) == (page(2, price=2), "removed")
    assert found.now.is_whole
    assert found.before.is_whole


def test_items_without_a_url_are_compared_by_their_content(items: ItemStore) -> None:
    found = compared(items, [{"name": "a"}, {"name": "b"}], [{"name": "b"}, {"name": "c"}])
    assert counts(found) == (1, 0, 1, 1)
    assert [one.key for one in found.examples] == [{}, {}]


def test_a_key_of_other_fields_and_fields_that_may_differ(items: ItemStore) -> None:
    before = [{"sku": 1, "shop": {"id": "x"}, "seen": 1}, {"sku": 2, "shop": {"id": "x"}, "seen": 1}]
    now = [{**before[0], "seen": 2}, {"sku": 1, "shop": {"id": "y"}}, {"sku": None}, {**before[0], "seen": 3}]
    found = compared(items, before, now, ItemsKey(("sku", "shop.id"), ("seen",)))
    assert counts(found) == (1, 0, 1, 1)
    assert (found.now.without_key, found.now.repeated) == (1, 1)


def test_as_many_as_wanted_are_shown_of_each_kind(items: ItemStore) -> None:
    before, now = [page(number) for number in range(9)], [page(number, n=1) for number in range(5, 14)]
    found = compared(items, before, now, shown=2)
    assert counts(found) == (5, 4, 5, 0)
    assert [one.type for one in found.examples] == ["changed"] * 2 + ["new"] * 2 + ["removed"] * 2


def test_of_many_items_the_first_ones_are_compared(items: ItemStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_comparison, "MOST_COMPARED", 3)
    found = compared(items, [page(number) for number in range(4)], [page(number) for number in range(3)])
    assert (found.before.read, found.before.is_whole, found.now.is_whole) == (3, False, True)
    ticks = count(step=2)
    run, other = run_of(items, [page(1)]), run_of(items, [])
    late = ItemComparing(lambda: float(next(ticks))).compare(run, other, ItemsKey(), 9)
    assert (late.before.read, late.before.is_whole, late.now.is_whole) == (1, True, True)
