"""Filters: a query document compiled into a predicate on documents."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from bson import Int64, ObjectId
from bson.regex import Regex

from embedded.mongo import keys
from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.keys import encode, equal, rank, sort_key
from embedded.mongo.paths import MISSING, Document, values_at

Predicate = Callable[[Document], bool]
#: Looks at all the values that a path leads to.
ValuesTest = Callable[[list[Any]], bool]
ValueTest = Callable[[Any], bool]

_REGEX_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "u": re.UNICODE}
_NUMBERS = (int, float, Int64)
_INT32 = range(-(2**31), 2**31)


def compile_filter(query: Document) -> Predicate:
    """Raises `BadValue` for what is no filter; `values_at` says what a path leads to."""
    tests = [_clause(name, operand) for name, operand in query.items() if name != "$comment"]
    if len(tests) == 1:
        return tests[0]
    return lambda document: all(test(document) for test in tests)


def _clause(name: str, operand: Any) -> Predicate:
    if name in LOGICAL:
        return LOGICAL[name](_branches(name, operand))
    if name.startswith("$"):
        raise MongoError(Code.BadValue, f"unknown top level operator: {name}")
    path = tuple(name.split("."))
    test = compile_condition(operand)
    if len(path) == 1:
        return lambda document: test([document.get(name, MISSING)])
    return lambda document: test(values_at(document, path))


def _branches(name: str, operand: Any) -> list[Predicate]:
    if not isinstance(operand, list):
        raise MongoError(Code.BadValue, f"{name} must be an array")
    if not operand:
        raise MongoError(Code.BadValue, f"{name} must be a nonempty array")
    if not all(isinstance(branch, dict) for branch in operand):
        raise MongoError(Code.BadValue, f"{name} argument's entries must be objects")
    return [compile_filter(branch) for branch in operand]


#: What joins whole filters.
LOGICAL: Mapping[str, Callable[[list[Predicate]], Predicate]] = {
    "$and": lambda tests: lambda document: all(test(document) for test in tests),
    "$or": lambda tests: lambda document: any(test(document) for test in tests),
    "$nor": lambda tests: lambda document: not any(test(document) for test in tests),
}


def is_operators(operand: Any) -> bool:
    """Whether it is `{$op: …}` and not a value to be equal to."""
    return isinstance(operand, dict) and next(iter(operand), "").startswith("$")


def compile_condition(operand: Any) -> ValuesTest:
    """What stands behind a field's name: a value, or operators that must all hold."""
    if not is_operators(operand):
        return _equals(operand)
    if "$options" in operand and "$regex" not in operand:
        raise MongoError(Code.Location51075, "$options needs a $regex")
    tests = [_operator(name, value, operand) for name, value in operand.items() if name != "$options"]
    if len(tests) == 1:
        return tests[0]
    return lambda values: all(test(values) for test in tests)


def _operator(name: str, operand: Any, siblings: Document) -> ValuesTest:
    if name == "$regex":
        return _regex(operand, siblings.get("$options"))
    if name not in OPERATORS:
        raise MongoError(Code.BadValue, f"unknown operator: {name}")
    return OPERATORS[name](operand)


def _any_value(test: ValueTest) -> ValuesTest:
    """A test of one value holds for an array if it holds for the array or for one of its elements."""

    def any_value(values: list[Any]) -> bool:
        for value in values:
            if test(value) or (isinstance(value, list) and any(test(element) for element in value)):
                return True
        return False

    return any_value


def _none_of(test: ValuesTest) -> ValuesTest:
    return lambda values: not test(values)


def _equals(operand: Any) -> ValuesTest:
    if isinstance(operand, Regex):
        return _regex(operand, None)
    if operand is None:
        return _any_value(lambda value: value is None or value is MISSING)
    kind = type(operand)
    if kind in (str, ObjectId, bool):
        return _any_value(lambda value: type(value) is kind and value == operand)
    if kind in _NUMBERS and operand == operand:  # noqa: PLR0124 - not for NaN
        return _any_value(lambda value: type(value) in _NUMBERS and value == operand)
    place, key = rank(operand), sort_key(operand)
    return _any_value(lambda value: value is not MISSING and rank(value) == place and sort_key(value) == key)


def _no_regex(name: str, operand: Any) -> Any:
    if isinstance(operand, Regex):
        raise MongoError(Code.BadValue, f"Can't have regex as arg to {name}.")
    return operand


def _compares(compare: Callable[[Any, Any], bool]) -> Callable[[Any], ValuesTest]:
    """Comparisons see only values of the operand's own kind of type ("type bracketing")."""

    def build(operand: Any) -> ValuesTest:
        place, key = rank(_no_regex("a comparison", operand)), sort_key(operand)
        if operand is None:
            return _any_value(lambda value: (value is None or value is MISSING) and compare(key, key))
        return _any_value(
            lambda value: value is not MISSING and rank(value) == place and compare(sort_key(value), key)
        )

    return build


def _in(operand: Any) -> ValuesTest:
    if not isinstance(operand, list):
        raise MongoError(Code.BadValue, "$in needs an array")
    if any(is_operators(item) for item in operand):
        raise MongoError(Code.BadValue, "cannot nest $ under $in")
    others = [_equals(item) for item in operand if item is None or isinstance(item, Regex)]
    wanted = {encode(item) for item in operand if item is not None and not isinstance(item, Regex)}
    listed = _any_value(lambda value: value is not MISSING and encode(value) in wanted)
    return lambda values: listed(values) or any(test(values) for test in others)


def _not(operand: Any) -> ValuesTest:
    if isinstance(operand, Regex):
        return _none_of(_regex(operand, None))
    if not is_operators(operand):
        raise MongoError(Code.BadValue, "$not needs a regex or a document")
    return _none_of(compile_condition(operand))


def _exists(operand: Any) -> ValuesTest:
    wanted = bool(operand)
    return lambda values: any(value is not MISSING for value in values) == wanted


def _regex(operand: Any, options: Any) -> ValuesTest:
    pattern = _pattern(operand, options)
    return _any_value(lambda value: isinstance(value, str) and pattern.search(value) is not None)


def _pattern(operand: Any, options: Any) -> re.Pattern[str]:
    if not isinstance(operand, (str, Regex)) or not isinstance(options, str | None):
        raise MongoError(Code.BadValue, "$regex has to be a string")
    source, flags = (operand.pattern, operand.flags) if isinstance(operand, Regex) else (operand, 0)
    for letter in options or "":
        if letter not in _REGEX_FLAGS:
            raise MongoError(Code.Location51108, f"invalid flag in regex options: {letter}")
        flags |= _REGEX_FLAGS[letter]
    try:
        return re.compile(source, flags)
    except (re.error, TypeError, OverflowError) as error:
        raise MongoError(Code.Location51091, f"Regular expression is invalid: {error}") from error


def _size(operand: Any) -> ValuesTest:
    if isinstance(operand, bool) or not isinstance(operand, (int, float)) or operand != int(operand):
        raise MongoError(Code.FailedToParse, f"Failed to parse $size. Expected an integer, found: {operand!r}")
    if operand < 0:
        raise MongoError(Code.BadValue, "Failed to parse $size. Expected a non-negative number")
    return lambda values: any(isinstance(value, list) and len(value) == operand for value in values)


def _elem_match(operand: Any) -> ValuesTest:
    if not isinstance(operand, dict):
        raise MongoError(Code.BadValue, "$elemMatch needs an Object")
    test = element_test(operand)
    return lambda values: any(isinstance(value, list) and any(map(test, value)) for value in values)


def element_test(condition: Document) -> ValueTest:
    """A condition on one array element: operators on itself, or a filter if it is a document."""
    if is_operators(condition) and next(iter(condition)) not in LOGICAL:
        values_test = compile_condition(condition)
        return lambda element: values_test([element])
    matches = compile_filter(condition)
    return lambda element: isinstance(element, dict) and matches(element)


def _all(operand: Any) -> ValuesTest:
    if not isinstance(operand, list):
        raise MongoError(Code.BadValue, "$all needs an array")
    if any(is_operators(item) for item in operand):
        raise not_implemented("$all of operators")
    tests = [_equals(item) for item in operand]
    return lambda values: bool(tests) and all(test(values) for test in tests)


#: `$type` by alias and by number.
TYPES: Mapping[str, tuple[int, ValueTest]] = {
    "double": (1, lambda value: isinstance(value, float)),
    "string": (2, lambda value: isinstance(value, str)),
    "object": (3, lambda value: isinstance(value, dict)),
    "array": (4, lambda value: isinstance(value, list)),
    "binData": (5, lambda value: rank(value) == keys.BINARY),
    "objectId": (7, lambda value: isinstance(value, ObjectId)),
    "bool": (8, lambda value: isinstance(value, bool)),
    "date": (9, lambda value: rank(value) == keys.DATE),
    "null": (10, lambda value: value is None),
    "int": (16, lambda value: type(value) is int and value in _INT32),
    "long": (18, lambda value: isinstance(value, Int64) or (type(value) is int and value not in _INT32)),
    "number": (0, lambda value: rank(value) == keys.NUMBER),
}


def _type(operand: Any) -> ValuesTest:
    tests = [_type_test(item) for item in (operand if isinstance(operand, list) else [operand])]
    if not tests:
        raise MongoError(Code.FailedToParse, "a must match at least one type")
    return _any_value(lambda value: value is not MISSING and any(test(value) for test in tests))


def _type_test(wanted: Any) -> ValueTest:
    for alias, (number, test) in TYPES.items():
        if wanted == alias or (number and equal(wanted, number)):
            return test
    raise MongoError(Code.BadValue, f"Unknown or unsupported type: {wanted!r}")


#: What may stand in a field's condition, beside `$regex` and its `$options`.
OPERATORS: Mapping[str, Callable[[Any], ValuesTest]] = {
    "$eq": lambda operand: _equals(_no_regex("$eq", operand)),
    "$ne": lambda operand: _none_of(_equals(_no_regex("$ne", operand))),
    "$gt": _compares(operator.gt),
    "$gte": _compares(operator.ge),
    "$lt": _compares(operator.lt),
    "$lte": _compares(operator.le),
    "$in": _in,
    "$nin": lambda operand: _none_of(_in(operand)),
    "$not": _not,
    "$exists": _exists,
    "$size": _size,
    "$elemMatch": _elem_match,
    "$all": _all,
    "$type": _type,
}
