"""Chooses the index for a query, the intervals of its keys to walk over, and the direction."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from bson.regex import Regex

from embedded.mongo.errors import Code, MongoError
from embedded.mongo.index import ID_INDEX, Index
from embedded.mongo.keys import AFTER, NUMBER, encode, equal, inverted, is_nan, rank
from embedded.mongo.match import compile_condition, is_operators
from embedded.mongo.paths import Document

Sort = Sequence[tuple[str, int]]
_RANGES = frozenset({"$gt", "$gte", "$lt", "$lte"})


def checked_sort(operand: Document) -> Sort:
    """The sort as pairs of a field and 1 or -1, the most significant field first. Raises `MongoError`."""
    for name, direction in operand.items():
        if isinstance(direction, bool) or direction not in (1, -1):
            raise MongoError(
                Code.Location15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)"
            )
        if name.startswith("$"):
            raise MongoError(Code.Location16410, f"FieldPath field names may not start with '$'. '{name}'")
    return [(name, int(direction)) for name, direction in operand.items()]


class Interval(NamedTuple):
    """Keys from `low` up to, not including, `high`."""

    low: bytes
    high: bytes


EVERYTHING = Interval(b"", AFTER)


@dataclass(frozen=True)
class QueryPlan:
    """How to walk over documents. Without an index: over all documents, in the order in which they were inserted."""

    index: Index | None = None
    intervals: Sequence[Interval] = (EVERYTHING,)
    descending: bool = False
    #: Whether the walk is in the order of the requested sort.
    is_sorted: bool = False
    #: Whether the walk visits exactly the matching documents, each once.
    is_exact: bool = False
    score: float = 0.0


@dataclass
class IndexConditions:
    """By field: the conditions of a filter that an index can answer. Every match fulfils all of them."""

    equal: dict[str, Any] = field(default_factory=dict)
    among: dict[str, list[Any]] = field(default_factory=dict)
    ranges: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    #: Alternatives: each is a list of limits, and a match must be within the limits of at least one.
    either: dict[str, list[list[tuple[str, Any]]]] = field(default_factory=dict)
    #: Further fields that must exist.
    existing: set[str] = field(default_factory=set)
    #: Whether the filter has no other conditions.
    is_complete: bool = True

    @classmethod
    def of(cls, query: Document) -> IndexConditions:
        conditions = cls()
        conditions._read(query)
        return conditions

    def _read(self, query: Document) -> None:
        for name, operand in query.items():
            if name == "$and":
                for branch in operand:
                    self._read(branch)
            elif name == "$or" and (found := _ranges_of_one_field(operand)) and found[0] not in self.either:
                self.either[found[0]] = found[1]
            elif name.startswith("$"):
                self.is_complete = False
            elif is_operators(operand):
                for operator, value in operand.items():
                    self._read_operator(name, operator, value)
            else:
                self._read_operator(name, "$eq", operand)

    def _read_operator(self, name: str, operator: str, value: Any) -> None:
        if operator == "$eq" and _is_point(value) and name not in self.equal:
            self.equal[name] = value
        elif operator == "$in" and all(_is_point(item) for item in value) and name not in self.among:
            self.among[name] = value
        elif operator in _RANGES and _is_point(value) and value is not None and not is_nan(value):
            self.ranges.setdefault(name, []).append((operator, value))
        else:
            self.is_complete = False
            if operator == "$exists" and value:
                self.existing.add(name)

    def imply(self, name: str, operand: Any) -> bool:
        """Whether every match also fulfils `{name: operand}`; `False` if this is not certain."""
        if operand == {"$exists": True} and self.need_a_value(name):
            return True
        test = compile_condition(operand)
        # not for null, which also matches a missing field
        if name in self.equal:
            return self.equal[name] is not None and test([self.equal[name]])
        if name in self.among:
            return all(value is not None and test([value]) for value in self.among[name])
        return is_operators(operand) and all(
            any(operator == own and equal(value, limit) for own, limit in self.ranges.get(name, ()))
            for operator, value in operand.items()
        )

    def need_a_value(self, name: str) -> bool:
        if name in self.equal:
            return self.equal[name] is not None
        if name in self.among:
            return None not in self.among[name]
        return name in self.ranges or name in self.either or name in self.existing


def _ranges_of_one_field(branches: Sequence[Document]) -> tuple[str, list[list[tuple[str, Any]]]] | None:
    """The field, and its ranges in each branch of an `$or`; `None` if the branches have any other condition."""
    read = [IndexConditions.of(branch) for branch in branches]
    fields = {name for one in read for name in one.ranges}
    if len(fields) != 1 or not all(one.is_complete and one.ranges for one in read):
        return None
    if any(one.equal or one.among or one.either or one.existing for one in read):
        return None
    (name,) = fields
    return name, [one.ranges[name] for one in read]


def _is_point(value: Any) -> bool:
    """Whether the index has the value as one key. Arrays are not: only their elements are indexed."""
    return not isinstance(value, (list, Regex))


def choose(indexes: Iterable[Index], query: Document, sort: Sort = ()) -> QueryPlan:
    """The best plan."""
    indexes, conditions = list(indexes), IndexConditions.of(query)
    if "_id" in conditions.equal:
        # one document at most, whatever the other conditions are: most commands ask for one, of many indexes
        indexes = [index for index in indexes if index.spec.name == ID_INDEX] or indexes
    # an index is useful only if its first field is in the query or in the sort
    asked = (conditions.equal, conditions.among, conditions.ranges, conditions.either)
    names = {*chain.from_iterable(asked), *(name for name, _ in sort)}
    useful = (index for index in indexes if index.spec.key[0][0] in names)
    plans = [_plan(index, conditions, sort) for index in useful if _holds_all_matches(index, conditions)]
    best = max(plans, key=lambda plan: plan.score, default=QueryPlan())
    return best if best.score else QueryPlan(is_exact=not query)


def _holds_all_matches(index: Index, conditions: IndexConditions) -> bool:
    if index.spec.sparse:
        return any(conditions.need_a_value(name) for name, _ in index.spec.key)
    return all(conditions.imply(name, operand) for name, operand in (index.spec.partial or {}).items())


def _plan(index: Index, conditions: IndexConditions, sort: Sort) -> QueryPlan:
    key, prefix, used = index.spec.key, b"", 0
    while used < len(key) and key[used][0] in conditions.equal:
        prefix += _encoded(conditions.equal[key[used][0]], key[used][1])
        used += 1
    intervals, consumed = [Interval(prefix, prefix + AFTER)], {name for name, _ in key[:used]}
    score = 2.0 * used + (100 if used == len(key) and (index.spec.unique or index.spec.name == ID_INDEX) else 0)
    if (bounds := _bounds(index, prefix, used, conditions)) is not None:
        intervals, covered = bounds
        consumed |= covered
        # a list of ids is best: each id leads to one document, whatever the other conditions are
        score += 50 if index.spec.name == ID_INDEX and "_id" in conditions.among else 1
    descending = _direction(index, used, sort)
    return QueryPlan(
        index,
        intervals,
        descending=bool(descending),
        is_sorted=descending is not None,
        is_exact=_is_exact(index, conditions, consumed),
        score=score + (1.5 if sort and descending is not None else 0),
    )


def _is_exact(index: Index, conditions: IndexConditions, consumed: set[str]) -> bool:
    """Whether the keys alone decide which documents match. They do not for arrays, for two conditions on one field,
    or for null. An exception is a single null in a top-level field: there, a missing field has the same key and
    matches.
    """
    constrained = [*conditions.equal, *conditions.among, *conditions.ranges, *conditions.either]
    return (
        conditions.is_complete
        and not index.multikey
        and len(constrained) == len(set(constrained))
        and set(constrained) == consumed
        and not any(value is None and "." in name for name, value in conditions.equal.items())
        and not any(None in values for values in conditions.among.values())
    )


def _encoded(value: Any, direction: int) -> bytes:
    return encode(value) if direction > 0 else inverted(encode(value))


def _bounds(
    index: Index, prefix: bytes, used: int, conditions: IndexConditions
) -> tuple[list[Interval], set[str]] | None:
    """The intervals for the fields after the equalities, and the names of the fields whose conditions these intervals
    cover completely. Each value of a list is combined with the intervals of the next field.
    """
    if used == len(index.spec.key):
        return None
    name, direction = index.spec.key[used]
    if name in conditions.among:
        starts = sorted({prefix + _encoded(value, direction) for value in conditions.among[name]})
        behind, covered = _bounds(index, b"", used + 1, conditions) or ([EVERYTHING], set())
        return [Interval(start + low, start + high) for start in starts for low, high in behind], {name} | covered
    alternatives = [conditions.ranges[name]] if name in conditions.ranges else conditions.either.get(name)
    if alternatives is None:
        return None
    intervals, is_tight = list[Interval](), True
    for limits in alternatives:
        # in an array, one element may fulfil one limit, and another element the other limit: so only one is used
        chosen = limits[:1] if index.multikey >> used & 1 else limits
        interval, same_type = _range(chosen, direction)
        intervals.append(Interval(prefix + interval.low, prefix + interval.high))
        is_tight &= same_type and len(chosen) == len(limits)
    return _united(intervals), {name} if is_tight else set()


def _united(intervals: Iterable[Interval]) -> list[Interval]:
    """The intervals in order, with overlapping ones joined, so that no key is in two of them."""
    united: list[Interval] = []
    for low, high in sorted(intervals):
        if united and low <= united[-1].high:
            before = united.pop()
            united.append(Interval(before.low, max(before.high, high)))
        else:
            united.append(Interval(low, high))
    return united


def _range(limits: Sequence[tuple[str, Any]], direction: int) -> tuple[Interval, bool]:
    """The interval for the limits, within the type of the first limit, and whether all limits have this type. Limits
    of another type, which no document can match, are left to the filter.
    """
    place = rank(limits[0][1])
    type_byte = bytes((place,)) if direction > 0 else inverted(bytes((place,)))
    low, high = type_byte, bytes((type_byte[0] + 1,))
    if place == NUMBER and direction > 0:  # NaN sorts before all numbers, and is not less than any
        low = encode(-math.inf)
    elif place == NUMBER:
        high = _encoded(-math.inf, direction) + AFTER
    same_type = [(operator, value) for operator, value in limits if rank(value) == place]
    for operator, value in same_type:
        key = _encoded(value, direction)
        # in a descending field, greater values come first
        if (operator in ("$gt", "$gte")) == (direction > 0):
            low = max(low, key + AFTER if operator in ("$gt", "$lt") else key)
        else:
            high = min(high, key if operator in ("$gt", "$lt") else key + AFTER)
    return Interval(low, high), len(same_type) == len(limits)


def _direction(index: Index, used: int, sort: Sort) -> bool | None:
    """Whether to walk backwards for the sort; `None` if the index does not give this order."""
    key = index.spec.key
    # not for a field with arrays: the walk visits an array by one of its elements, but the sort compares another one
    same = {name for place, (name, _) in enumerate(key[:used]) if not index.multikey >> place & 1}
    wanted = [(name, direction) for name, direction in sort if name not in same]
    if index.multikey >> used:
        return None
    rest = key[used : used + len(wanted)]
    if [name for name, _ in rest] != [name for name, _ in wanted]:
        return None
    turns = {own != asked for (_, own), (_, asked) in zip(rest, wanted, strict=True)}
    return turns == {True} if len(turns) <= 1 else None
