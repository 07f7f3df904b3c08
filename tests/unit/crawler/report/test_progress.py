"""The report, and the items that are spooled."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from scrapy import Field, Item, Request, Spider
from scrapy.http import Response
from scrapy.utils.test import get_crawler
from twisted.python.failure import Failure

from crawler.report.progress import ItemSpool, ProgressReport, encode
from crawler.setting_names import ATTEMPT_DIR, EXPECT
from gateway.contract.crawl import Expect
from gateway.contract.outbox import REPORT
from gateway.contract.records import SpiderReport, read_record


class Price(Item):
    amount = Field()


def test_half_surrogate_pairs_cost_no_report(tmp_path: Path) -> None:
    crawler = get_crawler(Spider, {ATTEMPT_DIR: str(tmp_path)})
    report = ProgressReport.from_crawler(crawler)
    report.failed("http://site/\ud800", {"reason": "made up by \udfff"})
    crawler.stats.set_value("odd\ud800", "\ud800")
    report.spider_closed("finished\ud800")
    record = read_record(tmp_path / REPORT, SpiderReport)
    assert record is not None
    assert record.errors == [{"url": "http://site/?", "reason": "made up by ?"}]
    assert record.stats["odd?"] == "?"
    assert record.finish_reason == "finished?"


# --- how it ended


def report_of(folder: Path, **settings: Any) -> ProgressReport:
    return ProgressReport.from_crawler(get_crawler(Spider, {ATTEMPT_DIR: str(folder), **settings}))


def written(report: ProgressReport, folder: Path) -> SpiderReport:
    report.spider_closed("finished")
    record = read_record(folder / REPORT, SpiderReport)
    assert record is not None
    return record


def answer(report: ProgressReport, path: str, status: int = 200) -> Response:
    request = Request(f"http://site{path}")
    response = Response(request.url, status=status, request=request)
    report.completed(request, response)
    return response


def test_a_page_that_is_missing_on_the_way_is_a_finding(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    for path, status in (("/gone", 410), ("/", 200), ("/missing", 404)):
        answer(report, path, status)
    record = written(report, tmp_path)
    assert (record.progress.completed_pages, record.progress.errors_count, record.errors) == (3, 0, [])


def test_where_no_page_could_be_had_each_is_a_failure(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    report.failed("http://site/down", {"reason": "HTTP 503 Service Unavailable", "code": "site_failed"})
    for number in range(12):
        answer(report, f"/{number}", 404)
    record = written(report, tmp_path)
    assert (record.progress.completed_pages, record.progress.errors_count) == (0, 13)
    assert record.errors[:2] == [
        {"url": "http://site/down", "reason": "HTTP 503 Service Unavailable", "code": "site_failed"},
        {"url": "http://site/0", "reason": "HTTP 404 Not Found", "code": "page_missing", "permanent": "yes"},
    ]
    assert len(record.errors) == 10


def test_a_missing_page_over_which_the_spider_stumbles_is_counted_once(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    answer(report, "/a", 404)
    report.spider_error(answer(report, "/b", 404), Failure(ValueError("odd")))
    record = written(report, tmp_path)
    assert (record.progress.completed_pages, record.progress.errors_count) == (0, 2)
    assert [error["url"] for error in record.errors] == ["http://site/b", "http://site/a"]


# --- what is expected


@pytest.mark.parametrize(
    ("value", "counts"),
    [(0, 1), (False, 1), ("x", 1), ([0], 1), (None, 0), ("", 0), (" \n", 0), ([], 0), ({}, 0), (b"", 0)],
)
@pytest.mark.parametrize("kind", [dict, Price])
def test_a_field_counts_if_there_is_something_in_it(tmp_path: Path, value: Any, counts: int, kind: Any) -> None:
    report = report_of(tmp_path, **{EXPECT: Expect(fields={"amount": 1, "other": 1})})
    report.item_scraped(kind(amount=value), None)
    assert written(report, tmp_path).filled == {"amount": counts, "other": 0}


def test_without_expectations_no_field_is_counted(tmp_path: Path) -> None:
    report = report_of(tmp_path)
    report.item_scraped({"amount": 1}, None)
    assert written(report, tmp_path).filled is None


# --- items


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


@pytest.mark.parametrize("beside", [1, 2**70], ids=["orjson's", "not orjson's"])
def test_times_are_written_in_one_way(beside: int) -> None:
    moment = datetime(2027, 1, 2, 3, 4, 5, 600)  # noqa: DTZ001 - without one is one of the ways
    zone = timezone(timedelta(hours=5, minutes=53, seconds=28))
    times = [moment, moment.replace(tzinfo=UTC), moment.replace(tzinfo=zone), moment.date(), moment.time()]
    times += [moment.replace(tzinfo=zone).timetz()]
    assert json.loads(encode({"beside": beside, "at": times}))["at"] == [time.isoformat() for time in times]
    assert json.loads(encode({"beside": beside, moment: 1}))[moment.isoformat()] == 1


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
