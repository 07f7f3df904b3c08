from __future__ import annotations

from pathlib import Path

from scrapy import Spider
from scrapy.utils.test import get_crawler

from crawler.report.progress import Report
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
