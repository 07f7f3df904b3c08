from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from scrapy import Field, Item

from crawler.report.progress import ItemSpool, encode


class Price(Item):
    amount = Field()


@dataclass
class Shop:
    price: Price


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ({"a": "é"}, {"a": "é"}),
        (Shop(Price(amount=1)), {"price": {"amount": 1}}),
        ({"price": Price(amount=1)}, {"price": {"amount": 1}}),
        ({"n": 2**70, "d": Decimal("1.50")}, {"n": 2**70, "d": "1.50"}),
        ({"b": b"\xff", "s": {1}, 5: "key"}, {"b": "\ufffd", "s": [1], "5": "key"}),
        ({"at": datetime(2027, 1, 2, tzinfo=UTC)}, {"at": "2027-01-02T00:00:00+00:00"}),
        ({"nan": float("nan"), "half": "\ud800"}, None),
    ],
)
def test_an_item_is_one_line_of_json(item: Any, told: Any) -> None:
    line = encode(item)
    assert b"\n" not in line
    decoded = json.loads(line)
    assert told is None or decoded == told


def test_what_is_no_item_is_refused() -> None:
    with pytest.raises(TypeError):
        encode("text")


def test_a_spool_appends_to_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    for number in (1, 2):
        spool = ItemSpool(path)
        spool.append({"n": number})
        spool.close()
    assert path.read_text() == '{"n":1}\n{"n":2}\n'
    assert [each.name for each in tmp_path.iterdir()] == ["items.jsonl"]
