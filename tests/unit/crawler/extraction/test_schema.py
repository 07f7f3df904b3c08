"""Rules that are wrong are refused when the crawl is submitted, by the schema alone, and by the model as well."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from crawler.spiders.article import ArticleParams
from crawler.spiders.extract import ExtractParams
from crawler.spiders.sitemap import SitemapParams
from gateway.errors import InvalidRequestError
from gateway.projects.catalog import ParameterCheck

SCHEMA = ExtractParams.model_json_schema()
FIELDS = {"title": "h1"}

GOOD: list[dict[str, Any]] = [
    {"fields": FIELDS},
    {"fields": {"a": "//h1/text()", "b": {"css": "p", "type": "number", "list": True}}, "items": "li"},
    {"fields": {"a": {"css": "p", "fields": {"b": {"css": "i", "fields": {"c": {"xpath": "./b", "default": 1}}}}}}},
    {"fields": FIELDS, "links": ["nav a", "//h2/a"], "pagination": "a.next", "include": ["/x/"]},
    {"fields": FIELDS, "links": "h2 a", "pagination": {"next": "a.next", "max_pages": 3}},
    {"fields": FIELDS, "pagination": {"page_param": "p", "start": 0, "step": 20}},
]
BAD: list[tuple[dict[str, Any], str, str]] = [
    ({}, "params.fields", "required"),
    ({"fields": {}}, "params.fields", ""),
    ({"fields": {"price": "h1["}}, "params.fields.price", "not a CSS selector"),
    ({"fields": {"price": {"css": "h1["}}}, "params.fields.price.css", "not a CSS selector"),
    ({"fields": {"price": {"xpath": "//a[re:test(., '(a+)+')]"}}}, "params.fields.price.xpath", "re:test()"),
    ({"fields": {"price": {"css": "a", "regex": "("}}}, "params.fields.price.regex", "not an RE2 expression"),
    ({"fields": {"price": {"css": "a", "xpath": "//a"}}}, "params.fields.price", ""),
    ({"fields": {"price": {"css": "a", "type": "money"}}}, "params.fields.price.type", "money"),
    ({"fields": {"price": {"selector": "a"}}}, "params.fields.price.selector", "css"),
    ({"fields": {"price": 5}}, "params.fields.price", "5"),
    ({"fields": {"a": {"fields": {"b": {"css": "h1["}}}}}, "params.fields.a.fields.b.css", "not a CSS selector"),
    (
        {"fields": {"a": {"fields": {"b": {"fields": {"c": {"fields": {"d": "h1"}}}}}}}},
        "params.fields.a.fields.b.fields.c.fields",
        "",
    ),
    ({"fields": {f"f{n}": "h1" for n in range(101)}}, "params.fields", ""),
    ({"fields": FIELDS, "items": "x" * 1001}, "params.items", ""),
    ({"fields": FIELDS, "items": "li["}, "params.items", "not a CSS selector"),
    ({"fields": FIELDS, "links": ["a", "b["]}, "params.links.1", "not a CSS selector"),
    ({"fields": FIELDS, "pagination": {"next": "a["}}, "params.pagination.next", "not a CSS selector"),
    ({"fields": FIELDS, "pagination": {"page_param": "p", "step": 0}}, "params.pagination.step", "0"),
    ({"fields": FIELDS, "exclude": ["(?=x)"]}, "params.exclude.0", "not an RE2 expression"),
]


@pytest.mark.parametrize("params", GOOD)
def test_good_rules_pass_schema_and_model(params: dict[str, Any]) -> None:
    ParameterCheck().check(params, SCHEMA)
    ExtractParams.model_validate(params)


@pytest.mark.parametrize(("params", "field", "reason"), BAD)
def test_bad_rules_are_refused_with_the_name_of_the_field(params: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        ParameterCheck().check(params, SCHEMA)
    assert refusal.value.field == field
    assert reason in str(refusal.value)
    with pytest.raises(ValidationError):
        ExtractParams.model_validate(params)


def test_the_parameters_of_the_others_are_checked_as_well() -> None:
    for model, params, field in (
        (SitemapParams, {"since": "yesterday"}, "params.since"),
        (SitemapParams, {"include": ["("]}, "params.include.0"),
        (ArticleParams, {"format": "pdf"}, "params.format"),
    ):
        with pytest.raises(InvalidRequestError) as refusal:
            ParameterCheck().check(params, model.model_json_schema())
        assert refusal.value.field == field


def test_every_parameter_says_what_it_is_for() -> None:
    for model in (ExtractParams, SitemapParams, ArticleParams):
        schema = model.model_json_schema()
        objects = [schema, *schema.get("$defs", {}).values()]
        assert all("description" in told for part in objects for told in part.get("properties", {}).values())
    assert SCHEMA["properties"]["fields"]["examples"]
