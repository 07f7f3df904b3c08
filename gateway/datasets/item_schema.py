"""JSON Schemas of a dataset's items: the one that was learned from its runs, and the one that somebody has pinned.

An item that breaks a pinned schema is set apart: the run goes on without it, and what is known of the item stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from attrs import define, field
from jsonschema import ValidationError
from jsonschema.exceptions import SchemaError

from gateway.contract.json_schema import BoundedSchema, compile_schema, unfolded
from gateway.contract.outbox import whole_text
from gateway.datasets.dataset import SchemaBreak
from gateway.datasets.figures import TYPES, RunFigures
from gateway.errors import InvalidRequestError
from gateway.items.formats import Row, as_json

#: Bytes of JSON of a pinned schema, and the objects that it may have with its references replaced.
MAX_BYTES, MAX_OBJECTS = 64 << 10, 5000
#: How many kinds of breaks are told of a run; the characters of a message, and the bytes of an example.
MOST_BREAKS, _MESSAGE, _EXAMPLE = 20, 300, 500
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_text(schema: dict[str, Any]) -> str:
    """As it is kept: BSON has no names with `$`. Empty for a schema that every item fits. Raises
    `InvalidRequestError` for one that cannot be used.
    """
    if not schema:
        return ""
    text = orjson.dumps(schema).decode()
    if len(text) > MAX_BYTES:
        raise InvalidRequestError("item_schema", f"is larger than {MAX_BYTES >> 10} KB")
    try:
        compile_schema(schema)
        if unfolded(schema) > MAX_OBJECTS:
            raise InvalidRequestError("item_schema", f"has more than {MAX_OBJECTS} objects, references followed")
    except (SchemaError, RecursionError) as error:
        said = error.message if isinstance(error, SchemaError) else "it nests too deep"
        raise InvalidRequestError("item_schema", f"is no usable JSON Schema: {said[:_MESSAGE]}") from error
    return text


@define(eq=False, repr=False, slots=False)
class SchemaCheck:
    """Checks the items of one run."""

    _schema: BoundedSchema
    _breaks: dict[tuple[str, str], SchemaBreak] = field(init=False, factory=dict)

    @classmethod
    def of(cls, schema: dict[str, Any]) -> SchemaCheck | None:
        """The check of a dataset's runs; `None` if it has no schema."""
        return cls(compile_schema(schema)) if schema else None

    @property
    def breaks(self) -> list[SchemaBreak]:
        """By the field and the rule, in the order in which they were found."""
        return list(self._breaks.values())

    def fits(self, row: Row) -> bool:
        """Whether the item fits; if not, that is noted."""
        try:
            error = self._schema.best_error(row)
        except (SchemaError, RecursionError, TypeError, ArithmeticError) as broken:
            # an integer may have thousands of digits
            why = broken.message if isinstance(broken, SchemaError) else str(broken)
            error = ValidationError(f"cannot be checked: {why}"[:_MESSAGE], validator="")
        if error is not None:
            self._note(error, row)
        return error is None

    def _note(self, error: ValidationError, row: Row) -> None:
        # `offers.3.price` and `offers.7.price` are broken for one reason
        path = whole_text(".".join(part for part in error.absolute_path if isinstance(part, str)))
        place = (path, str(error.validator))
        known = self._breaks.get(place)
        if known is not None:
            known.items += 1
        elif len(self._breaks) < MOST_BREAKS:
            example = as_json(row)[:_EXAMPLE].decode("utf-8", "ignore")
            self._breaks[place] = SchemaBreak(
                field=path or None, rule=place[1], message=whole_text(error.message[:_MESSAGE]), example=example
            )


def learned_schema(runs: Iterable[RunFigures]) -> dict[str, Any]:
    """What all items of these runs fit, but for what they have beyond `MAX_FIELDS`. A field is required if each item
    had it filled.
    """
    whole, count = RunFigures(), 0
    for count, run in enumerate(runs, 1):  # noqa: B007 - how many there are
        whole.merge(run)
    properties = {}
    for name, one in whole.fields.items():
        kinds = [kind.value for kind, found in zip(TYPES, one.counts, strict=True) if found]
        properties[name] = {"type": kinds if one.filled == whole.items else [*kinds, "null"]}
    required = [name for name, one in whole.fields.items() if one.filled == whole.items]
    told = f"learned from {count} complete runs with {whole.items} items"
    return {"$schema": DRAFT, "$comment": told, "type": "object", "properties": properties, "required": required}
