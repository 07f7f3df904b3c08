"""The fields of a form, made from the JSON Schema of a spider's parameters. A parameter without a suitable field is
typed as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

#: One form has at most this many fields. Further parameters are typed as lines `name=value`.
MAX_FIELDS = 100
_NULL: dict[str, Any] = {"type": "null"}
_INPUTS = {"string": "text", "integer": "number", "number": "number", "boolean": "tick"}


class ParameterField(NamedTuple):
    name: str
    #: `text`, `number`, `tick`, `choice`, `choices` (several of them), `lines` (a list, one in a line) or `json`.
    kind: str
    description: str
    required: bool
    #: The value as the field shows it.
    value: Any
    #: The default as JSON. A field with this value is not sent. Empty without a default.
    default: str = ""
    #: For `choice` and `choices`: each value as JSON, and its words.
    choices: tuple[tuple[str, str], ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    max_length: int | None = None
    is_whole: bool = False


class ParameterForm(NamedTuple):
    fields: list[ParameterField]
    #: Whether further parameters, as strings, are allowed.
    is_open: bool
    #: The given parameters without a field of their own, one `name=value` per line.
    further: str


def parameter_form(schema: Mapping[str, Any] | None, given: Mapping[str, Any], *, own: bool) -> ParameterForm:
    """The form for a spider's parameters, filled with `given`. `own`: whether the spider is one of the platform's
    own, which accept only the parameters in their schema.
    """
    properties = (schema or {}).get("properties")
    named = dict(list(properties.items())[:MAX_FIELDS]) if isinstance(properties, dict) else {}
    required = (schema or {}).get("required", ())
    fields = [
        _field(name, _resolved(one, schema or {}), given, is_required=name in required) for name, one in named.items()
    ]
    # required fields come first, then those with a given value
    fields.sort(key=lambda one: (not one.required, one.name not in given))
    further = {name: value for name, value in given.items() if name not in named}
    lines = "\n".join(
        f"{name}={value if isinstance(value, str) else _json(value)}" for name, value in further.items()
    )
    return ParameterForm(fields, not own and (schema or {}).get("additionalProperties") is not False, lines)


def _resolved(schema: Any, whole: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a parameter without `null` among its alternatives, and with its reference (`$ref`) resolved."""
    if not isinstance(schema, dict):
        return {}
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        left = [one for one in choices if one != _NULL]
        if len(left) == 1 and isinstance(left[0], dict):
            schema = {**left[0], **{name: value for name, value in schema.items() if name not in {"anyOf", "oneOf"}}}
    reference = str(schema.get("$ref", ""))
    target = whole.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
    return {**target, **schema} if isinstance(target, dict) else schema


def _field(name: str, schema: dict[str, Any], given: Mapping[str, Any], *, is_required: bool) -> ParameterField:
    kind = _kind(schema)
    choices: tuple[tuple[str, str], ...] = ()
    if kind in {"choice", "choices"}:
        listed = schema["items"]["enum"] if kind == "choices" else _values(schema) or [True, False]
        choices = tuple((_json(value), value if isinstance(value, str) else _json(value)) for value in listed)
    # the default of an object may be long, and does not help to fill in the field
    value = given.get(name, schema.get("default") if kind != "json" else None)
    return ParameterField(
        name=name,
        kind=kind,
        description=str(schema.get("description") or ""),
        required=is_required and "default" not in schema,
        value=_shown(kind, value),
        default=_json(schema["default"]) if "default" in schema else "",
        choices=choices,
        minimum=_number(schema.get("minimum")),
        maximum=_number(schema.get("maximum")),
        max_length=schema["maxLength"] if isinstance(schema.get("maxLength"), int) else None,
        is_whole=_type(schema) == "integer",
    )


def _kind(schema: dict[str, Any]) -> str:
    items = schema.get("items")
    kind = _type(schema)
    if _values(schema):
        return "choice"
    if kind == "array" and isinstance(items, dict):
        if isinstance(items.get("enum"), list):
            return "choices"
        return "lines" if items.get("type") == "string" and "default" not in schema else "json"
    if kind == "boolean" and not isinstance(schema.get("default"), bool):
        # a checkbox has no third state for "not set"
        return "choice"
    return _INPUTS.get(kind or "", "json")


def _type(schema: dict[str, Any]) -> str | None:
    """The type in the schema without `null`; `None` if several types are allowed."""
    kind = schema.get("type")
    kinds = [one for one in kind if one != "null"] if isinstance(kind, list) else [kind]
    return str(kinds[0]) if len(kinds) == 1 else None


def _values(schema: dict[str, Any]) -> list[Any]:
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return values if isinstance(values, list) else []


def _shown(kind: str, value: Any) -> Any:
    match kind:
        case "tick":
            return value is True
        case "lines":
            return "\n".join(str(one) for one in value) if isinstance(value, list) else ""
        case "choices":
            return [_json(one) for one in value] if isinstance(value, list) else []
        case "choice":
            return "" if value is None else _json(value)
        case "json":
            return "" if value is None else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
        case _:
            return "" if value is None else value if isinstance(value, str) else _json(value)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
