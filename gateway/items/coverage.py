"""How full fields are from run to run: since which run a field is emptier than before, and on which pages it is
missing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from attrs import define

from gateway.items.fields import TOLERANCE, FieldCount, FieldCounts, Path, is_filled
from gateway.items.items import ItemStore

#: Seconds for which items are searched for the pages on which fields are missing.
LOOK_SECONDS = 1.0
#: At most this many places of a site are counted: a site may have one for each product.
_MOST_PLACES = 500
#: Fields in which an item may have the address of its page.
_ADDRESSES = ("url", "link", "page_url", "source_url")


class FieldOverRuns(NamedTuple):
    path: Path
    #: For each run, the oldest first: the share of items that fill the field; `None` for a run without items, or with
    #: too many fields to count this one.
    shares: list[float | None]
    #: The index in `shares` of the run since which the field is emptier than before; `None` if it is not emptier.
    since: int | None
    #: How many values have each type, in the last run that has items.
    types: dict[str, int]


def over_runs(runs: Sequence[FieldCounts]) -> list[FieldOverRuns]:
    """Each field of any of the runs; fields that are emptier now come first. `runs`: the oldest first."""
    by_run = [dict(run) for run in runs]
    paths = list(dict.fromkeys(path for fields in reversed(by_run) for path in fields))
    newest = next((fields for run, fields in zip(reversed(runs), reversed(by_run), strict=True) if run.items), {})
    found = [
        FieldOverRuns(path, shares, lower_since(shares), newest.get(path, FieldCount()).types)
        for path in paths
        for shares in [[_share(run, fields, path) for run, fields in zip(runs, by_run, strict=True)]]
    ]
    return sorted(found, key=lambda one: one.since is None)


def _share(run: FieldCounts, fields: Mapping[Path, FieldCount], path: Path) -> float | None:
    if not run.items or (run.has_more and path not in fields):
        return None
    return run.filled(path) / run.items


def lower_since(shares: Sequence[float | None]) -> int | None:
    """The first index from which on all shares are more than `TOLERANCE` below the median of the shares before it."""
    known = [(place, share) for place, share in enumerate(shares) if share is not None]
    for first in range(1, len(known)):
        usual = median(share for _, share in known[:first])
        if all(share < usual - TOLERANCE for _, share in known[first:]):
            return known[first][0]
    return None


class MissingOn(NamedTuple):
    """A part of a site: pages whose paths begin alike."""

    #: `/sale`; `/` for the front page.
    place: str
    #: How many of the checked items are from this part, and how many of them lack the field.
    items: int
    missing: int


@define(eq=False, repr=False, slots=False)
class MissingFields:
    _items: ItemStore
    _monotonic: Callable[[], float] = time.monotonic

    def places(self, job_id: str, attempt: int, paths: Sequence[Path]) -> dict[Path, list[MissingOn]]:
        """By field: the parts of the site where at least half of the items lack it; the parts with most items first.
        Only the first items are checked if all would take longer than `LOOK_SECONDS`.
        """
        until = self._monotonic() + LOOK_SECONDS
        items, missing = Counter[str](), {path: Counter[str]() for path in paths}
        for _, item in self._items.look(job_id, attempt, None) if paths else ():
            place = _place(item.row) if item is not None else None
            if item is not None and place is not None and (place in items or len(items) < _MOST_PLACES):
                items[place] += 1
                for path, lacking in missing.items():
                    lacking[place] += not is_filled(_value(item.row, path))
            if self._monotonic() > until:
                break
        return {path: _mostly(lacking, items) for path, lacking in missing.items()}


def _mostly(lacking: Counter[str], items: Counter[str]) -> list[MissingOn]:
    found = [MissingOn(place, items[place], number) for place, number in lacking.most_common()]
    return [one for one in found if one.missing * 2 >= one.items]


def _value(row: Mapping[str, Any], path: Path) -> Any:
    value: Any = row
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _place(row: Mapping[str, Any]) -> str | None:
    """The first part of the path of the item's page; `None` if the item has no address of its page."""
    address = next((value for name in _ADDRESSES if isinstance(value := row.get(name), str)), None)
    if address is None:
        return None
    try:
        path = urlsplit(address).path
    except ValueError:
        return None
    first = path.strip("/").split("/", 1)[0]
    return f"/{first[:60]}"
