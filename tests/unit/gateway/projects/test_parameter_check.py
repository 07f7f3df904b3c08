from __future__ import annotations

import time
from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from gateway.contract.public_address import parse_networks
from gateway.errors import ForbiddenAddressError, InvalidRequestError
from gateway.projects.catalog import ParameterCheck

CSS: JsonDict = {"format": "css-selector"}


class Rule(BaseModel):
    model_config = ConfigDict(extra="forbid")

    css: str = Field(json_schema_extra=CSS)
    type: Literal["text", "number"] = "text"
    many: bool = False


class Attribute(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["attribute"]
    name: str


class Constant(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["constant"]
    value: int


class Params(BaseModel):
    """Shorthand or object, as people write extraction rules."""

    model_config = ConfigDict(extra="forbid")

    fields: dict[str, str | Rule] = Field(default_factory=dict)
    steps: list[Attribute | Constant] = Field(default_factory=list)
    short: dict[str, Rule | str] = Field(default_factory=dict)
    wait_for: str | None = Field(default=None, json_schema_extra=CSS)
    pattern: str | None = Field(default=None, json_schema_extra={"format": "re2"})
    sitemap: str | None = Field(default=None, json_schema_extra={"format": "http-url"})
    depth: int | None = None


SCHEMA = Params.model_json_schema()
# pydantic puts a field's extras beside `anyOf`, where `null` is no string and the format is asked all the same
SCHEMA["properties"]["short"]["additionalProperties"]["anyOf"][1] |= CSS
CHECK = ParameterCheck()


def fault(params: dict[str, Any], check: ParameterCheck = CHECK) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as caught:
        check.check(params, SCHEMA)
    assert caught.value.message.startswith(f"{caught.value.field}: ")
    assert caught.value.detail["field"] == caught.value.field
    return caught.value


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"fields": {"price": "b"}, "wait_for": None},
        {"fields": {"price": {"css": "b::text", "type": "number"}}, "wait_for": "#done"},
        {"steps": [{"kind": "constant", "value": 1}, {"kind": "attribute", "name": "x"}]},
        {"pattern": r"\d+", "sitemap": "https://example.com/sitemap.xml", "depth": 3},
    ],
)
def test_what_suits_the_schema_is_taken(params: dict[str, Any]) -> None:
    CHECK.check(params, SCHEMA)


@pytest.mark.parametrize(
    ("params", "field", "words"),
    [
        ({"colour": 1}, "params.colour", "there is no such parameter; there is depth, fields, pattern"),
        ({"wait_for": "a["}, "params.wait_for", "is not a CSS selector"),
        ({"wait_for": 7}, "params.wait_for", "7 is not of type 'string'"),
        ({"pattern": "(?=x)"}, "params.pattern", "is not an RE2 expression"),
        ({"sitemap": "ftp://example.com/"}, "params.sitemap", "must begin with http"),
        ({"depth": "x"}, "params.depth", "'x' is not of type 'integer'"),
        ({"fields": {"price": {"css": "b["}}}, "params.fields.price.css", "is not a CSS selector"),
        ({"fields": {"price": {"css": "b", "type": "date"}}}, "params.fields.price.type", "is not one of"),
        ({"fields": {"price": {"css": "b", "mny": True}}}, "params.fields.price.mny", "there is css, many, type"),
        ({"fields": {"price": {}}}, "params.fields.price.css", "is required"),
        ({"fields": {"price": 3}}, "params.fields.price", "3 is not of type 'string', 'object'"),
        ({"short": {"price": "b["}}, "params.short.price", "is not a CSS selector"),
        ({"short": {"price": {"css": 3}}}, "params.short.price.css", "3 is not of type 'string'"),
        ({"steps": [{"kind": "constant", "value": "1"}]}, "params.steps.0.value", "'1' is not of type 'integer'"),
        ({"steps": [{"kind": "attr", "name": "x"}]}, "params.steps.0.kind", "not one of 'attribute', 'constant'"),
    ],
)
def test_the_message_is_that_of_what_was_meant(params: dict[str, Any], field: str, words: str) -> None:
    found = fault(params)
    assert found.field == field
    assert words in found.message
    assert "given schemas" not in found.message


@pytest.mark.parametrize("url", ["http://169.254.169.254/", "http://2130706433/", "http://localhost/"])
def test_a_url_in_parameters_that_leads_inside_is_forbidden(url: str) -> None:
    found = fault({"sitemap": url})
    assert isinstance(found, ForbiddenAddressError)
    assert found.field == "params.sitemap"


def test_a_network_that_is_allowed_is_allowed_there_too() -> None:
    check = ParameterCheck(parse_networks(["127.0.0.0/8"]))
    check.check({"sitemap": "http://127.0.0.1:8080/sitemap.xml"}, SCHEMA)


def test_a_huge_value_is_not_sent_back() -> None:
    assert len(fault({"depth": "x" * 60_000}).message) < 300
    assert len(fault({"fields": [["x" * 60_000]]}).message) < 300
    assert len(fault({"wait_for": "[" * 60_000}).message) < 600


def test_thousands_of_faults_take_no_longer_than_one() -> None:
    many = {"steps": [{"kind": "constant", "value": "x"}] * 1500, "fields": {f"f{n}": {} for n in range(1000)}}
    began = time.monotonic()
    fault(many)
    assert time.monotonic() - began < 1.0


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 7},
        {"properties": {"depth": {"$ref": "http://127.0.0.1:1/schema.json"}}},
        {"properties": {"depth": {"$ref": "#/$defs/nowhere"}}},
        {"properties": {"depth": {"$ref": "#/$defs/loop"}}, "$defs": {"loop": {"$ref": "#/$defs/loop"}}},
    ],
)
def test_a_schema_that_cannot_be_used_is_the_spiders_fault(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="spider: the schema"):
        CHECK.check({"depth": 1}, schema)


def test_patterns_for_names_are_matched_in_linear_time() -> None:
    schema = {"type": "object", "patternProperties": {"^(a+)+$": {"type": "integer"}}, "additionalProperties": False}
    CHECK.check({"a" * 40: 1}, schema)
    began = time.monotonic()
    with pytest.raises(InvalidRequestError, match="takes no parameters"):
        CHECK.check({"a" * 40 + "!": 1}, schema)
    with pytest.raises(InvalidRequestError, match="is not of type 'integer'"):
        CHECK.check({"a": "x"}, schema)
    assert time.monotonic() - began < 1.0


def doubled(ending: dict[str, Any], keyword: str = "allOf") -> dict[str, Any]:
    """A schema of 41 steps, each of which leads twice to the next one."""
    steps = {f"a{n}": {keyword: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    return {"properties": {"depth": {"$ref": "#/$defs/a0"}}, "$defs": {**steps, "a40": ending}}


@pytest.mark.parametrize(
    "schema",
    [
        doubled({}),
        doubled({"type": "string"}, "anyOf"),
        {"unevaluatedProperties": False},
        {"properties": {"depth": {"unevaluatedItems": {}}}},
        {"properties": {f"p{n}": {"type": "string"} for n in range(20_000)}},
    ],
)
def test_a_schema_by_which_a_check_would_take_for_ever_is_the_spiders_fault(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="spider: the schema"):
        CHECK.check({"depth": 1}, schema)
