from __future__ import annotations

import json

import pytest
from scrapy.addons import AddonManager
from scrapy.settings import BaseSettings
from scrapy.utils.conf import build_component_list

from crawler.addon import DiscoveryBot
from crawler.project_guard import OUR_ADDONS, ProjectSettings


class Theirs:
    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        settings.set("REMOTE_CONTROL_ENABLED", value=True, priority=10**6)


@pytest.mark.parametrize(
    "addons",
    [
        {},
        None,
        {Theirs: 10**9},
        {Theirs: float("inf")},
        json.dumps({"a.b": 3, OUR_ADDONS[-1]: None}),
        {DiscoveryBot: 1, "a.b": None},
        BaseSettings({"a.b": 7}),
    ],
)
@pytest.mark.parametrize("priority", ["project", "spider", "cmdline", 10**6])
def test_whatever_the_add_ons_are_set_to_ours_are_the_last(addons: object, priority: str | int) -> None:
    settings = ProjectSettings()
    settings.set("ADDONS", addons, priority)
    order = build_component_list(settings["ADDONS"])
    assert tuple(order[-2:]) == OUR_ADDONS
    assert DiscoveryBot not in order
    assert len(settings.copy()["ADDONS"]) == len(settings["ADDONS"])


def test_nothing_ranks_above_the_command_line_where_ours_rank() -> None:
    settings = ProjectSettings()
    settings.set("ADDONS", {Theirs: 1})
    AddonManager.load_pre_crawler_settings(settings)
    assert settings.getbool("REMOTE_CONTROL_ENABLED") is False
