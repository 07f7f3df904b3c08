"""Dotted paths through documents and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

Document = dict[str, Any]
Path = tuple[str, ...]


class Absent(Enum):
    """Results of a path that are not BSON values."""

    MISSING = "no such field"
    #: The value of `[]` for indexes and sorts: less than null, like MongoDB's `undefined`.
    EMPTY_ARRAY = "no elements"


MISSING = Absent.MISSING
EMPTY_ARRAY = Absent.EMPTY_ARRAY


def values_at(value: Any, path: Path) -> list[Any]:
    """All values at `path`. An array before the end of the path is searched in each of its elements; a number in the
    path can also be an array index.

    An array at the end of the path is one value. The result is empty if an array on the way has no documents.
    """
    for depth, part in enumerate(path):
        if isinstance(value, dict):
            value = value.get(part, MISSING)
        elif isinstance(value, list):
            return _through_array(value, path[depth:])
        else:
            return [MISSING]
    return [value]


def _through_array(array: list[Any], path: Path) -> list[Any]:
    found: list[Any] = []
    if (position := array_index(path[0])) is not None and position < len(array):
        found += values_at(array[position], path[1:])
    for element in array:
        if isinstance(element, dict):
            found += values_at(element, path)
    return found


def elements_at(document: Document, path: Path) -> tuple[list[Any], bool]:
    """The values that indexes store and sorts compare, and whether there is an array. An array is replaced by its
    elements.
    """
    values = values_at(document, path) or [MISSING]
    if len(values) == 1 and not isinstance(values[0], list):
        return values, _crosses_array(document, path)
    flat: list[Any] = []
    for value in values:
        flat += (value or [EMPTY_ARRAY]) if isinstance(value, list) else [value]
    return flat, True


def _crosses_array(value: Any, path: Path) -> bool:
    for part in path[:-1]:
        value = value.get(part)
        if not isinstance(value, dict):
            return isinstance(value, list)
    return False


def array_index(part: str) -> int | None:
    return int(part) if part.isascii() and part.isdigit() else None


def is_prefix(shorter: Sequence[str], longer: Sequence[str]) -> bool:
    return tuple(longer[: len(shorter)]) == tuple(shorter)
