from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contract.outbox import ITEMS, AttemptId
from gateway.tailer import shipping
from gateway.tailer.outbox import AttemptFolder
from gateway.tailer.shipping import MAX_ITEM, MAX_VALUES, as_text, parse_item

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


def test_what_has_more_values_than_can_be_read_in_a_moment_is_text() -> None:
    few, many = (b'{"a":["' + b'[{,\\"' * MAX_VALUES + b'",' + b"[]," * number + b"1]}" for number in (9, MAX_VALUES))
    assert parse_item(ID, 1, few).data is not None
    assert parse_item(ID, 1, many).raw == many.decode()


@pytest.mark.parametrize("string", [b'"' + b'\\"' * 40_000, b"\\" * 80_001, b'"' * 80_001, b'"","' * 20_000])
def test_no_bytes_make_counting_the_values_of_an_item_long(string: bytes) -> None:
    line = b'{"a":[' + b"," * MAX_VALUES + string
    began = time.process_time()
    assert parse_item(ID, 1, line).raw == line.decode()
    assert time.process_time() - began < 2


@pytest.mark.parametrize("values", [MAX_VALUES - 2, MAX_VALUES])
def test_values_with_names_and_with_quotes_in_them_are_counted_as_well(values: int) -> None:
    line = b'{"a":{%b}}' % b",".join(b'"\\\\\\"%d,":"[,\\\\"' % number for number in range(values))
    assert (parse_item(ID, 1, line).data is not None) == (values < MAX_VALUES)


def test_no_batch_of_items_has_more_than_that_but_for_its_last_one(tmp_path: Path) -> None:
    attempt = AttemptFolder(tmp_path, ID)
    attempt.folder.mkdir()
    line = b'{"a":[' + b"[]," * (MAX_VALUES // 10) + b"1]}\n"
    (attempt.folder / ITEMS).write_bytes(line * 20)
    ends, more = [0], True
    while more:
        _, end, more = shipping._next_batch(attempt, ends[-1])
        ends.append(end)
    assert ends[-1] == 20 * len(line)
    assert max(after - before for before, after in pairwise(ends)) < len(line) * 11
    (attempt.folder / ITEMS).write_bytes(b"\n" * 2 * MAX_VALUES)
    assert shipping._next_batch(attempt, 0) == ([], MAX_VALUES, True)


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
