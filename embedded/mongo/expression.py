"""The expressions of `$group` and `$project`: field paths, literals, and documents of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from embedded.mongo.errors import Code, MongoError, not_implemented
from embedded.mongo.paths import MISSING, Document, Path

Expression = Callable[[Document], Any]


def compile_expression(expression: Any) -> Expression:
    """From a document to a value or `MISSING`. Raises for operators: there are none."""
    if isinstance(expression, str) and expression.startswith("$"):
        return _field(expression)
    if isinstance(expression, list):
        raise not_implemented("an array expression")
    if isinstance(expression, dict):
        return _object(expression)
    return lambda _document: expression


def _field(expression: str) -> Expression:
    if expression.startswith("$$"):
        raise not_implemented(f"the variable {expression}")
    path = tuple(expression[1:].split("."))
    if not all(path):
        raise MongoError(Code.FailedToParse, f"'{expression}' is no field path")
    return lambda document: _value(document, path)


def _value(value: Any, path: Path) -> Any:
    """Arrays on the way give an array of what their documents have; numbers are names here, never positions."""
    for depth, part in enumerate(path):
        if isinstance(value, list):
            below = (_value(element, path[depth:]) for element in value)
            return [item for item in below if item is not MISSING]
        if not isinstance(value, dict):
            return MISSING
        value = value.get(part, MISSING)
    return value


def _object(expression: Document) -> Expression:
    for name in expression:
        if name.startswith("$"):
            raise MongoError(Code.InvalidPipelineOperator, f"Unrecognized expression '{name}'")
    fields = {name: compile_expression(item) for name, item in expression.items()}

    def build(document: Document) -> Document:
        values = ((name, evaluate(document)) for name, evaluate in fields.items())
        return {name: value for name, value in values if value is not MISSING}

    return build
