from __future__ import annotations

from typing import Any

from crawler.node.webservice import told_of
from gateway.contract.records import SpiderInfo


def spider(schema: dict[str, Any] | None) -> SpiderInfo:
    return SpiderInfo(project="shop", name="offers", params_schema=schema)


def test_the_platform_is_told_of_no_more_than_it_reads() -> None:
    schema: dict[str, Any] = {"properties": {f"p{number}": {"type": "string", "default": ""} for number in range(5)}}
    assert len(told_of([spider(schema)] * 5000)["infos"]) == 5000
    assert told_of([spider({"examples": [[]] * 300_000})]) == {}
    assert told_of([spider({"description": "\N{LATIN SMALL LETTER E WITH ACUTE}" * (3 << 20)})]) == {}
