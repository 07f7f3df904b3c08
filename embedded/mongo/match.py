"""Filters: a query document is compiled into a predicate on documents."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from bson import Int64, ObjectId
from bson.regex import Regex

from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.keys import NUMBER, encode, is_nan, rank, sort_key
from embedded.mongo.paths import MISSING, Document, values_at

Predicate = Callable[[Document], bool]
#: A test of all values at a path.
ValuesTest = Callable[[list[Any]], bool]
ValueTest = Callable[[Any], bool]

_REGEX_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "u": re.UNICODE}
_NUMBERS = (int, float, Int64)


def compile_filter(query: Document) -> Predicate:
    """The predicate for a query. Raises `BadValue` if the query is invalid."""
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


#: The operators that join whole filters.
LOGICAL: Mapping[str, Callable[[list[Predicate]], Predicate]] = {
    "$and": lambda tests: lambda document: all(test(document) for test in tests),
    "$or": lambda tests: lambda document: any(test(document) for test in tests),
    "$nor": lambda tests: lambda document: not any(test(document) for test in tests),
}


def is_operators(operand: Any) -> bool:
    """Whether the operand is `{$op: …}`; otherwise it is a value to compare with."""
    return isinstance(operand, dict) and next(iter(operand), "").startswith("$")


def compile_condition(operand: Any) -> ValuesTest:
    """The test for a field's condition: a value, or operators that must all hold."""
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
    """Extend a test to arrays: it holds if `test` holds for the array itself, or for one of its elements."""

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
    if kind in _NUMBERS and not is_nan(operand):
        return _any_value(lambda value: type(value) in _NUMBERS and value == operand)
    place, key = rank(operand), sort_key(operand)
    return _any_value(lambda value: value is not MISSING and rank(value) == place and sort_key(value) == key)


def _no_regex(name: str, operand: Any) -> Any:
    if isinstance(operand, Regex):
        raise MongoError(Code.BadValue, f"Can't have regex as arg to {name}.")
    return operand


def _compares(compare: Callable[[Any, Any], bool]) -> Callable[[Any], ValuesTest]:
    """A comparison that holds only for values of the same kind of type as the operand ("type bracketing"). NaN is
    compared only with NaN.
    """

    def build(operand: Any) -> ValuesTest:
        place, key = rank(_no_regex("a comparison", operand)), sort_key(operand)
        if place == NUMBER and not is_nan(operand):
            # Python's comparisons with NaN are false, like MongoDB's
            return _any_value(lambda value: type(value) in _NUMBERS and compare(value, operand))
        if place == NUMBER:
            return _any_value(lambda value: is_nan(value) and compare(key, key))
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


def _exists(operand: Any) -> ValuesTest:
    wanted = bool(operand)
    return lambda values: any(value is not MISSING for value in values) == wanted


def _regex(operand: Any, options: Any) -> ValuesTest:
    pattern = _pattern(operand, options)
    return _any_value(lambda value: isinstance(value, str) and pattern.search(value) is not None)


def _pattern(operand: Any, options: Any) -> re.Pattern[str]:
    if not isinstance(operand, (str, Regex)) or not isinstance(options, str | None):
        raise MongoError(Code.BadValue, "$regex has to be a string")
    source, flags = (str(operand.pattern), operand.flags) if isinstance(operand, Regex) else (operand, 0)
    if "\0" in source or "\0" in (options or ""):
        raise MongoError(Code.BadValue, "Regular expression cannot contain an embedded null byte")
    for letter in options or "":
        if letter not in _REGEX_FLAGS:
            raise MongoError(Code.Location51108, f"invalid flag in regex options: {letter}")
        flags |= _REGEX_FLAGS[letter]
    if flags & re.VERBOSE:
        raise not_implemented("the regex option 'x'")
    try:
        return re.compile(_TOKEN.sub(_as_pcre, source), flags)
    except (re.error, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise MongoError(Code.Location51091, f"Regular expression is invalid: {error}") from error


#: An escape or a character class of a regular expression. All other syntax means the same in PCRE and in Python.
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
#: Escapes for word characters, digits and spaces, for their opposites, and for word boundaries.
_KINDS = re.compile(r"\\[wWdDsSbB]")
#: Syntax with another meaning in Python.
_NOT_PCRE = re.compile(r"\\[ZNvuU]|\[[:.=]")


def _as_pcre(token: re.Match[str]) -> str:
    """A token of a regular expression with the meaning of PCRE, which MongoDB uses: only ASCII has word characters,
    digits and spaces, but letters of any script ignore case.
    """
    text = token[0]
    if _NOT_PCRE.search(text if text[0] == "\\" else text[1:]):
        raise not_implemented(f"'{text}' in a regular expression")
    # without the empty look-ahead, Python would search for the first character with the flags outside of the group
    return f"(?a:(?=){text})" if _KINDS.search(text) else text


#: The operators of a field's condition, except `$regex` and its `$options`.
OPERATORS: Mapping[str, Callable[[Any], ValuesTest]] = {
    "$eq": lambda operand: _equals(_no_regex("$eq", operand)),
    "$ne": lambda operand: _none_of(_equals(_no_regex("$ne", operand))),
    "$gt": _compares(operator.gt),
    "$gte": _compares(operator.ge),
    "$lt": _compares(operator.lt),
    "$lte": _compares(operator.le),
    "$in": _in,
    "$nin": lambda operand: _none_of(_in(operand)),
    "$exists": _exists,
}
