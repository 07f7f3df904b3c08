"""How full fields are from run to run: since which run one is emptier than it was, and on which pages it lacks."""

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

#: Seconds for which items are looked through for the pages on which fields are missing.
LOOK_SECONDS = 1.0
#: Most places that are counted: a site may have one for each product.
_MOST_PLACES = 500
#: Names under which an item has the address of its page.
_ADDRESSES = ("url", "link", "page_url", "source_url")


class FieldOverRuns(NamedTuple):
    path: Path
    #: The share of items that fill it in each run, the oldest first; `None` for a run that has no items, or too many
    #: fields to count this one.
    shares: list[float | None]
    #: The place of the first of the last runs in which it is emptier than it was before; `None` if it is not.
    since: int | None
    #: How many values are of each type, in the last run that has items.
    types: dict[str, int]


def over_runs(runs: Sequence[FieldCounts]) -> list[FieldOverRuns]:
    """Each field that any of the runs has, those that are emptier now first; `runs` are the oldest first."""
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
    """The first place from which on all shares are lower than the median of those before by more than `TOLERANCE`."""
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
    #: How many of the items that were looked at are from there, and how many of these lack the field.
    items: int
    missing: int


@define(eq=False, repr=False, slots=False)
class MissingFields:
    _items: ItemStore
    _monotonic: Callable[[], float] = time.monotonic

    def places(self, job_id: str, attempt: int, paths: Sequence[Path]) -> dict[Path, list[MissingOn]]:
        """For each field the parts of the site of whose items at least half lack it, those with the most first. Of
        the first items, if all would take longer than `LOOK_SECONDS`.
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
    """The first part of the path of the item's page, if the item says from which page it is."""
    address = next((value for name in _ADDRESSES if isinstance(value := row.get(name), str)), None)
    if address is None:
        return None
    try:
        path = urlsplit(address).path
    except ValueError:
        return None
    first = path.strip("/").split("/", 1)[0]
    return f"/{first[:60]}"
