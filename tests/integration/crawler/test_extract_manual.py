"""The examples of the how-to about `extract` do what it says, on the demo site."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from crawler.demo_site.server import KEEPERS, SHIPS, DemoServer

from .conftest import ROOT, Run

PAGE = (ROOT / "docs/how-to/extract-data-with-rules.md").read_text(encoding="utf-8")
RULES: list[dict[str, Any]] = [json.loads(text) for text in re.findall(r"```json\n(.+?)```", PAGE, re.DOTALL)]


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    with DemoServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.url
        server.shutdown()
        thread.join()


def test_one_page_gives_one_item(run: Run, demo: str) -> None:
    items = run("extract", demo, params=RULES[0]).items
    assert [(item["title"], item["first_link"]) for item in items] == [("The Skarholm Light", "/history")]


def test_patterns_lead_through_the_site(run: Run, demo: str) -> None:
    items = run("extract", demo, params=RULES[1]).items
    assert len(items) == 1 + 1 + 12 + len(SHIPS)
    assert {"march", "december"} <= {item["month"] for item in items}


def test_a_list_gives_an_item_for_each_of_its_elements(run: Run, demo: str) -> None:
    items = run("extract", f"{demo}keepers", params=RULES[2]).items
    assert [item["page"] for item in items] == [f"{demo}keepers/{keeper}" for keeper in KEEPERS]


def test_links_lead_to_the_details(run: Run, demo: str) -> None:
    items = run("extract", f"{demo}ships", params=RULES[3]).items
    assert {item["story"] for item in items} == {f"{story}." for story in SHIPS.values()}
