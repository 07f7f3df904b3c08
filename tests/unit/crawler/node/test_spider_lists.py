from __future__ import annotations

import asyncio
import io
import json
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from crawler.node.eggs import EggContents, EggStorage, Leniency, described
from crawler.node.listing import list_own
from crawler.node.missing_modules import ADDABLE
from crawler.node.spider_lists import (
    MOST_GIVEN,
    MOST_OF_A_PROJECT,
    MOST_OF_A_VERSION,
    MOST_OF_ALL,
    Listing,
    SpiderLists,
    _Examined,
    too_much,
    write_catalog,
)
from gateway.contract.outbox import CATALOG, LIMITS
from gateway.contract.records import SpiderInfo

MANY = 10_000


def test_the_catalog_says_what_each_spider_does_and_takes(tmp_path: Path) -> None:
    write_catalog(tmp_path / "node", [described(Listing.model_validate(list_own()).spiders)])
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
    assert "of its spiders take" in (too_much("mine", MOST_OF_A_VERSION + 1, {}) or "")
    # all that may be there can be read
    assert LIMITS[CATALOG] > MOST_OF_ALL


def test_many_spiders_are_described_once_and_anew_when_another_version_is_the_latest(tmp_path: Path) -> None:
    storage = EggStorage({"eggs_dir": str(tmp_path / "eggs")})
    contents = EggContents(storage)
    spiders = [SpiderInfo(project="", name=str(number)) for number in range(MANY)]
    storage.put(io.BytesIO(b"egg"), "shop", "1")
    (egg := storage.unpacked / "content" / "shop.egg").mkdir(parents=True)
    contents.keep("shop", "1", egg, None, spiders)
    seconds, told = [], []
    for latest in (True, True, False):
        began = time.process_time()
        told.append(contents.describe("shop", "1", latest=latest))
        seconds.append(time.process_time() - began)
    assert seconds[1] < seconds[0] / 10
    write_catalog(tmp_path, [described([]), told[1], told[2], contents.describe("shop", "2", latest=True)])
    infos = [SpiderInfo.model_validate(info) for info in json.loads((tmp_path / CATALOG).read_bytes())]
    assert Counter((info.project, info.version, info.latest) for info in infos) == {
        ("shop", "1", True): MANY,
        ("shop", "1", False): MANY,
    }


@pytest.mark.parametrize("what", ["undeclared", "unbuildable"])
def test_a_lenient_node_does_not_try_for_ever(tmp_path: Path, what: str) -> None:
    tried: list[Leniency] = []

    async def listed_with(_egg: _Examined, given: Leniency) -> Listing:
        tried.append(given)
        return Listing(problem="no", **{what: sorted(ADDABLE)[len(tried)]})

    lists = SpiderLists.__new__(SpiderLists)
    lists._settings = SimpleNamespace(project_lenient=True)
    lists._listed_with = listed_with  # type: ignore[method-assign]
    refused = asyncio.run(lists._suited(_Examined(tmp_path, "shop", "1", fresh=True, within=None)))
    assert (refused.problem, len(tried)) == ("no", MOST_GIVEN + 1)
