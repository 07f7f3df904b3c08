"""Fields of a form from a JSON Schema, which may be anybody's."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.console.parameters import MAX_FIELDS, ParameterField, parameter_form

SCHEMA: dict[str, Any] = {
    "$defs": {"Kind": {"enum": ["a", "b"], "type": "string"}, "Rule": {"type": "object"}},
    "type": "object",
    "additionalProperties": False,
    "required": ["must"],
    "properties": {
        "text": {"type": "string", "default": "x", "maxLength": 9, "description": "What it is."},
        "count": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3},
        "rate": {"type": "number"},
        "flag": {"type": "boolean", "default": True},
        "open": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
        "nothing": {"type": "object", "default": {"a": None}},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "also": {"type": ["integer", "null"]},
        "kind": {"$ref": "#/$defs/Kind"},
        "level": {"enum": [1, 2, None], "default": 2},
        "kinds": {"type": "array", "items": {"enum": ["u", "v"]}},
        "lines": {"type": "array", "items": {"type": "string"}},
        "rule": {"$ref": "#/$defs/Rule"},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "must": {"type": "string"},
    },
}


def fields(schema: dict[str, Any], given: dict[str, Any] | None = None) -> dict[str, ParameterField]:
    return {one.name: one for one in parameter_form(schema, given or {}, own=True).fields}


def test_each_type_has_its_field() -> None:
    found = fields(SCHEMA)
    assert {name: one.kind for name, one in found.items()} == {
        "text": "text",
        "count": "number",
        "rate": "number",
        "flag": "tick",
        "open": "choice",
        "nothing": "json",
        "maybe": "text",
        "also": "number",
        "kind": "choice",
        "level": "choice",
        "kinds": "choices",
        "lines": "lines",
        "rule": "json",
        "either": "json",
        "must": "text",
    }
    assert next(iter(found)) == "must"
    assert (found["must"].required, found["text"].required) == (True, False)
    assert (found["text"].value, found["text"].default, found["text"].max_length) == ("x", '"x"', 9)
    assert found["text"].description == "What it is."
    count = found["count"]
    assert (count.value, count.default, count.minimum, count.maximum, count.is_whole) == ("3", "3", 1, 7, True)
    assert (found["flag"].value, found["maybe"].value, found["maybe"].default) == (True, "", "null")
    assert (found["open"].choices, found["open"].value) == ((("true", "true"), ("false", "false")), "")
    assert (found["nothing"].value, found["nothing"].default) == ("", '{"a":null}')
    assert found["level"].choices == (("1", "1"), ("2", "2"), ("null", "null"))
    assert (found["level"].value, found["kind"].value) == ("2", "")


def test_what_is_given_is_filled_in() -> None:
    given = {"flag": False, "lines": ["a", "b"], "kinds": ["v"], "kind": "b", "rule": {"css": "h1"}, "also": 4}
    found = fields(SCHEMA, given)
    assert [found[name].value for name in given] == [
        False,
        "a\nb",
        ['"v"'],
        '"b"',
        '{\n  "css": "h1"\n}',
        "4",
    ]


def test_a_spider_without_a_schema_takes_any_text() -> None:
    form = parameter_form(None, {"category": "shoes", "page": 2}, own=False)
    assert (form.fields, form.is_open, form.further) == ([], True, "category=shoes\npage=2")
    assert not parameter_form(SCHEMA, {}, own=False).is_open
    assert parameter_form({"properties": {"a": {}}}, {}, own=False).is_open


@pytest.mark.parametrize(
    "odd",
    [
        {"properties": []},
        {"properties": {"a": True}},
        {"properties": {"a": {"enum": "no list", "type": 7}}},
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"properties": {"a": {"anyOf": [True, {"type": "null"}]}}},
        {"properties": {"a": {"type": "array", "items": {"enum": 3}}}},
        {"properties": {"a": {"type": "number", "minimum": "low", "maxLength": "long"}}},
        {"properties": {f"p{number}": {"type": "string"} for number in range(500)}},
        {"properties": {"<b>\u202e": {"description": 7}}},
    ],
)
def test_an_odd_schema_makes_a_form_all_the_same(odd: dict[str, Any]) -> None:
    assert len(parameter_form(odd, {"p0": "x"}, own=False).fields) <= MAX_FIELDS
