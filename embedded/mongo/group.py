"""`$group`: its keys and accumulators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.expression import Expression, compile_expression
from embedded.mongo.keys import NUMBER, encode, rank, sort_key
from embedded.mongo.paths import MISSING, Document


class Accumulator(ABC):
    """One output field of one group."""

    @abstractmethod
    def add(self, value: Any) -> None:
        """Take one document's value, or `MISSING`."""

    @abstractmethod
    def result(self) -> Any: ...


class _Sum(Accumulator):
    """What is no number counts as nothing."""

    def __init__(self) -> None:
        self._total: Any = 0

    def add(self, value: Any) -> None:
        if rank(value) == NUMBER:
            self._total += value

    def result(self) -> Any:
        return self._total


class _Average(_Sum):
    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def add(self, value: Any) -> None:
        super().add(value)
        self._count += rank(value) == NUMBER

    def result(self) -> Any:
        return self._total / self._count if self._count else None


class _Extreme(Accumulator):
    """Null and missing do not take part."""

    def __init__(self, *, smallest: bool) -> None:
        self._smallest = smallest
        self._best: Any = None

    def add(self, value: Any) -> None:
        if value is None or value is MISSING:
            return
        if self._best is None or (sort_key(value) < sort_key(self._best)) == self._smallest:
            self._best = value

    def result(self) -> Any:
        return self._best


class _First(Accumulator):
    """Missing is null."""

    def __init__(self) -> None:
        self._value: Any = MISSING

    def add(self, value: Any) -> None:
        if self._value is MISSING:
            self._value = None if value is MISSING else value

    def result(self) -> Any:
        return self._value


class _Last(_First):
    def add(self, value: Any) -> None:
        self._value = None if value is MISSING else value


class _Push(Accumulator):
    """Missing is left out."""

    def __init__(self) -> None:
        self._values: list[Any] = []

    def add(self, value: Any) -> None:
        if value is not MISSING:
            self._values.append(value)

    def result(self) -> Any:
        return self._values


class _AddToSet(Accumulator):
    def __init__(self) -> None:
        self._values: dict[bytes, Any] = {}

    def add(self, value: Any) -> None:
        if value is not MISSING:
            self._values.setdefault(encode(value), value)

    def result(self) -> Any:
        return list(self._values.values())


#: The accumulators of `$group`.
ACCUMULATORS: Mapping[str, Callable[[], Accumulator]] = {
    "$sum": _Sum,
    "$avg": _Average,
    "$min": lambda: _Extreme(smallest=True),
    "$max": lambda: _Extreme(smallest=False),
    "$first": _First,
    "$last": _Last,
    "$push": _Push,
    "$addToSet": _AddToSet,
}


class Groups:
    """The groups of one run."""

    def __init__(self, identity: Expression, fields: dict[str, tuple[str, Expression]]) -> None:
        self._identity = identity
        self._fields = fields
        self._groups: dict[bytes, tuple[Any, list[Accumulator]]] = {}

    def add(self, document: Document) -> None:
        value = self._identity(document)
        value = None if value is MISSING else value
        key = encode(value)
        if key not in self._groups:
            self._groups[key] = value, [ACCUMULATORS[name]() for name, _ in self._fields.values()]
        for accumulator, (_, expression) in zip(self._groups[key][1], self._fields.values(), strict=True):
            accumulator.add(expression(document))

    def results(self) -> Iterator[Document]:
        for value, accumulators in self._groups.values():
            yield {"_id": value} | {
                name: accumulator.result() for name, accumulator in zip(self._fields, accumulators, strict=True)
            }


def compile_group(operand: Any) -> Callable[[], Groups]:
    """Raises for a missing `_id`, unknown accumulators and expressions."""
    if not isinstance(operand, dict):
        raise MongoError(Code.Location15947, "a group's fields must be specified in an object")
    if "_id" not in operand:
        raise MongoError(Code.Location15955, "a group specification must include an _id")
    identity = compile_expression(operand["_id"])
    fields = {name: _accumulator(name, item) for name, item in operand.items() if name != "_id"}
    return lambda: Groups(identity, fields)


def _accumulator(field: str, operand: Any) -> tuple[str, Expression]:
    if not isinstance(operand, dict) or not operand:
        raise MongoError(Code.Location40234, f"The field '{field}' must be an accumulator object")
    if len(operand) != 1:
        raise MongoError(Code.Location40238, f"The field '{field}' must specify one accumulator")
    name, expression = next(iter(operand.items()))
    if name not in ACCUMULATORS:
        raise MongoError(Code.Location15952, f"unknown group operator '{name}'")
    if isinstance(expression, list):
        raise not_implemented(f"{name} of an array")
    return name, compile_expression(expression)
