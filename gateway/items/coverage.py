"""How full fields are from run to run: in which runs a field is emptier than before, since which run, and on which
pages it is missing. All pages, the CLI and the agents' tools judge by `judge`, so that they never disagree.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from attrs import define

from gateway.items.fields import FieldCount, FieldCounts, Path, is_filled
from gateway.items.items import ItemStore

#: A field counts as lower if its share has fallen by more than this.
TOLERANCE = 0.05
#: What is usual is the median of this many runs.
_USUAL = 5
#: From this many changes on, a field whose share changes by more than `TOLERANCE` from run to run is never lower.
_CHANGES = 10
#: Seconds for which items are searched for the pages on which fields are missing.
LOOK_SECONDS = 1.0
#: At most this many places of a site are counted: a site may have one for each product.
_MOST_PLACES = 500
#: Fields in which an item may have the address of its page.
_ADDRESSES = ("url", "link", "page_url", "source_url")


class Judged(NamedTuple):
    """A field in one run, compared with the runs before it."""

    #: The share of items that usually fill it; `None` if no earlier run tells.
    usual: float | None
    is_lower: bool


def judge(shares: Sequence[float | None]) -> list[Judged]:
    """Each of the shares (the oldest first) compared with what was usual before it: the median of the last runs that
    were not lower themselves. So a field that was lost stays lost, however many runs have followed.
    """
    judged, usual, known = list[Judged](), list[float](), list[float]()
    for share in shares:
        before = median(usual[-_USUAL:]) if usual else None
        is_lower = share is not None and before is not None and share < before - TOLERANCE and not _varies(known)
        judged.append(Judged(before, is_lower))
        if share is not None:
            known.append(share)
            if not is_lower:
                usual.append(share)
    return judged


def _varies(shares: Sequence[float]) -> bool:
    changes = [abs(after - before) for before, after in pairwise(shares)]
    return len(changes) >= _CHANGES and median(changes) > TOLERANCE


class FieldOverRuns(NamedTuple):
    path: Path
    #: For each run, the oldest first: the share of items that fill the field; `None` for a run without items, or with
    #: too many fields to count this one.
    shares: list[float | None]
    #: For each of these shares, how it compares with the earlier ones.
    judged: list[Judged]
    #: How many values have each type, in the last run that has items.
    types: dict[str, int]

    @property
    def since(self) -> int | None:
        """The index in `shares` of the run since which the field is emptier than before; `None` if it is not."""
        return lower_since(self.shares, self.judged)


def over_runs(runs: Sequence[FieldCounts]) -> list[FieldOverRuns]:
    """Each field of any of the runs; fields that are emptier now come first. `runs`: the oldest first."""
    by_run = [dict(run) for run in runs]
    paths = list(dict.fromkeys(path for fields in reversed(by_run) for path in fields))
    newest = next((fields for run, fields in zip(reversed(runs), reversed(by_run), strict=True) if run.items), {})
    found = [
        FieldOverRuns(path, shares, judge(shares), newest.get(path, FieldCount()).types)
        for path in paths
        for shares in [[_share(run, fields, path) for run, fields in zip(runs, by_run, strict=True)]]
    ]
    return sorted(found, key=lambda one: one.since is None)


def _share(run: FieldCounts, fields: Mapping[Path, FieldCount], path: Path) -> float | None:
    if not run.is_enough or (run.has_more and path not in fields):
        return None
    return run.filled(path) / run.items


def lower_since(shares: Sequence[float | None], judged: Sequence[Judged]) -> int | None:
    """The first index from which on all shares are lower than what was usual before."""
    since = None
    for place in reversed(range(len(shares))):
        if shares[place] is not None:
            if not judged[place].is_lower:
                break
            since = place
    return since


class FieldFacts(NamedTuple):
    """A field of one run, and what was usual in the runs before it."""

    path: Path
    counted: FieldCount
    #: The share of items that fill the field.
    share: float
    share_before: float | None
    is_lower: bool
    #: The first of the runs, without a better one until this run, in which it was lower: its index among all.
    since: int | None


def compare(counts: FieldCounts, before: Sequence[FieldCounts]) -> list[FieldFacts]:
    """The fields of `counts`, followed by those that only earlier runs had. `before`: the oldest first."""
    found = {one.path: one for one in over_runs([*before, counts])}
    known = dict(counts)
    earlier = ((path, one.filled) for run in reversed(before) for path, one in run)
    missing = {path: FieldCount() for path, filled in earlier if filled and path not in known}
    return [_facts(found[path], count, counts.items) for path, count in (*known.items(), *missing.items())]


def _facts(one: FieldOverRuns, count: FieldCount, items: int) -> FieldFacts:
    usual, is_lower = one.judged[-1]
    share = count.filled / items if items else 0.0
    return FieldFacts(one.path, count, share, usual, is_lower, one.since if is_lower else None)


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
