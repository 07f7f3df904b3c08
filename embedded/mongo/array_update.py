"""The update operators on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bson.regex import Regex

from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.keys import equal
from embedded.mongo.match import LOGICAL, ValueTest, compile_condition, compile_filter, is_operators
from embedded.mongo.paths import MISSING

ArrayChange = Callable[[Any], Any]


def _push(name: str, operand: Any) -> ArrayChange:
    new, slice_to = _each(operand), None
    if new is None:
        new = [operand]
    else:
        slice_to = _checked_push_clauses(operand).get("$slice")

    def change(current: Any) -> list[Any]:
        if current is not MISSING and not isinstance(current, list):
            raise MongoError(
                Code.BadValue, f"The field '{name}' must be an array but is of type {type(current).__name__}"
            )
        return _sliced([*_members(current), *new], slice_to)

    return change


def _members(array: Any) -> list[Any]:
    return [] if array is MISSING else list(array)


def _each(operand: Any) -> list[Any] | None:
    """The values of `{$each: […]}`; `None` if the operand is itself the value."""
    if not isinstance(operand, dict) or "$each" not in operand:
        return None
    if not isinstance(operand["$each"], list):
        raise MongoError(Code.TypeMismatch, "The argument to $each must be an array")
    return operand["$each"]


def _checked_push_clauses(operand: dict[str, Any]) -> dict[str, Any]:
    for clause in operand:
        if clause in ("$sort", "$position"):
            raise not_implemented(f"{clause} in $push")
        if clause not in ("$each", "$slice"):
            raise MongoError(Code.BadValue, f"Unrecognized clause in $push: {clause}")
    if type(operand.get("$slice", 0)) is not int:
        raise MongoError(Code.BadValue, "The value for $slice must be an integer value")
    return operand


def _sliced(array: list[Any], slice_to: int | None) -> list[Any]:
    """The first `slice_to`, or with a negative number the last."""
    if slice_to is None:
        return array
    return array[:slice_to] if slice_to >= 0 else array[slice_to:]


def _add_to_set(name: str, operand: Any) -> ArrayChange:
    each = _each(operand)
    new = [operand] if each is None else each

    def change(current: Any) -> list[Any]:
        if current is not MISSING and not isinstance(current, list):
            raise MongoError(
                Code.BadValue,
                "Cannot apply $addToSet to non-array field. "
                f"Field named '{name}' has non-array type {type(current).__name__}",
            )
        members = _members(current)
        for value in new:
            if not any(equal(value, member) for member in members):
                members.append(value)
        return members

    return change


def _pull(_: str, operand: Any) -> ArrayChange:
    goes = _pull_test(operand)

    def change(current: Any) -> Any:
        if current is MISSING:
            return MISSING
        if not isinstance(current, list):
            raise MongoError(Code.BadValue, "Cannot apply $pull to a non-array value")
        return [element for element in current if not goes(element)]

    return change


def _pull_test(operand: Any) -> ValueTest:
    if isinstance(operand, dict):
        return _element_test(operand)
    if isinstance(operand, Regex):
        matches = compile_condition(operand)
        return lambda element: matches([element])
    return lambda element: equal(element, operand)


def _element_test(condition: dict[str, Any]) -> ValueTest:
    """A condition on one array element: operators on itself, or a filter if it is a document."""
    if is_operators(condition) and next(iter(condition)) not in LOGICAL:
        values_test = compile_condition(condition)
        return lambda element: values_test([element])
    matches = compile_filter(condition)
    return lambda element: isinstance(element, dict) and matches(element)


ARRAY_MODIFIERS: Mapping[str, Callable[[str, Any], ArrayChange]] = {
    "$push": _push,
    "$addToSet": _add_to_set,
    "$pull": _pull,
}
