"""JSON Schemas that users write (draft 2020-12), used without fetching anything, in a time that their size bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from jsonschema import Draft202012Validator, FormatChecker, validators
from jsonschema.exceptions import SchemaError, ValidationError

from gateway.contract.param_formats import compile_pattern

_REFERENCES = frozenset({"$ref", "$dynamicRef"})
_LOCAL = "#/$defs/"


def compile_schema(schema: dict[str, Any], formats: FormatChecker | None = None) -> Draft202012Validator:
    """Raises `SchemaError` for what is no schema, and for what refers to something outside of it: jsonschema would
    fetch that.
    """
    Draft202012Validator.check_schema(schema)
    anchors = {_LOCAL + name for name in schema.get("$defs", {})}
    if not anchors.issuperset(_references(schema)):
        raise SchemaError("it refers to something outside of it")
    validator: Draft202012Validator = _Validator(schema, format_checker=formats)
    return validator


def unfolded(schema: Mapping[str, Any]) -> int:
    """How many objects the schema has once each reference is replaced by what it leads to: that bounds how long a
    value is checked. Raises `SchemaError` for what has no such bound: a reference that leads back to itself, and
    `patternProperties`, whose patterns jsonschema gives to Python's own engine; and for a pattern that RE2 refuses.
    """
    definitions: Mapping[str, Any] = schema.get("$defs", {})
    sizes: dict[str, int | None] = {}

    def size(part: Any) -> int:
        if isinstance(part, list):
            return sum(map(size, part))
        if not isinstance(part, dict):
            return 0
        if "patternProperties" in part:
            raise SchemaError("`patternProperties` is not supported")
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
    """Match the pattern with RE2, because Python's own engine may never end on a pattern of a user."""
    if isinstance(value, str) and not _compiled(pattern).search(value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _compiled(pattern: str) -> Any:
    try:
        return compile_pattern(pattern)
    except ValueError as error:
        raise SchemaError(f"the pattern {pattern[:100]!r} cannot be used: {error}") from error


def _unique(_validator: object, wanted: bool, value: object, _schema: object) -> Iterator[ValidationError]:  # noqa: FBT001 - jsonschema's signature
    """Jsonschema compares each element with each other one, unless they can be sorted."""
    if wanted and isinstance(value, list):
        seen = {orjson.dumps(one, option=orjson.OPT_SORT_KEYS) for one in value}
        if len(seen) < len(value):
            yield ValidationError("has an element twice")


_Validator = validators.extend(Draft202012Validator, {"pattern": _pattern, "uniqueItems": _unique})  # type: ignore[no-untyped-call]  # it has no types


def _references(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        for name, inner in schema.items():
            if name in _REFERENCES:
                yield inner
            yield from _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)
