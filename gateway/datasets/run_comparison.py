"""Compares the items of two runs by a key, as the fold of a dataset does, but keeps nothing: what is new, what has
changed, and what is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from attrs import define, field

from gateway.datasets.content import URL_FIELD, content_hash, differences, key_hash, key_of, shown_key
from gateway.datasets.dataset import ChangeType, Difference
from gateway.datasets.fold_plan import BATCH, RunItems
from gateway.items.formats import Row
from gateway.items.items import Item

#: Of each run, at most the first so many items are compared, and they are read for at most so many seconds.
MOST_COMPARED, READ_SECONDS = 20_000, 3.0


class ItemsKey(NamedTuple):
    """What makes two items the same item."""

    #: None: their `url`; an item without one is compared by all of its content.
    fields: tuple[str, ...] = ()
    #: These fields may differ.
    ignore: tuple[str, ...] = ()


class DifferentItem(NamedTuple):
    type: ChangeType
    #: Empty for an item that is compared by all of its content.
    key: dict[str, object]
    #: The item; of a removed one as the run before had it.
    row: Row
    #: Of a changed item; `None` if they are too large to be shown.
    differences: list[Difference] | None


@define(kw_only=True)
class SeenItems:
    """The items of one run, by the hash of their key."""

    #: How many were read, and whether these are all.
    read: int = 0
    is_whole: bool = False
    #: How many lack a field of the key, and how many have the key of an item before them, which they replace.
    without_key: int = 0
    repeated: int = 0
    #: For each key the hash of the content, and the position of the item.
    by_key: dict[str, tuple[str, int]] = field(factory=dict)


class ComparedItems(NamedTuple):
    before: SeenItems
    now: SeenItems
    new: int = 0
    changed: int = 0
    removed: int = 0
    same: int = 0
    #: Some of the changed, new and removed ones, in this order.
    examples: Sequence[DifferentItem] = ()


@define(eq=False, repr=False, slots=False)
class ItemComparing:
    _monotonic: Callable[[], float] = time.monotonic

    def compare(self, before: RunItems, now: RunItems, key: ItemsKey, shown: int) -> ComparedItems:
        """Compare both runs. Up to `shown` items of each kind are in the answer. Raises PyMongo's errors."""
        old, new = self._seen(before, key), self._seen(now, key)
        added = [one for one in new.by_key if one not in old.by_key]
        removed = [one for one in old.by_key if one not in new.by_key]
        both = [one for one in new.by_key if one in old.by_key]
        changed = [one for one in both if new.by_key[one][0] != old.by_key[one][0]]
        examples = [
            *_changed(before, now, [(old.by_key[one][1], new.by_key[one][1]) for one in changed[:shown]], key),
            *_alone(ChangeType.NEW, now, [new.by_key[one][1] for one in added[:shown]], key),
            *_alone(ChangeType.REMOVED, before, [old.by_key[one][1] for one in removed[:shown]], key),
        ]
        return ComparedItems(old, new, len(added), len(changed), len(removed), len(both) - len(changed), examples)

    def _seen(self, run: RunItems, key: ItemsKey) -> SeenItems:
        seen, until, after = SeenItems(), self._monotonic() + READ_SECONDS, None
        while seen.read < MOST_COMPARED and self._monotonic() < until:
            found = run.store.page(run.job_id, run.attempt, after, min(BATCH, MOST_COMPARED - seen.read))
            if not found:
                seen.is_whole = True
                return seen
            for item in found:
                _see(seen, item, key)
            after = found[-1].id
        seen.is_whole = not run.store.page(run.job_id, run.attempt, after, 1)
        return seen


def _see(seen: SeenItems, item: Item, key: ItemsKey) -> None:
    seen.read += 1
    try:
        content = content_hash(item.row, key.ignore)
        found = key_of(item.row, key.fields, content)
    except (RecursionError, TypeError, ValueError):
        # it is nested too deeply
        found = None
    if found is None:
        seen.without_key += 1
        return
    hashed = key_hash(found)
    seen.repeated += hashed in seen.by_key
    seen.by_key[hashed] = content, item.end


def _changed(
    before: RunItems, now: RunItems, positions: Sequence[tuple[int, int]], key: ItemsKey
) -> Iterator[DifferentItem]:
    old, new = _at(before, [one for one, _ in positions]), _at(now, [one for _, one in positions])
    for was, is_now in positions:
        if was in old and is_now in new:
            found = differences(old[was], new[is_now], key.ignore)
            told = None if found is None else [Difference(**one) for one in found]
            yield DifferentItem(ChangeType.CHANGED, _shown_key(new[is_now], key), new[is_now], told)


def _alone(kind: ChangeType, run: RunItems, positions: Sequence[int], key: ItemsKey) -> Iterator[DifferentItem]:
    rows = _at(run, positions)
    return (DifferentItem(kind, _shown_key(rows[one], key), rows[one], None) for one in positions if one in rows)


def _at(run: RunItems, positions: Iterable[int]) -> dict[int, Row]:
    """The items at these positions; one after the other if they are too large to be read together."""
    wanted = list(positions)
    found = run.at(wanted)
    if found is None:
        found = {position: item for one in wanted for position, item in (run.at([one]) or {}).items()}
    return {position: item.row for position, item in found.items()}


def _shown_key(row: Row, key: ItemsKey) -> dict[str, object]:
    found = key_of(row, key.fields, "") or {}
    return shown_key({name: value for name, value in found.items() if key.fields or name == URL_FIELD})
