"""Compares the results of a crawl with its expectations, both in the spider's process and in the platform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol


class Tally(NamedTuple):
    """What a crawl has done so far."""

    pages: int
    errors: int
    items: int
    #: By expected field: how many items have it; `None` if the node did not count them.
    filled: Mapping[str, int] | None = None

    @property
    def error_rate(self) -> float:
        """Share of failed requests and callbacks among all that were tried; 0 before any was tried."""
        return self.errors / (self.pages + self.errors) if self.errors else 0.0


class Expectation(Protocol):
    """`Expect` of `gateway/contract/crawl.py`, or any object with its fields."""

    @property
    def min_items(self) -> int | None: ...
    @property
    def max_error_rate(self) -> float | None: ...
    @property
    def fields(self) -> Mapping[str, float]: ...
    @property
    def stop_early_after(self) -> int | None: ...


def breaches(expect: Expectation, tally: Tally) -> list[str]:
    """A sentence for each expectation that the crawl has not met, with its result; empty if it has met all."""
    return [*_too_few(expect, tally), *_too_many_errors(expect, tally), *_too_empty(expect, tally)]


def early_breaches(expect: Expectation, tally: Tally) -> list[str]:
    """A sentence for each expectation that a running crawl has broken. They count only after enough requests or
    items.
    """
    enough = expect.stop_early_after
    if enough is None:
        return []
    errors = _too_many_errors(expect, tally) if tally.pages + tally.errors >= enough else ()
    return [*errors, *(_too_empty(expect, tally) if tally.items >= enough else ())]


def _too_few(expect: Expectation, tally: Tally) -> Iterator[str]:
    if expect.min_items is not None and tally.items < expect.min_items:
        found = "1 item" if tally.items == 1 else f"{tally.items} items"
        yield f"{found}, expected at least {expect.min_items}"


def _too_many_errors(expect: Expectation, tally: Tally) -> Iterator[str]:
    if expect.max_error_rate is not None and tally.error_rate > expect.max_error_rate:
        tried = tally.pages + tally.errors
        yield f"{tally.errors} of {tried} requests failed, expected at most {_percent(expect.max_error_rate)}"


def _too_empty(expect: Expectation, tally: Tally) -> Iterator[str]:
    if tally.filled is None or not tally.items:
        return
    for name, share in expect.fields.items():
        count = tally.filled.get(name, 0)
        if count / tally.items < share:
            yield f"{count} of {tally.items} items have {name!r}, expected at least {_percent(share)}"


def _percent(share: float) -> str:
    return f"{share * 100:g} %"
