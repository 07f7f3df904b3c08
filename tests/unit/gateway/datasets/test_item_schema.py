"""Items beside a pinned schema: what is said of those that do not fit, whatever they have."""

from __future__ import annotations

import time
import tracemalloc

import orjson
import pytest

from gateway.contract.json_schema import unfolded
from gateway.datasets.figures import RunFigures
from gateway.datasets.item_schema import MOST_BREAKS, SchemaCheck, learned_schema, schema_text
from gateway.errors import InvalidRequestError


def check(schema: dict[str, object]) -> SchemaCheck:
    made = SchemaCheck.of(orjson.loads(schema_text(schema)))
    assert made is not None
    return made


def test_what_is_said_can_be_stored() -> None:
    seen = check({"additionalProperties": {"maxLength": 10}})
    assert not seen.fits({"\ud800": "\udfff" * 100_000})
    (one,) = seen.breaks
    assert (one.field, one.rule, one.items) == ("?", "maxLength", 1)
    assert len(orjson.dumps(one.model_dump())) < 2000


def test_no_more_kinds_of_breaks_are_told_than_fit_on_a_page() -> None:
    seen = check({"additionalProperties": {"type": "number"}})
    assert not any(seen.fits({f"field{n}": "text"}) for n in range(3 * MOST_BREAKS))
    assert [one.field for one in seen.breaks] == [f"field{n}" for n in range(MOST_BREAKS)]


@pytest.mark.parametrize(
    ("schema", "item"),
    [
        ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 50_000 + "!"}),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"n": n} for n in range(20_000)] * 2}),
    ],
)
def test_no_item_takes_longer_than_its_size(schema: dict[str, object], item: dict[str, object]) -> None:
    began = time.process_time()
    assert not check(schema).fits(item)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("schema", "item"),
    [
        # each alternative that fails has a message with the whole value
        ({"anyOf": [{"maxProperties": 0}] * 1000}, {"a": "a" * 1_000_000}),
        ({"properties": {"a": {"items": {"enum": [f"{n:x}" for n in range(9000)]}}}}, {"a": ["y"] * 20_000}),
        ({"properties": {"a": {"items": {"allOf": [{"type": ["number"]}] * 1000}}}}, {"a": [1] * 2000}),
    ],
)
def test_an_item_that_would_take_too_long_or_too_much_memory_is_set_apart(
    schema: dict[str, object], item: dict[str, object]
) -> None:
    seen, other = check(schema), check({"properties": {"a": {"maxItems": 100_000}}})
    tracemalloc.start()
    began = time.process_time()
    try:
        assert not seen.fits(item)
        assert tracemalloc.get_traced_memory()[1] < 300 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 20
    assert seen.breaks[0].message == "cannot be checked: it takes too long to check this value"
    assert other.fits(item)


@pytest.mark.parametrize(("schema", "number"), [({"uniqueItems": True}, [10**30]), ({"multipleOf": 0.5}, 10**400)])
def test_an_integer_that_cannot_be_checked_is_set_apart(schema: dict[str, object], number: object) -> None:
    assert not check({"properties": {"a": schema}}).fits({"a": number})


@pytest.mark.parametrize("keyword", ["unevaluatedItems", "unevaluatedProperties", "patternProperties"])
def test_what_is_not_supported_is_refused_when_it_is_pinned(keyword: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"`{keyword}` is not supported"):
        schema_text({"properties": {"a": {keyword: {}}}})


def test_references_count_as_what_they_lead_to() -> None:
    schema = {
        "$defs": {"price": {"type": "number", "not": {"const": 0}}},
        "properties": {"a": {"$ref": "#/$defs/price"}},
    }
    assert unfolded(schema) == unfolded({"properties": {"a": {"anyOf": [{"type": "number", "not": {"const": 0}}]}}})
    assert check(schema).fits({"a": 1})
    assert not check(schema).fits({"a": 0})


def test_what_is_learned_fits_what_it_was_learned_from_and_can_be_pinned() -> None:
    items = [{"a": 1, "b": ["x"], "c": None}, {"a": 2.5, "b": [], "d": {"e": 1}}, {"a": "3"}]
    run = RunFigures()
    for item in items:
        run.observe(item)
    learned = learned_schema([run])
    assert learned["required"] == ["a"]
    seen = check(learned)
    assert all(map(seen.fits, items))
    assert not seen.fits({"a": True})
    assert not seen.fits({})


def test_a_pattern_that_cannot_be_used_is_refused_when_it_is_pinned() -> None:
    with pytest.raises(InvalidRequestError, match=r"the pattern '\(\?=a\)' cannot be used"):
        schema_text({"properties": {"a": {"pattern": "(?=a)"}}})
