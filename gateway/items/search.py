"""Looking for a text in items, one after the other: no index knows what fields a spider's items have."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from gateway.items.items import Item

#: Items, and seconds, that one look takes.
_LOOK = 1000
_LOOK_SECONDS = 0.5


class Look(NamedTuple):
    items: list[Item]
    #: How many were looked at, and the id of the last one; `None` if there was none: the end.
    looked_at: int
    last: str | None


def search(items: Iterator[tuple[str, Item | None]], limit: int, text: str) -> Look:
    """Up to `limit` of the items, as `ItemStore.look` gives them, with the text in a value, case aside. A look may
    find none, and not be at the end.
    """
    wanted, found, looked_at, last = text.casefold(), list[Item](), 0, None
    until = time.monotonic() + _LOOK_SECONDS
    for identity, item in islice(items, _LOOK):
        looked_at, last = looked_at + 1, identity
        if item is not None and has_text(item.row, wanted):
            found.append(item)
        if len(found) >= limit or time.monotonic() > until:
            break
    return Look(found, looked_at, last)


def has_text(value: Any, text: str) -> bool:
    """Whether `text`, which is case-folded, is in one of the values; names of fields do not count."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            rest.extend(one.values())
        elif isinstance(one, list):
            rest.extend(one)
        elif one is not None and text in str(one).casefold():
            return True
    return False
