from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from gateway.items.formats import FORMATS, CsvFormat, JsonFormat, JsonLinesFormat, Row
from gateway.items.items import Item

JOB = "0" * 32


def item(end: int, data: dict[str, Any] | None = None, raw: str | None = None) -> Row:
    return Item(JOB, 1, end, data, raw).row


def test_json_is_one_document_however_many_batches_it_took() -> None:
    encoder = JsonFormat()
    text = encoder.encode([item(1, {"a": 1})]) + encoder.encode([item(2, {"a": 2}), item(3, {})]) + encoder.end("1-3")
    assert json.loads(text) == {"items": [{"a": 1}, {"a": 2}, {}], "next": "1-3"}


@pytest.mark.parametrize(
    ("name", "nothing"), [("json", b'{"items":[\n],"next":null}\n'), ("jsonl", b""), ("csv", b"")]
)
def test_no_items_are_a_document_too(name: str, nothing: bytes) -> None:
    assert FORMATS[name]().end(None) == nothing


def test_each_item_is_a_line_of_json_lines() -> None:
    text = JsonLinesFormat().encode([item(1, {"t": "a\nb"}), item(2, {"t": "é"})])
    assert [json.loads(line) for line in text.splitlines()] == [{"t": "a\nb"}, {"t": "é"}]


def test_only_the_fields_asked_for_are_given() -> None:
    text = JsonLinesFormat(["b", "x"]).encode([item(1, {"a": 1, "b": 2})])
    assert json.loads(text) == {"b": 2}


def test_what_bson_cannot_hold_comes_as_it_was_scraped() -> None:
    big = item(1, raw='{"n": 123456789012345678901234567890, "half": "\\ud800"}')
    line = JsonLinesFormat().encode([big])
    assert json.loads(line) == {"n": 123456789012345678901234567890, "half": "\ud800"}


@pytest.mark.parametrize("raw", ['{"torn', "[1]", "[" * 100_000, '{"x": NaN}'])
def test_a_line_that_is_no_json_object_does_not_spoil_the_document(raw: str) -> None:
    encoder = JsonFormat()
    document = json.loads(
        encoder.encode([item(1, raw=raw), item(2, {"a": 1})]) + encoder.end(None), parse_constant=int
    )
    assert document["items"] in ([{"_raw": raw}, {"a": 1}], [{"x": None}, {"a": 1}])


def test_a_csv_has_the_columns_of_the_first_items() -> None:
    encoder, batch = CsvFormat(), [item(1, {"url": "a", "n": 1}), item(2, {"url": "b", "links": [1, 2], "ok": True})]
    encoder.begin(lambda count: batch[:count])
    first = encoder.encode(batch)
    text = (first + encoder.encode([item(3, {"url": 'say "x", y\n', "late": 1})])).decode()
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["url", "n", "links", "ok"],
        ["a", "1", "", ""],
        ["b", "", "[1,2]", "true"],
        ['say "x", y\n', "", "", ""],
    ]


def test_a_csv_of_named_fields_has_exactly_these_columns() -> None:
    encoder = CsvFormat(["n", "missing"])
    assert encoder.encode([item(1, {"n": 1, "other": 2})]) == b"n,missing\r\n1,\r\n"
    assert CsvFormat(["n"]).end(None) == b"n\r\n"


def test_what_a_spreadsheet_would_run_is_escaped_and_numbers_stay_numbers() -> None:
    row = {"=h": "=cmd|' /C calc'!A0", "b": "+1-1", "c": "-2+3", "d": "@SUM(1)", "e": "\t=1", "f": "＝1", "g": ["=1"]}
    numbers = {"n": -5, "m": "-5", "o": "+3,141.5", "p": "-.5e-3", "q": "a=b", "r": ""}
    for escape, mark in ((True, "'"), (False, "")):
        encoder, batch = CsvFormat(escape_formulas=escape), [item(1, {**row, **numbers})]
        encoder.begin(lambda _, batch=batch: batch)
        text = encoder.encode(batch).decode()
        head, cells = csv.reader(io.StringIO(text))
        assert head[:2] == [f"{mark}=h", "b"]
        assert cells[:6] == [mark + value for value in list(row.values())[:6]]
        assert cells[6:] == ['["=1"]', "-5", "-5", "+3,141.5", "-.5e-3", "a=b", ""]
    assert CsvFormat(["h"]).encode([item(1, {"h": "=1"})]) == b"h\r\n'=1\r\n"


def test_a_csv_for_a_spreadsheet_begins_with_the_mark_that_says_utf_8() -> None:
    encoder = CsvFormat(["n"], bom=True)
    first, second = encoder.encode([item(1, {"n": "é"})]), encoder.encode([item(2, {"n": 2})])
    assert (first.decode("utf-8-sig"), first[:3], second) == ("n\r\né\r\n", b"\xef\xbb\xbf", b"2\r\n")
    assert CsvFormat(["n"], bom=True).end(None) == b"\xef\xbb\xbfn\r\n"
