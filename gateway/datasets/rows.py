"""A dataset's items, and its changes, as rows for a download. They are read batch by batch, so any number of them
fits into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from attrs import define, field

from gateway.clock import to_iso
from gateway.datasets.dataset import ChangeType, Dataset, ItemChange
from gateway.datasets.feed import DatasetFeed
from gateway.datasets.fold_plan import row_of
from gateway.items.formats import Row


@define(eq=False, repr=False, slots=False)
class RecordRows:
    """A dataset's items, with their own fields only. Raises the errors of `DatasetFeed.items`."""

    _feed: DatasetFeed
    _dataset: Dataset
    _as_of: int | None = None
    _removed: bool = False
    text: str | None = None
    #: Called after each batch was read. Raises an error if the reader may not have it.
    _check: Callable[[], object] = bool
    count: int = field(init=False, default=0)
    #: The cursor; `None` at the end.
    _after: str | None = field(init=False, default="")

    def first(self, count: int) -> list[Row]:
        return self._page("", count)[0]

    def next(self, most: int) -> list[Row] | None:
        if self._after is None:
            return None
        rows, self._after = self._page(self._after, most)
        self.count += len(rows)
        return rows

    def left(self) -> int:
        return self._dataset.items

    def following(self) -> str | None:
        return self._after

    def _page(self, after: str, limit: int) -> tuple[list[Row], str | None]:
        found = self._feed.items(
            self._dataset, after, limit, as_of=self._as_of, removed=self._removed, text=self.text
        )
        self._check()
        return [row_of(record) for record in found.records], found.next


@define(eq=False, repr=False, slots=False)
class ChangeRows:
    """Changes: `_change` (new, changed or removed), `_at`, `_seq`, `_run` and `_previous`, followed by the item's
    fields. `_previous` has the earlier values of the fields that are different. Raises the errors of
    `DatasetFeed.changes`.
    """

    _feed: DatasetFeed
    _dataset: Dataset
    _since: int
    _types: Collection[ChangeType]
    text: str | None = field(init=False, default=None)
    count: int = field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._last = self._since

    def first(self, count: int) -> list[Row]:
        found = self._feed.changes(self._dataset, self._since, count, self._types)
        return list(map(_row, found.changes))

    def next(self, most: int) -> list[Row] | None:
        if self._last >= self._dataset.head_seq:
            return None
        found = self._feed.changes(self._dataset, self._last, most, self._types)
        self._last = found.next
        self.count += len(found.changes)
        return list(map(_row, found.changes))

    def left(self) -> int:
        return self._dataset.head_seq - self._last

    def following(self) -> str | None:
        return str(self._last) if self._last < self._dataset.head_seq else None


def _row(change: ItemChange) -> Row:
    previous: dict[str, Any] | None = None
    if change.type is ChangeType.CHANGED and change.differences is not None:
        previous = {one.field: one.previous for one in change.differences}
    about = {
        "_change": change.type.value,
        "_at": to_iso(change.at),
        "_seq": change.seq,
        "_run": change.run,
        "_previous": previous,
    }
    return {**about, **row_of(change)}
