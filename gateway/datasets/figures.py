"""The figures that describe one run: counts and sketches. They are made item by item, their size does not grow with
the run, and the figures of two parts of a run can be added.

Items have to be observed in the order in which the run has found them: `fewest` depends on the order.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from math import floor, log
from typing import Any, Self
from zlib import crc32

from attrs import Factory, define, field

#: At most this many fields are counted separately; the values of all other fields are counted together.
MAX_FIELDS = 100
#: A field with a longer name is not counted separately: such a name is more likely data than a name.
MAX_NAME = 200
#: A run that is still going on is judged by windows of `WINDOW` items; a new window begins every `STEP` items.
WINDOW, STEP = 50, 10
#: At most this many different values of a field are counted.
MAX_DISTINCT = 8
#: The version of what `to_dict` returns.
FORM = 1

_STEPS = WINDOW // STEP


class JsonType(StrEnum):
    """Types of values. Integers and floats have the same type, `number`. Dates are strings, as they are in JSON."""

    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ARRAY = "array"
    OBJECT = "object"


TYPES = tuple(JsonType)
_STRING, _NUMBER, _BOOLEAN, _ARRAY, _OBJECT = range(len(TYPES))
_EMPTIABLE = (_ARRAY, _OBJECT)
_PLACES: dict[type, int] = {
    str: _STRING, int: _NUMBER, float: _NUMBER, bool: _BOOLEAN, list: _ARRAY, tuple: _ARRAY, dict: _OBJECT,
}  # fmt: skip


def filled_as(value: Any, empty_values: Collection[str] = ()) -> JsonType | None:
    """The type of a value; `None` if the value is empty: null, blank, an empty array or object, or one of
    `empty_values`.
    """
    place = _filled_as(value, empty_values)
    return None if place is None else TYPES[place]


def _filled_as(value: Any, empty_values: Collection[str]) -> int | None:
    """Like `filled_as`, but returns the index of the type in `TYPES`."""
    place = _PLACES.get(value.__class__)
    if place == _STRING:
        text = value.strip()
        return place if text and text not in empty_values else None
    if place is None:
        if value is None:
            return None
        place = _place(value)
    return None if place in _EMPTIABLE and not value else place


def _place(value: Any) -> int:
    """The index in `TYPES` for a value whose class is not one of JSON's, such as BSON's integers and dates."""
    for kind, place in ((int | float | Decimal, _NUMBER), (list, _ARRAY), (Mapping, _OBJECT)):
        if isinstance(value, kind):
            return place
    return _STRING


# --- numbers


@define
class Sketch:
    """A histogram of log |value| with buckets of equal width. The width is doubled when there are too many buckets,
    so the result does not depend on the order of the values: UDDSketch (Epicoco et al., IEEE Access 2020) on logs.
    """

    #: The width of a bucket is `FINEST * 2 ** level`.
    level: int = 0
    buckets: dict[int, int] = Factory(dict)

    #: The smallest width of a bucket, in units of log |value|: values differ by 3 % within it.
    FINEST = 1 / 32
    MAX_BUCKETS = 64
    #: Zero counts as this number, because zero has no logarithm.
    ZERO = 1e-9

    def add(self, number: Any) -> None:
        """Count a number. Infinity and NaN are left out."""
        try:
            place = floor(log(abs(number) or self.ZERO) / self.FINEST) >> self.level
        except (ValueError, ArithmeticError):
            return
        buckets = self.buckets
        buckets[place] = buckets.get(place, 0) + 1
        if len(buckets) > self.MAX_BUCKETS:
            self._coarsen()

    def merge(self, other: Sketch) -> None:
        level = max(self.level, other.level)
        while self.level < level:
            self._halve()
        for place, count in other.buckets.items():
            coarse = place >> (level - other.level)
            self.buckets[coarse] = self.buckets.get(coarse, 0) + count
        self._coarsen()

    def _coarsen(self) -> None:
        while len(self.buckets) > self.MAX_BUCKETS:
            self._halve()

    def _halve(self) -> None:
        halved: dict[int, int] = {}
        for place, count in self.buckets.items():
            halved[place >> 1] = halved.get(place >> 1, 0) + count
        self.buckets, self.level = halved, self.level + 1

    @property
    def count(self) -> int:
        return sum(self.buckets.values())

    def quantiles(self, *shares: float) -> list[float]:
        """The quantiles of log |value| for these shares, which ascend. Raises `ValueError` for an empty sketch."""
        if not self.buckets:
            raise ValueError("there are no numbers")
        places = iter(sorted(self.buckets.items()))
        count, width = self.count, self.FINEST * 2**self.level
        found, seen, place = [], 0, 0
        for share in shares:
            while seen <= min(share * count, count - 1):
                place, here = next(places)
                seen += here
            found.append((place + 0.5) * width)
        return found

    def median(self) -> float:
        return self.quantiles(0.5)[0]

    def to_dict(self) -> dict[str, Any]:
        return {"level": self.level, "buckets": [list(bucket) for bucket in sorted(self.buckets.items())]}

    @classmethod
    def from_dict(cls, known: Mapping[str, Any]) -> Self:
        return cls(int(known["level"]), {int(place): int(count) for place, count in known["buckets"]})


#: A text that begins with a number, with or without a currency before it: "£51.77", "EUR 1.299,00", "12 reviews".
_NUMBER_IN_TEXT = re.compile(r"\D{0,4}(\d[\d.,]*)")
_MAX_NUMBER_TEXT = 24


def number_in(text: str) -> float | None:
    """The number at the beginning of a short text. The last `.` or `,` is the decimal point if one or two digits
    follow it; any other `.` or `,` groups digits.
    """
    found = _NUMBER_IN_TEXT.match(text) if len(text) <= _MAX_NUMBER_TEXT else None
    if not found:
        return None
    digits = found[1].rstrip(".,")
    decimals = next((places for places in (1, 2) if digits[-places - 1 : -places] in {".", ","}), 0)
    whole = digits[: -decimals - 1] if decimals else digits
    return float(whole.replace(",", "").replace(".", "") + "." + (digits[-decimals:] if decimals else "0"))


# --- one field


@define
class FieldFigures:
    #: How many filled values are of each of `TYPES`.
    counts: list[int] = Factory(lambda: [0] * len(TYPES))
    #: The smallest counts of any window: first of filled values, then of values of each of `TYPES`; `None` before
    #: `WINDOW` items were observed.
    fewest: list[int] | None = None
    #: The sizes of numbers, and of numbers in short texts.
    sizes: Sketch = Factory(Sketch)
    #: Checksums of the first few different texts and numbers.
    distinct: set[int] = Factory(set)
    #: `counts` after each of the last `STEP`s.
    _steps: deque[tuple[int, ...]] = field(factory=lambda: deque(maxlen=_STEPS + 1), eq=False, repr=False)

    @classmethod
    def after(cls, steps: int) -> Self:
        """The figures of a field that no item had during this many steps."""
        empty = [0] * (len(TYPES) + 1) if steps >= _STEPS else None
        return cls(fewest=empty, steps=deque([(0,) * len(TYPES)] * (steps + 1), maxlen=_STEPS + 1))

    @property
    def filled(self) -> int:
        return sum(self.counts)

    def count(self, kind: JsonType) -> int:
        return self.counts[TYPES.index(kind)]

    def add_text(self, text: str) -> None:
        self.counts[_STRING] += 1
        number = number_in(text)
        if number is not None:
            self.sizes.add(number)
        if len(self.distinct) < MAX_DISTINCT:
            self.distinct.add(crc32(text[:MAX_NAME].encode("utf-8", "replace")))

    def add_number(self, number: Any) -> None:
        self.counts[_NUMBER] += 1
        self.sizes.add(number)
        if len(self.distinct) < MAX_DISTINCT:
            self.distinct.add(crc32(repr(number).encode()))

    def step(self) -> None:
        """To be called after every `STEP` items."""
        steps = self._steps
        steps.append(tuple(self.counts))
        if len(steps) > _STEPS:
            window = [now - before for now, before in zip(steps[-1], steps[0], strict=True)]
            window.insert(0, sum(window))
            self.fewest = window if self.fewest is None else list(map(min, self.fewest, window))

    def merge(self, other: FieldFigures) -> None:
        self.counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        if self.fewest is None or other.fewest is None:
            self.fewest = self.fewest or other.fewest
        else:
            self.fewest = list(map(min, self.fewest, other.fewest))
        self._steps.clear()
        self.sizes.merge(other.sizes)
        self.distinct = set(sorted(self.distinct | other.distinct)[:MAX_DISTINCT])

    def to_dict(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "types": {kind.value: count for kind, count in zip(TYPES, self.counts, strict=True) if count},
            "fewest": self.fewest,
            "sizes": self.sizes.to_dict(),
            "distinct": sorted(self.distinct),
        }

    @classmethod
    def from_dict(cls, known: Mapping[str, Any]) -> Self:
        return cls(
            counts=[int(known["types"].get(kind, 0)) for kind in TYPES],
            fewest=None if known["fewest"] is None else list(map(int, known["fewest"])),
            sizes=Sketch.from_dict(known["sizes"]),
            distinct=set(map(int, known["distinct"])),
        )


# --- one run


@define
class RunFigures:
    """The figures of one run. `observe` each item, call `answered` with each new progress of the crawl, and set
    `seconds` at its end. Figures that `from_dict` has read can be continued; their windows begin anew.
    """

    #: Texts that count as empty, such as "N/A". White space around a value does not matter.
    empty_values: frozenset[str] = frozenset()
    items: int = 0
    #: How long the run took; `None` while it is going on.
    seconds: float | None = None
    #: Completed pages, and requests that were given up.
    pages: int = 0
    failed: int = 0
    #: All responses, and the responses with a status of 400 or more.
    responses: int = 0
    refused: int = 0
    #: The largest share of refused responses among `WINDOW` or more responses in a row; `None` before `WINDOW`
    #: responses have come.
    most_refused: float | None = None
    #: By name, in the order in which the fields first appeared.
    fields: dict[str, FieldFigures] = Factory(dict)
    #: How many filled values were in fields that are not counted separately.
    rest: int = 0
    _seen_responses: deque[tuple[int, int]] = field(eq=False, repr=False)

    @_seen_responses.default
    def _so_far(self) -> deque[tuple[int, int]]:
        return deque([(self.responses, self.refused)])

    def observe(self, item: Mapping[str, Any]) -> None:
        """Count an item."""
        fields, empty_values = self.fields, self.empty_values
        for name, value in item.items():
            place = _filled_as(value, empty_values)
            if place is None:
                continue
            found = fields.get(name) or self._new(name)
            if found is None:
                self.rest += 1
            elif place == _STRING:
                found.add_text(str(value))
            elif place == _NUMBER:
                found.add_number(value)
            else:
                found.counts[place] += 1
        self.items += 1
        if not self.items % STEP:
            for one in fields.values():
                one.step()

    def _new(self, name: str) -> FieldFigures | None:
        # without half surrogate pairs, which BSON cannot hold
        name = name.encode("utf-8", "replace").decode()
        found = self.fields.get(name)
        if found is None and not self.is_full and len(name) <= MAX_NAME:
            found = self.fields[name] = FieldFigures.after(self.items // STEP)
        return found

    @property
    def is_full(self) -> bool:
        """Whether the run may have fields that are not in `fields`, because there are too many."""
        return len(self.fields) >= MAX_FIELDS

    def answered(self, *, pages: int, failed: int, responses: int, refused: int) -> None:
        """Set the crawl's counts from its start to now, as `Progress` has them. The counts never fall."""
        self.pages, self.failed, self.responses, self.refused = pages, failed, responses, refused
        seen = self._seen_responses
        seen.append((responses, refused))
        while len(seen) > 1 and responses - seen[1][0] >= WINDOW:
            seen.popleft()
        count = responses - seen[0][0]
        if count >= WINDOW:
            self.most_refused = max(self.most_refused or 0.0, (refused - seen[0][1]) / count)

    def merge(self, other: RunFigures) -> None:
        """Add the figures of another part of the same run, such as its next attempt."""
        for name in dict.fromkeys((*self.fields, *other.fields)):
            found = self.fields.get(name) or self._new(name)
            one = other.fields.get(name) or FieldFigures.after(other.items // STEP)
            if found is None:
                self.rest += one.filled
            elif name in other.fields or not other.is_full:
                found.merge(one)
        shares = [share for share in (self.most_refused, other.most_refused) if share is not None]
        self.most_refused = max(shares, default=None)
        if other.seconds is not None:
            self.seconds = (self.seconds or 0.0) + other.seconds
        for name in ("items", "pages", "failed", "responses", "refused", "rest"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self._seen_responses = self._so_far()

    def to_dict(self) -> dict[str, Any]:
        """For BSON and JSON: names of fields are values, never keys."""
        return {
            "form": FORM,
            "items": self.items,
            "seconds": self.seconds,
            "pages": self.pages,
            "failed": self.failed,
            "responses": self.responses,
            "refused": self.refused,
            "most_refused": self.most_refused,
            "rest": self.rest,
            "fields": [one.to_dict(name) for name, one in self.fields.items()],
        }

    @classmethod
    def from_dict(cls, known: Mapping[str, Any], empty_values: Iterable[str] = ()) -> Self:
        fields = {one["name"]: FieldFigures.from_dict(one) for one in known["fields"]}
        plain = {name: known[name] for name in _PLAIN}
        return cls(empty_values=frozenset(empty_values), fields=fields, **plain)


_PLAIN: Sequence[str] = ("items", "seconds", "pages", "failed", "responses", "refused", "most_refused", "rest")
