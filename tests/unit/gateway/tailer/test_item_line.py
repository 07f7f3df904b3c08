from __future__ import annotations

import json

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contract.outbox import AttemptId
from gateway.tailer.shipping import MAX_ITEM, as_text, parse_item

ID = AttemptId("a" * 32, 1)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(value=json_values)
def test_every_line_is_kept_as_data_that_bson_returns_unchanged_or_as_text(value: object) -> None:
    line = json.dumps(value).encode()
    item = parse_item(ID, 100, line)
    if item.data is None:
        assert item.raw is not None
        assert item.raw.encode() == line
    else:
        assert item.raw is None
        assert bson.decode(bson.encode(item.data)) == value


@given(line=st.binary(max_size=200))
def test_no_line_is_refused(line: bytes) -> None:
    item = parse_item(ID, 100, line)
    bson.encode({"data": item.data, "raw": item.raw})


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_whole_64_bit_numbers_are_data(number: int) -> None:
    assert parse_item(ID, 1, b'{"n":%d}' % number).data == {"n": number}


@pytest.mark.parametrize("text", ['{"n":9223372036854775808}', '{"n":1e999}', '{"a":[{"b.c":1}]}', '{"":{"$a":1}}'])
def test_what_bson_or_an_old_mongodb_would_change_is_text(text: str) -> None:
    assert parse_item(ID, 1, text.encode()).raw == text


def test_many_small_numbers_may_be_too_large_as_bson_and_fit_as_text() -> None:
    line = b'{"n":[' + b",".join([b"1"] * 1_500_000) + b"]}"
    item = parse_item(ID, 1, line)
    assert item.raw == line.decode()


@pytest.mark.parametrize("byte", [b"x", b"\xff"])
def test_what_does_not_fit_at_all_is_named(byte: bytes) -> None:
    size = MAX_ITEM + 1 if byte == b"x" else MAX_ITEM // 2
    item = parse_item(ID, 1, byte * size)
    assert item.data is not None
    assert item.data["bytes"] == size
    assert len(item.data["begin"]) == 1000


def test_the_same_item_can_be_had_as_text() -> None:
    item = as_text(parse_item(ID, 1, '{"a":"é"}'.encode()))
    assert (item.data, item.raw) == (None, '{"a":"é"}')
