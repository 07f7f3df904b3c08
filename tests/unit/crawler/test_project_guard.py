"""What the add-on for deployed projects makes of their settings."""

from __future__ import annotations

import logging

import pytest
from scrapy.settings import Settings

from crawler.project_guard import ProjectGuard
from crawler.setting_names import ATTEMPT_DIR, NODE_LOG_LEVEL


@pytest.mark.parametrize(
    ("chosen", "held"),
    [
        ("DEBUG", "DEBUG"),
        ("debug", "DEBUG"),
        (logging.DEBUG, "DEBUG"),
        (15, 15),
        ("ERROR", "INFO"),
        (logging.CRITICAL + 1, "INFO"),
        ("LOUD", "INFO"),
    ],
)
def test_a_project_may_say_more_in_its_log_but_not_less(chosen: str | int, held: str | int) -> None:
    settings = Settings({"LOG_LEVEL": chosen, ATTEMPT_DIR: "attempt", NODE_LOG_LEVEL: "INFO"})
    ProjectGuard.update_pre_crawler_settings(settings)
    assert settings["LOG_LEVEL"] == held
