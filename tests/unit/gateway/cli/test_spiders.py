from __future__ import annotations

import json
from typing import Any

from unit.gateway.cli.conftest import Answer, Run, StandIn


def spider(name: str, **more: Any) -> dict[str, Any]:
    known = {
        "project": "default",
        "version": None,
        "latest": True,
        "name": name,
        "description": "Looks",
        "arguments": [],
    }
    return {
        **known,
        "params_schema": None,
        "allowed_domains": [],
        "own_start": False,
        "needs_urls": True,
        "arguments": [],
        **more,
    }


def test_spiders_are_listed_in_the_latest_version(gateway: StandIn, run: Run) -> None:
    shop = {"project": "shop", "allowed_domains": ["shop.example"], "own_start": True, "description": ""}
    listed = [
        spider("seo"),
        spider("offers", version="1", latest=False, **shop),
        spider("offers", version="2", **shop),
    ]
    gateway.says("GET /spiders", Answer(200, {"spiders": listed, "projects": []}))
    lines = [line.split() for line in run("spiders").stdout.splitlines()]
    assert lines == [
        ["PROJECT", "VERSION", "SPIDER", "DOES"],
        ["default", "seo", "Looks"],
        ["shop", "2", "offers", "keeps", "to", "shop.example;", "decides", "by", "itself", "where", "it", "starts"],
    ]
    assert len(run("spiders", "--all", "--project", "shop").stdout.splitlines()) == 4
    assert gateway.asked("/spiders")[1].query == "project=shop"


def test_the_schema_of_a_spider_is_printed_as_json(gateway: StandIn, run: Run) -> None:
    schema = {"type": "object", "properties": {"robots": {"type": "boolean"}}}
    found = [spider("seo", project="a"), spider("seo", params_schema=schema)]
    gateway.says("GET /spiders", Answer(200, {"spiders": found, "projects": []}))
    assert json.loads(run("spiders", "--schema", "seo").stdout) == schema
    assert gateway.asked("/spiders")[0].query == "name=seo"


def test_the_schema_of_a_spider_that_is_not_there_is_an_error(gateway: StandIn, run: Run) -> None:
    gateway.says("GET /spiders", Answer(200, {"spiders": [], "projects": []}))
    done = run("spiders", "--schema", "soe")
    assert (done.returncode, done.stderr) == (2, "error: there is no spider 'soe'\n")


def test_all_pages_of_spiders_are_listed(gateway: StandIn, run: Run) -> None:
    pages = [{"spiders": [spider("a")], "next": "there"}, {"spiders": [spider("b")], "next": None}]
    gateway.says("GET /spiders", *(Answer(200, {"projects": [], **page}) for page in pages))
    assert [line.split()[1] for line in run("spiders").stdout.splitlines()[1:]] == ["a", "b"]
    assert [request.query for request in gateway.asked("/spiders")] == ["", "after=there"]
