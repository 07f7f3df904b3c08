"""A project that sets all there is to set: what is its own business is honoured, what is the node's is not."""

from __future__ import annotations

import json
import re

import pytest
from sites.server import Site

from .conftest import Crawl, EggNode

STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \[[\w.]+\] (DEBUG|INFO|WARNING|ERROR): ")


@pytest.fixture(scope="module")
def crawl(node: EggNode, site: Site) -> Crawl:
    node.deploy_folder("willful")
    ended = node.ended(node.run("my-willful", project="willful", start_urls=[site.url]))
    assert ended.exit["exit_code"] == 0, ended.log
    assert ended.exit["report"]["finish_reason"] == "finished", ended.log
    return ended


def test_its_own_add_on_and_spider_loader_are_honoured(crawl: Crawl) -> None:
    assert crawl.of_kind("addon")[0]["said"] == "honoured"


def test_its_pipelines_and_feeds_work_and_the_feeds_lie_in_the_attempts_folder(crawl: Crawl) -> None:
    assert all(item["stamped"] for item in crawl.items)
    feed = (crawl.folder / "files/out/items.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in feed] == crawl.items
    assert (crawl.folder / "files/items.csv").exists()
    assert crawl.of_kind("folder")[0]["name"] == "files"


def test_neither_settings_nor_add_ons_nor_extensions_open_a_door(crawl: Crawl) -> None:
    names = set(crawl.of_kind("extensions")[0]["names"])
    assert "ProgressReport" in names
    assert not {"OwnControl", "RemoteControl", "TelnetConsole"} & names


def test_the_egress_rule_holds_for_the_page_that_it_let_through_and_for_no_other(crawl: Crawl, site: Site) -> None:
    assert [page["url"] for page in crawl.of_kind("page")] == [site.url]
    refused = {item["url"].partition(":")[0]: item["why"] for item in crawl.of_kind("refused")}
    assert "not a public address" in refused["http"]
    assert "gopher" in refused["gopher"]


def test_its_log_is_where_it_belongs_and_hides_nothing(crawl: Crawl) -> None:
    assert "this line is not to be hidden" in crawl.log
    assert STAMPED.match(crawl.log)
    assert not [*crawl.folder.rglob("elsewhere.log")]


def test_the_log_tells_what_is_not_as_the_project_wants_it(crawl: Crawl) -> None:
    line = next(line for line in crawl.log.splitlines() if "This node has its own" in line)
    for name in ("DOWNLOADER", "JOBDIR", "LOG_FILE", "LOG_LEVEL", "REMOTE_CONTROL_ENABLED", "TWISTED_REACTOR"):
        assert name in line
    assert "H2DownloadHandler is not used for https" in crawl.log
    assert "is not used for gopher" in crawl.log
