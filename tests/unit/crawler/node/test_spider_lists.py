from __future__ import annotations

import json
from pathlib import Path

from crawler.node.listing import list_own
from crawler.node.spider_lists import MOST_OF_A_PROJECT, MOST_OF_ALL, Listing, too_much, write_catalog
from gateway.contract.outbox import CATALOG, LIMITS
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


def test_no_project_takes_the_room_of_others_in_the_catalog() -> None:
    assert too_much("mine", 9, {"mine": MOST_OF_A_PROJECT - 9, "others": MOST_OF_ALL - MOST_OF_A_PROJECT}) is None
    assert "all its versions" in (too_much("mine", 10, {"mine": MOST_OF_A_PROJECT - 9}) or "")
    full = {"large": MOST_OF_A_PROJECT, **{str(number): MOST_OF_A_PROJECT - 1 for number in range(3)}}
    assert "of project 'large'" in (too_much("mine", 9, full) or "")
    # all that may be there can be read
    assert LIMITS[CATALOG] > MOST_OF_ALL
