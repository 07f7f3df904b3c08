"""What the node makes of other people's projects: its add-ons are the last, and some settings are held."""

from __future__ import annotations

import json
import logging
import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from scrapy.addons import AddonManager
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.conf import build_component_list

from crawler.addon import DiscoveryBot
from crawler.net.egress import EgressDownloadHandler, HandlerRefusedError
from crawler.project_guard import (
    OUR_ADDONS,
    ProjectGuard,
    ProjectSettings,
    in_folder,
    keep_settings,
    project_settings,
)
from crawler.setting_names import ALLOWED_HANDLERS, ATTEMPT_DIR, NODE_LOG_LEVEL


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


# --- download handlers


class Paid:
    """Somebody's download handler."""


PAID = f"{Paid.__module__}.{Paid.__qualname__}"


#: The same class under another name.
Other = Paid


def _with_handler(handler: Any, scheme: str) -> Any:
    """The handler that the scheme gets in a project which has chosen this one."""
    settings = ProjectSettings()
    # a project cannot allow it to itself
    settings.set(ALLOWED_HANDLERS, [PAID], "project")
    settings.set("DOWNLOAD_HANDLERS", {scheme: handler}, "project")
    for addon in (ProjectGuard, DiscoveryBot):
        addon.update_pre_crawler_settings(settings)
    for addon in (ProjectGuard(), DiscoveryBot()):
        addon.update_settings(settings)
    return settings.getdict("DOWNLOAD_HANDLERS")[scheme]


@pytest.mark.parametrize("handler", [Paid, PAID, f"{Paid.__module__}.Other"])
@pytest.mark.parametrize("scheme", ["https", "s3", "paid"])
def test_a_handler_is_used_only_if_the_operator_allows_it(
    handler: Any, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRAWL_ALLOW_HANDLERS", PAID)
    assert _with_handler(handler, scheme) == handler
    for allowed in ("", "somebody.elses.Handler"):
        monkeypatch.setenv("CRAWL_ALLOW_HANDLERS", allowed)
        if scheme == "https":
            # the site would be asked from the node's own address
            with pytest.raises(HandlerRefusedError, match=r"fetches https by .*CRAWL_ALLOW_HANDLERS="):
                _with_handler(handler, scheme)
        else:
            assert _with_handler(handler, scheme) is None


def test_ours_does_the_same_as_a_handler_of_scrapys() -> None:
    handler = "scrapy.core.downloader.handlers.http2.H2DownloadHandler"
    assert _with_handler(handler, "https") is EgressDownloadHandler


@pytest.mark.parametrize("chosen", [{}, {"HTTPCACHE_ENABLED": False}, {"HTTPCACHE_ENABLED": True}])
def test_the_cache_is_for_projects_that_ask_for_one(chosen: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_CACHE_REDIS_URL", "redis://127.0.0.1:1/0")
    settings = ProjectSettings()
    settings.setdict(chosen, "project")
    DiscoveryBot().update_settings(settings)
    is_ours = settings["HTTPCACHE_STORAGE"] == "crawler.http_cache.RedisCacheStorage"
    assert settings.getbool("HTTPCACHE_ENABLED") == is_ours == chosen.get("HTTPCACHE_ENABLED", False)


# --- add-ons


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


def _content(settings: BaseSettings) -> dict[str, Any]:
    """Values and priorities, those of components too."""
    values = {name: settings[name] for name in settings}
    return {
        name: (settings.getpriority(name), _content(value) if isinstance(value, BaseSettings) else value)
        for name, value in values.items()
    }


def test_a_copy_is_as_scrapys_own_and_shares_nothing_that_changes() -> None:
    settings = ProjectSettings()
    settings.set("DOWNLOADER_MIDDLEWARES", {Other: 7}, "spider")
    settings.set("NAMES", [["one"]])
    twin = settings.copy()
    assert isinstance(twin, ProjectSettings)
    before = deepcopy(_content(settings))
    assert _content(twin) == before
    settings["NAMES"][0].append("two")
    settings.set_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", Theirs, 8)
    settings["DOWNLOAD_HANDLERS_BASE"]["ftp"] = None
    settings.set("USER_AGENT", "other", "cmdline")
    settings.freeze()
    assert _content(twin) == before
    twin.set("USER_AGENT", "third", "cmdline")


def test_kept_settings_serve_the_same_project_and_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "kept_settings.py").write_text("BOT_NAME = 'kept'\nNAMES = ['one']\n")
    (tmp_path / "other_settings.py").write_text("BOT_NAME = 'other'\n")
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = kept_settings\nother = other_settings\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("SCRAPY_PROJECT", "SCRAPY_SETTINGS_MODULE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr("crawler.project_guard._kept", {})
    found = _content(project_settings())
    monkeypatch.delenv("SCRAPY_SETTINGS_MODULE")
    keep_settings()
    monkeypatch.delenv("SCRAPY_SETTINGS_MODULE")
    (tmp_path / "scrapy.cfg").unlink()  # not read again
    kept = project_settings()
    assert _content(kept) == found
    assert os.environ["SCRAPY_SETTINGS_MODULE"] == "kept_settings"
    kept["NAMES"].append("two")
    monkeypatch.delenv("SCRAPY_SETTINGS_MODULE")
    assert project_settings()["NAMES"] == ["one"]
    monkeypatch.setenv("SCRAPY_SETTINGS_MODULE", "other_settings")
    assert project_settings()["BOT_NAME"] == "other"


# --- where files are written


@pytest.mark.parametrize(
    ("place", "there"),
    [
        ("images", "images"),
        ("./out//items.csv", "out/items.csv"),
        ("/data/images", "data/images"),
        ("../../etc/passwd", "etc/passwd"),
        ("a/../../b", "b"),
        ("/", "."),
        ("file:///data/%(name)s/%(time)s.json", "data/%(name)s/%(time)s.json"),
        (Path("/data/x.csv"), "data/x.csv"),
        ("s3://bucket/images", "s3://bucket/images"),
        ("ftp://host/x.csv", "ftp://host/x.csv"),
        ("stdout:", "stdout:"),
    ],
)
def test_a_place_on_the_disk_is_below_the_folder_of_the_attempt(place: Any, there: str) -> None:
    assert in_folder(place) == there
