"""JSON Schemas that users write (draft 2020-12). Nothing is fetched for them, and the cost of each check is limited.

Neither the schema nor the value alone shows how long a check takes: references can double at each step, and each
alternative that fails has a message with the whole value. So the check counts its steps while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import orjson
from attrs import define
from jsonschema import Draft202012Validator, FormatChecker, validators
from jsonschema.exceptions import SchemaError, ValidationError, best_match

from gateway.contract.param_formats import compile_pattern

#: The limit of one check, about a second. The unit is one element of an array or object.
MOST_COST = 500_000
#: The cost of a keyword, the cost of a value with a format (most of them are compiled), and the number of characters
#: that cost as much as one element.
_KEYWORD, _FORMATTED, _CHARACTERS = 4, 20, 64
_left: ContextVar[list[int]] = ContextVar("left")

_REFERENCES = frozenset({"$ref", "$dynamicRef"})
_LOCAL = "#/$defs/"


@define(eq=False, repr=False)
class BoundedSchema:
    """A schema whose checks have a limited cost. Both checks raise `SchemaError` if the check would cost more than
    `MOST_COST`, or if the schema turns out to be unusable; and `RecursionError`.
    """

    _validator: Draft202012Validator

    def first_error(self, value: object) -> ValidationError | None:
        """The first error that is found; `None` if the value fits."""
        return self._find(value, _first)

    def best_error(self, value: object) -> ValidationError | None:
        """The error that explains most; `None` if the value fits."""
        return self._find(value, best_match)

    def _find(self, value: object, choose: Callable[..., ValidationError | None]) -> ValidationError | None:
        before = _left.set([MOST_COST])
        try:
            return choose(self._validator.iter_errors(value))
        finally:
            _left.reset(before)


def _first(errors: Iterator[ValidationError]) -> ValidationError | None:
    return next(errors, None)


def compile_schema(schema: dict[str, Any], formats: FormatChecker | None = None) -> BoundedSchema:
    """Raises `SchemaError` for an invalid schema, and for a reference to another document, which jsonschema would
    fetch.
    """
    Draft202012Validator.check_schema(schema)
    anchors = {_LOCAL + name for name in schema.get("$defs", {})}
    if not anchors.issuperset(_references(schema)):
        raise SchemaError("it refers to something outside of it")
    return BoundedSchema(_Validator(schema, format_checker=formats))


def unfolded(schema: Mapping[str, Any]) -> int:
    """How many objects the schema has if each reference is replaced by its target. With more than a few thousand, the
    check of any value would cost too much. Raises `SchemaError` for circular references, for keywords that are not
    supported, and for patterns that RE2 refuses.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    sizes: dict[str, int | None] = {}

    def size(part: Any) -> int:
        if isinstance(part, list):
            return sum(map(size, part))
        if not isinstance(part, dict):
            return 0
        for keyword in sorted(_UNSUPPORTED & part.keys()):
            raise SchemaError(f"`{keyword}` is not supported")
        if isinstance(pattern := part.get("pattern"), str):
            _compiled(pattern)
        inner = sum(size(value) for name, value in part.items() if name != "$defs")
        return 1 + inner + sum(referred(part[name]) for name in _REFERENCES & part.keys())

    def referred(address: object) -> int:
        name = str(address).removeprefix(_LOCAL)
        if name not in sizes:
            sizes[name] = None
            sizes[name] = size(definitions.get(name))
        if (known := sizes[name]) is None:
            raise SchemaError(f"the reference to {name!r} leads back to itself")
        return known

    return size(schema)


def _pattern(_validator: object, pattern: str, value: object, _schema: object) -> Iterator[ValidationError]:
    """Match the pattern with RE2, because Python's own engine may take forever with a user's pattern."""
    if isinstance(value, str) and not _compiled(pattern).search(value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _compiled(pattern: str) -> Any:
    try:
        return compile_pattern(pattern)
    except ValueError as error:
        raise SchemaError(f"the pattern {pattern[:100]!r} cannot be used: {error}") from error


def _unique(_validator: object, wanted: bool, value: object, _schema: object) -> Iterator[ValidationError]:  # noqa: FBT001 - jsonschema's signature
    """Check that all elements differ. Jsonschema's own check compares each pair of elements if they cannot be
    sorted.
    """
    if wanted and isinstance(value, list):
        seen = set()
        for one in value:
            text = orjson.dumps(one, option=orjson.OPT_SORT_KEYS)
            _pay(len(text) // _CHARACTERS)
            seen.add(text)
        if len(seen) < len(value):
            yield ValidationError("has an element twice")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], value: object, _schema: object
) -> Iterator[ValidationError]:
    if isinstance(value, dict):
        for pattern, inner in patterns.items():
            _pay(len(value))
            for name in filter(_compiled(pattern).search, value):
                yield from validator.descend(value[name], inner, path=name, schema_path=pattern)


def _additional(
    validator: Any, allowed: object, value: object, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    """Like jsonschema's own check, but patterns are matched with RE2 and not with Python's engine."""
    patterns = [_compiled(pattern) for pattern in schema.get("patternProperties", ())]
    if patterns and isinstance(value, dict):
        _pay(len(patterns) * len(value))
        value = {name: one for name, one in value.items() if not any(one.search(name) for one in patterns)}
        schema = {name: one for name, one in schema.items() if name != "patternProperties"}
    yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, allowed, value, schema)


def _unsupported(_validator: object, _wanted: object, _value: object, _schema: object) -> Iterator[ValidationError]:
    """Refuse these keywords: jsonschema checks parts of such a schema again at each level, so the cost cannot be
    counted.
    """
    raise SchemaError("`unevaluatedItems` and `unevaluatedProperties` are not supported")


#: Keywords that a pinned schema must not have. Schemas that spiders declare may have `patternProperties`.
_UNSUPPORTED = frozenset({"patternProperties", "unevaluatedItems", "unevaluatedProperties"})
_OURS = {
    "pattern": _pattern,
    "uniqueItems": _unique,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "unevaluatedItems": _unsupported,
    "unevaluatedProperties": _unsupported,
}


# --- what a check costs


def _pay(cost: int) -> None:
    left = _left.get()
    left[0] -= cost
    if left[0] < 0:
        raise SchemaError("it takes too long to check this value")


def _paid(keyword: str, check: Callable[..., Iterator[ValidationError] | None]) -> Callable[..., Any]:
    """The check of the keyword with its cost counted. Messages cost, too, because most of them repeat the whole
    value.
    """

    def paid(validator: object, wanted: object, value: object, schema: object) -> Iterator[ValidationError]:
        _pay(_FORMATTED if keyword == "format" else _KEYWORD + _extent(wanted) + _extent(value))
        for error in check(validator, wanted, value, schema) or ():
            _pay(len(error.message) // _CHARACTERS)
            yield error

    return paid


def _extent(value: object) -> int:
    if isinstance(value, list | dict):
        return len(value)
    return len(value) // _CHARACTERS if isinstance(value, str) else 0


_KEYWORDS = {**Draft202012Validator.VALIDATORS, **_OURS}
_Validator = validators.extend(  # type: ignore[no-untyped-call]  # it has no types
    Draft202012Validator, {keyword: _paid(keyword, check) for keyword, check in _KEYWORDS.items()}
)


def _references(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        for name, inner in schema.items():
            if name in _REFERENCES:
                yield inner
            yield from _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)
