"""Updates: an update document is compiled into changes of a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from bson import Int64, ObjectId
from bson.regex import Regex

from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.keys import NUMBER, equal, rank, sort_key
from embedded.mongo.match import is_operators
from embedded.mongo.paths import MISSING, Document, Path, array_index, is_prefix

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
    """The values of `{$each: […]}`; `None` if the operand is not `$each`, but the value itself."""
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
    """The first `slice_to` elements, or the last elements if `slice_to` is negative."""
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


ARRAY_MODIFIERS: Mapping[str, Callable[[str, Any], ArrayChange]] = {
    "$push": _push,
    "$addToSet": _add_to_set,
}


#: Returns the new value at a path, given the old value (or `MISSING`). If it returns `MISSING`, the field is removed.
Change = Callable[[Any], Any]


class FieldChange(NamedTuple):
    path: Path
    modifier: str
    change: Change


class Update:
    """An update: the replacement of a document, or changes at paths. Raises if `update` is not a valid update."""

    def __init__(self, update: Any) -> None:
        if isinstance(update, list):
            raise not_implemented("an aggregation pipeline as update")
        self.is_replacement = not is_operators(update)
        self._replacement: Document = _checked_replacement(update) if self.is_replacement else {}
        self._changes: list[FieldChange] = [] if self.is_replacement else _changes(update)

    def apply(self, document: Document, *, inserting: bool = False) -> Document:
        """The new document. May change `document` in place. Raises `ImmutableField` if its `_id` would change."""
        identity = document.get("_id", MISSING)
        if self.is_replacement:
            document = {"_id": identity, **self._replacement} if identity is not MISSING else dict(self._replacement)
        for path, modifier, change in self._changes:
            if inserting or modifier != "$setOnInsert":
                _change_at(document, path, change, create=modifier != "$unset")
        if identity is not MISSING and not equal(document.get("_id", MISSING), identity):
            raise MongoError(
                Code.ImmutableField,
                "Performing an update on the path '_id' would modify the immutable field '_id'",
            )
        return document

    def new_document(self, query: Document) -> Document:
        """The document that an upsert inserts if `query` found nothing: it is made from the query's equalities, and
        then updated.
        """
        seed: Document = {}
        for path, value in _equalities(query).items():
            if not self.is_replacement or path == ("_id",):
                _change_at(seed, path, _assign("", value), create=True)
        document = self.apply(seed, inserting=True)
        return (
            {"_id": document.pop("_id", MISSING), **document}
            if "_id" in document
            else {"_id": ObjectId(), **document}
        )


def _checked_replacement(update: Any) -> Document:
    if not isinstance(update, dict):
        raise MongoError(Code.FailedToParse, "Update argument must be either an object or an array")
    for name in update:
        if name.startswith("$"):
            raise MongoError(
                Code.DollarPrefixedFieldName,
                f"The dollar ($) prefixed field '{name}' in '{name}' is not allowed in a replacement document",
            )
    return update


def _changes(update: Document) -> list[FieldChange]:
    """The changes in the order in which MongoDB applies them: by path, with numbers in numerical order."""
    changes = [change for modifier, operand in update.items() for change in _modifier_changes(modifier, operand)]
    changes.sort(
        key=lambda change: [(array_index(part) is None, array_index(part) or 0, part) for part in change.path]
    )
    for one, other in pairwise(changes):
        if is_prefix(one.path, other.path):
            name = ".".join(other.path)
            raise MongoError(
                Code.ConflictingUpdateOperators, f"Updating the path '{name}' would create a conflict at '{name}'"
            )
    return changes


def _modifier_changes(modifier: str, operand: Any) -> Iterable[FieldChange]:
    if modifier in _KNOWN_ELSEWHERE:
        raise not_implemented(f"the update operator {modifier}")
    if modifier not in MODIFIERS:
        raise MongoError(
            Code.FailedToParse,
            f"Unknown modifier: {modifier}. Expected a valid update modifier or pipeline-style update specified as "
            "an array",
        )
    if not isinstance(operand, dict):
        raise MongoError(
            Code.FailedToParse,
            f"Modifiers operate on fields but we found type {type(operand).__name__} instead. For example: "
            f"{{$mod: {{<field>: ...}}}} not {{{modifier}: {operand!r}}}",
        )
    for name, value in operand.items():
        yield FieldChange(_checked_path(name), modifier, MODIFIERS[modifier](name, value))


def _checked_path(name: str) -> Path:
    path = tuple(name.split("."))
    for part in path:
        if not part:
            raise MongoError(
                Code.EmptyFieldName, f"The update path '{name}' contains an empty field name, which is not allowed."
            )
        if part == "$" or part.startswith("$["):
            raise not_implemented(f"the positional operator in '{name}'")
        if part.startswith("$"):
            raise MongoError(
                Code.DollarPrefixedFieldName,
                f"The dollar ($) prefixed field '{part}' in '{name}' is not valid for storage.",
            )
    return path


def _change_at(container: Any, path: Path, change: Change, *, create: bool) -> None:
    """Make a change at a path. With `create`, missing documents on the way are made."""
    for depth, part in enumerate(path[:-1]):
        below = _get(container, part)
        if below is MISSING:
            if not create:
                return
            below = {}
            _put(container, part, below)
        if not isinstance(below, (dict, list)) or (isinstance(below, list) and array_index(path[depth + 1]) is None):
            if not create:
                return
            raise MongoError(
                Code.PathNotViable, f"Cannot create field '{path[depth + 1]}' in element {{{part}: {below!r}}}"
            )
        container = below
    current = _get(container, path[-1])
    new = change(current)
    if new is MISSING:
        _remove(container, path[-1])
    elif create or current is not MISSING:
        _put(container, path[-1], new)


def _get(container: Any, part: str) -> Any:
    if isinstance(container, dict):
        return container.get(part, MISSING)
    position = array_index(part)
    return container[position] if position is not None and position < len(container) else MISSING


#: An array can be extended by at most this many nulls, as in MongoDB.
_MAX_PADDING = 1_500_000


def _put(container: Any, part: str, value: Any) -> None:
    if isinstance(container, dict):
        container[part] = value
        return
    position = int(part)
    if position - len(container) > _MAX_PADDING:
        raise MongoError(Code.CannotBackfillArray, f"Cannot add more than {_MAX_PADDING} null elements to an array")
    container.extend([None] * (position + 1 - len(container)))
    container[position] = value


def _remove(container: Any, part: str) -> None:
    """Remove a field from a document; an element of an array is replaced by null."""
    if isinstance(container, dict):
        container.pop(part, None)
    elif _get(container, part) is not MISSING:
        container[int(part)] = None


def _increment(name: str, amount: Any) -> Change:
    if rank(amount) != NUMBER:
        raise MongoError(Code.TypeMismatch, f"Cannot increment with non-numeric argument: {{{name}: {amount!r}}}")

    def change(current: Any) -> Any:
        if current is MISSING:
            return amount
        if rank(current) != NUMBER:
            raise MongoError(
                Code.TypeMismatch,
                "Cannot apply $inc to a value of non-numeric type. "
                f"The field '{name}' has the type {type(current).__name__}",
            )
        total = current + amount
        if isinstance(total, int) and not -(2**63) <= total < 2**63:
            raise MongoError(Code.BadValue, f"Failed to apply $inc operations to current value ({current}L)")
        return Int64(total) if isinstance(total, int) and Int64 in (type(current), type(amount)) else total

    return change


def _extreme(*, smaller: bool) -> Callable[[str, Any], Change]:
    def build(_: str, candidate: Any) -> Change:
        key = sort_key(candidate)

        def change(current: Any) -> Any:
            if current is MISSING:
                return candidate
            held = sort_key(current)
            return candidate if (key < held if smaller else key > held) else current

        return change

    return build


def _assign(_: str, value: Any) -> Change:
    return lambda _current: value


#: The update operators: each makes a change from a field's name and an operand.
MODIFIERS: Mapping[str, Callable[[str, Any], Change]] = {
    "$set": _assign,
    "$setOnInsert": _assign,
    "$unset": lambda _name, _operand: lambda _current: MISSING,
    "$inc": _increment,
    "$min": _extreme(smaller=True),
    "$max": _extreme(smaller=False),
    **ARRAY_MODIFIERS,
}
_KNOWN_ELSEWHERE = frozenset({"$mul", "$rename", "$currentDate", "$pop", "$pull", "$pullAll", "$bit"})


def _equalities(query: Document) -> dict[Path, Any]:
    """By path: the values that every match has. Raises `NotSingleValueField` if a field occurs twice."""
    found: dict[Path, Any] = {}
    for path, value in _equal_fields(query):
        for other in found:
            if is_prefix(path, other) or is_prefix(other, path):
                both = f"'{'.'.join(path)}' and '{'.'.join(other)}'"
                raise MongoError(
                    Code.NotSingleValueField, f"cannot infer query fields to set, both paths {both} are matched"
                )
        found[path] = value
    return found


def _equal_fields(query: Document) -> Iterable[tuple[Path, Any]]:
    """The fields that must equal a value, including those in an `$or` with one branch and an `$in` with one value."""
    for name, operand in query.items():
        if name == "$and" or (name == "$or" and len(operand) == 1):
            for branch in operand:
                yield from _equal_fields(branch)
        elif not name.startswith("$"):
            condition = operand if is_operators(operand) else {"$eq": operand}
            values = [condition["$eq"]] if "$eq" in condition else []
            if len(condition.get("$in", ())) == 1:
                values += condition["$in"]
            yield from ((tuple(name.split(".")), value) for value in values if not isinstance(value, Regex))
