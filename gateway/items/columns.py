"""Learns the columns of a table, and the type of each column, from the rows, because JSON declares neither.

A column gets the narrowest type that all its values fit. So no value is ever changed or left out because it does not
fit: a column whose values differ too much becomes text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from enum import Enum, auto
from itertools import combinations
from typing import Any, NamedTuple

from gateway.errors import TooManyColumnsError
from gateway.items.formats import Row, as_json

#: A table has at most this many columns, like a sheet of Excel. If there are more, the names are more likely data.
MAX_COLUMNS = 16_384
#: Integers up to this are exact as floating-point numbers, too.
_EXACT = 2**53
#: Not used as a `range`: MongoDB's large integers are `Int64`, and `in` searches a range for a subclass one by one.
_INT64 = 2**63


class ColumnKind(Enum):
    #: No value but null.
    EMPTY = auto()
    BOOLEAN = auto()
    INTEGER = auto()
    #: Integers of 64 bits; at least one is too large to be exact as a floating-point number.
    LONG = auto()
    NUMBER = auto()
    #: `2026-11-27`
    DATE = auto()
    #: `2026-11-27T08:30:00`, a time without a time zone.
    DATETIME = auto()
    #: `2026-11-27T08:30:00+01:00`
    INSTANT = auto()
    TEXT = auto()
    #: Objects, lists of objects or of lists, and columns with nested and plain values: each value is JSON text.
    JSON = auto()


class Type(NamedTuple):
    kind: ColumnKind
    #: Each value is a list of values of that kind.
    is_list: bool = False


#: All types, made once, because types are compared for every value.
_TYPES = {(kind, is_list): Type(kind, is_list) for kind in ColumnKind for is_list in (False, True)}
EMPTY, TEXT, JSON = (_TYPES[kind, False] for kind in (ColumnKind.EMPTY, ColumnKind.TEXT, ColumnKind.JSON))
_WIDER = {
    frozenset({ColumnKind.INTEGER, ColumnKind.LONG}): ColumnKind.LONG,
    frozenset({ColumnKind.INTEGER, ColumnKind.NUMBER}): ColumnKind.NUMBER,
}


def _wider_kind(one: ColumnKind, other: ColumnKind) -> ColumnKind:
    """The narrowest kind for values of both."""
    if one is other or other is ColumnKind.EMPTY:
        return one
    if one is ColumnKind.EMPTY:
        return other
    if ColumnKind.JSON in (one, other):
        return ColumnKind.JSON
    return _WIDER.get(frozenset({one, other}), ColumnKind.TEXT)


def _wider_type(one: Type, other: Type) -> Type:
    if EMPTY in (one, other):
        return one if other is EMPTY else other
    if one.is_list != other.is_list:
        return JSON
    kind = _wider_kind(one.kind, other.kind)
    return JSON if kind is ColumnKind.JSON else _TYPES[kind, one.is_list]


_JOINED = {(one, one): one for one in _TYPES.values()}
for _one, _other in combinations(_TYPES.values(), 2):
    _JOINED[_one, _other] = _JOINED[_other, _one] = _wider_type(_one, _other)


# --- the type of a value

#: ISO 8601 dates as Python, JavaScript, databases and Scrapy write them. Other formats may not be dates.
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d(?P<time>[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(?P<zone>Z|[+-]\d\d:\d\d)?)?"
)
_LONGEST_MOMENT = len("2026-11-27T08:30:00.123456+01:00")
_PLAIN = {bool: ColumnKind.BOOLEAN, float: ColumnKind.NUMBER, type(None): ColumnKind.EMPTY}


def type_of(value: Any) -> Type:
    if isinstance(value, list | tuple):
        return _type_of_list(value)
    return JSON if isinstance(value, dict) else _TYPES[_kind_of(value), False]


def _type_of_list(values: Iterable[Any]) -> Type:
    found = _TYPES[ColumnKind.EMPTY, True]
    for value in values:
        if isinstance(value, list | tuple | dict):
            return JSON
        found = _JOINED[found, _TYPES[_kind_of(value), True]]
    return found


def _kind_of(value: Any) -> ColumnKind:
    if isinstance(value, str):
        return _kind_of_text(value)
    if (plain := _PLAIN.get(type(value))) is not None:
        return plain
    if isinstance(value, int):
        return (
            ColumnKind.TEXT
            if not -_INT64 <= value < _INT64
            else ColumnKind.INTEGER
            if -_EXACT <= value <= _EXACT
            else ColumnKind.LONG
        )
    if isinstance(value, datetime):
        return ColumnKind.DATETIME if value.tzinfo is None else ColumnKind.INSTANT
    return ColumnKind.DATE if isinstance(value, date) else ColumnKind.TEXT


def _kind_of_text(text: str) -> ColumnKind:
    if len(text) > _LONGEST_MOMENT or not (found := _MOMENT.fullmatch(text)):
        return ColumnKind.TEXT
    try:
        moment = datetime.fromisoformat(text)
        if not found["time"]:
            return ColumnKind.DATE
        if not found["zone"]:
            return ColumnKind.DATETIME
        moment.astimezone(UTC)
    except (ValueError, OverflowError):
        # the day does not exist, or is before the year 1 in UTC
        return ColumnKind.TEXT
    return ColumnKind.INSTANT


# --- the columns


class Columns:
    """The columns in the order of their appearance, or those that are named, with the types of the rows added so far.

    `add` raises `TooManyColumnsError`.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._types: dict[str, Type] = dict.fromkeys(names, EMPTY)
        #: Whether the columns were given, so that other fields of rows are ignored.
        self._are_named = bool(self._types)

    def add(self, row: Row) -> None:
        types = self._types
        for name, value in row.items():
            known = types.get(name)
            # a short cut, because most values do not change a column's type: it makes `add` twice as fast
            if known is not None and (value is None or known is JSON or (known is TEXT and type(value) is str)):
                continue
            if known is None:
                if self._are_named:
                    continue
                if len(types) >= MAX_COLUMNS:
                    raise TooManyColumnsError(MAX_COLUMNS)
                known = EMPTY
            types[name] = _JOINED[known, type_of(value)]

    def __iter__(self) -> Iterator[tuple[str, Type]]:
        return iter(self._types.items())

    def __len__(self) -> int:
        return len(self._types)

    @property
    def names(self) -> list[str]:
        return list(self._types)


# --- values as their columns have them


def as_date(value: Any) -> date:
    return date.fromisoformat(value) if isinstance(value, str) else value


def as_datetime(value: Any) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def as_text(value: Any) -> str:
    """Text stays as it is, dates become ISO 8601, and all other values become JSON."""
    if isinstance(value, str):
        return value
    return value.isoformat() if isinstance(value, date) else as_json(value).decode()


def _as_json_text(value: Any) -> str:
    return as_json(value).decode()


_READ: dict[ColumnKind, Callable[[Any], Any]] = {
    ColumnKind.DATE: as_date,
    ColumnKind.DATETIME: as_datetime,
    ColumnKind.INSTANT: as_datetime,
    ColumnKind.TEXT: as_text,
    ColumnKind.JSON: _as_json_text,
}


def reader(column: Type) -> Callable[[Any], Any] | None:
    """A function that converts a value that is not null to the column's type; `None` if no conversion is needed."""
    read = _READ.get(column.kind)
    if read is None or not column.is_list:
        return read
    return lambda values: [None if value is None else read(value) for value in values]
