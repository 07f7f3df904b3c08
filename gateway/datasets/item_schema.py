"""JSON Schemas of a dataset's items: one is learned from the runs, and a user may pin one.

An item that breaks the pinned schema is set apart: the run is folded without it, and its record stays as it is.
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

#: A pinned schema may have at most this many bytes of JSON, and this many objects with its references followed.
MAX_BYTES, MAX_OBJECTS = 64 << 10, 5000
#: At most this many kinds of breaks are stored for a run, each with a message (characters) and an example (bytes).
MOST_BREAKS, _MESSAGE, _EXAMPLE = 20, 300, 500
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def schema_text(schema: dict[str, Any]) -> str:
    """The schema as text, as it is stored, because names in BSON must not have a `$`; empty for an empty schema.
    Raises `InvalidRequestError` for a schema that cannot be used.
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
        """A check for one run of a dataset with this schema; `None` if the schema is empty."""
        return cls(compile_schema(schema)) if schema else None

    @property
    def breaks(self) -> list[SchemaBreak]:
        """One for each field and rule, in the order in which they were found."""
        return list(self._breaks.values())

    def fits(self, row: Row) -> bool:
        """Whether the item fits the schema. If it does not, the break is added to `breaks`."""
        try:
            error = self._schema.best_error(row)
        except (SchemaError, RecursionError, TypeError, ArithmeticError) as broken:
            # one reason: an integer with thousands of digits, which cannot be converted to a float
            why = broken.message if isinstance(broken, SchemaError) else str(broken)
            error = ValidationError(f"cannot be checked: {why}"[:_MESSAGE], validator="")
        if error is not None:
            self._note(error, row)
        return error is None

    def _note(self, error: ValidationError, row: Row) -> None:
        # positions in arrays are left out: `offers.3.price` and `offers.7.price` are the same break
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
    """A schema that all items of these runs fit; fields that are not counted separately (`MAX_FIELDS`) are left out.
    A field is required if every item has a value in it.
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
