from __future__ import annotations

import json
from pathlib import Path

from crawler.node.listing import list_own
from crawler.node.spider_lists import Listing, write_catalog
from gateway.contract.outbox import CATALOG
from gateway.contract.records import SpiderInfo


def test_the_catalog_says_what_each_spider_does_and_takes(tmp_path: Path) -> None:
    write_catalog(tmp_path / "node", Listing.model_validate(list_own()).spiders)
    infos = [SpiderInfo.model_validate(info) for info in json.loads((tmp_path / "node" / CATALOG).read_bytes())]
    seo = next(info for info in infos if info.name == "seo")
    assert seo.project == "default"
    assert seo.description.endswith(".")
    assert seo.params_schema is not None
    assert seo.params_schema["additionalProperties"] is False
    assert {"obey_robots", "subdomains", "check_external"} <= seo.params_schema["properties"].keys()
