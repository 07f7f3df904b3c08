"""The report, and the items that are spooled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from scrapy import Field, Item, Spider
from scrapy.utils.test import get_crawler

from crawler.report.progress import ItemSpool, Report, encode
from crawler.setting_names import ATTEMPT_DIR
from gateway.contract.outbox import REPORT, SpiderReport, read_record


def test_half_surrogate_pairs_cost_no_report(tmp_path: Path) -> None:
    crawler = get_crawler(Spider, {ATTEMPT_DIR: str(tmp_path)})
    report = Report.from_crawler(crawler)
    report.failed("http://site/\ud800", "made up by \udfff")
    crawler.stats.set_value("odd\ud800", "\ud800")
    report.spider_closed("finished\ud800")
    record = read_record(tmp_path / REPORT, SpiderReport)
    assert record is not None
    assert record.errors == [{"url": "http://site/?", "reason": "made up by ?"}]
    assert record.stats["odd?"] == "?"
    assert record.finish_reason == "finished?"


# --- items


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
        spool.append(encode({"n": number}) + b"\n")
        spool.close()
    assert path.read_text() == '{"n":1}\n{"n":2}\n'
    assert [each.name for each in tmp_path.iterdir()] == ["items.jsonl"]
