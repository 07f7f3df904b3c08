"""What a spider's process reads of its spec and of its node, without pydantic."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from crawler.orders import NODE_RULES, AttemptOrder, Expected, Fetch, NodeRules, node_rules
from gateway.contract.crawl import Expect, FetchOptions
from gateway.contract.records import NodeSpec
from gateway.settings import NodeSettings

FULL: dict[str, Any] = {
    "job_id": "a" * 32,
    "attempt": 2,
    "not_after": datetime(2027, 1, 1, tzinfo=UTC),
    "project": "shop",
    "version": "7",
    "spider": "books",
    "start_urls": ("http://a/", "http://b/"),
    "depth": 0,
    "params": {"n": 1, "deep": {"x": [None, 1.5]}},
    "max_pages": 10,
    "max_items": 20,
    "ignore_cache": True,
    "fetch": FetchOptions(headers={"A": "b"}, retry_codes=(503, 429), rate_limit="30/m", min_pause_seconds=1.5),
    "expect": Expect(min_items=1, fields={"title": 0.5}),
    "settings": {"DOWNLOAD_DELAY": 1},
    "site": "s",
    "site_rate_limit": "1/s",
    "user_id": "u",
    "correlation_id": "c",
}


@pytest.mark.parametrize("given", [FULL, {name: FULL[name] for name in ("job_id", "attempt", "not_after", "spider")}])
def test_every_field_of_a_spec_reaches_the_crawl(given: dict[str, Any]) -> None:
    spec = NodeSpec.model_validate({"start_urls": (), **given})
    order = AttemptOrder.of(json.loads(spec.model_dump_json(exclude_none=True)))
    said = json.loads(spec.model_dump_json())
    assert dataclasses.asdict(order) == {name: said[name] for name in dataclasses.asdict(order)}


def test_the_options_of_a_crawl_are_those_of_the_contract() -> None:
    assert {one.name for one in dataclasses.fields(Fetch)} == set(FetchOptions.model_fields)
    assert {one.name for one in dataclasses.fields(Expected)} == set(Expect.model_fields)


def test_only_what_changes_the_answers_makes_another_variant() -> None:
    assert Fetch(concurrency=2, rate_limit="1/s", obey_robots=False, min_pause_seconds=1).variant == ""
    others = [
        Fetch(headers={"A": "b"}),
        Fetch(cookies={"A": "b"}),
        Fetch(user_agent="b"),
        Fetch(proxy="http://b"),
        Fetch(retry_codes=[404]),
    ]
    assert len({fetch.variant for fetch in others} - {""}) == len(others)


def test_a_nodes_rules_are_the_same_by_its_settings_and_as_handed_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRAWL_ALLOW_NETWORKS", "127.0.0.0/8,10.0.0.0/8")
    monkeypatch.setenv("CHROMIUM_PATH", "/opt/chromium")
    by_settings = node_rules()
    assert by_settings == NodeRules.of(NodeSettings.load())
    assert by_settings.crawl_allow_networks == ["127.0.0.0/8", "10.0.0.0/8"]
    monkeypatch.setenv(NODE_RULES, by_settings.to_json())
    monkeypatch.delenv("CRAWL_ALLOW_NETWORKS")
    assert node_rules() == by_settings
