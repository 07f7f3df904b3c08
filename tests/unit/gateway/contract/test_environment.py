from __future__ import annotations

from typing import Any

import pytest

from crawler import setting_names
from crawler.project_guard import OVERRULED
from gateway.contract.crawl import MASK
from gateway.contract.environment import (
    MAX_VARIABLES,
    RUN_SETTINGS,
    check_settings,
    check_variables,
    refused_run_setting,
    refused_setting,
)
from gateway.contract.variable_names import refused_variable
from gateway.settings import OUTSIDE_SETTINGS, NodeSettings

#: Settings of ours that a project may choose.
PROJECTS_OWN = {setting_names.IMPORT_ALL_SPIDERS}
OUR_SETTINGS = {getattr(setting_names, name) for name in vars(setting_names) if name.isupper()} - PROJECTS_OWN


@pytest.mark.parametrize("name", ["API_KEY", "_X", "S3_BUCKET", "MONGO_URI", "REDIS_URL", "A" * 100])
def test_a_project_may_name_its_variables_as_it_likes(name: str) -> None:
    assert refused_variable(name) is None


@pytest.mark.parametrize(
    "name",
    [
        *("LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "PYTHONSTARTUP", "PATH", "HOME"),
        *("SCRAPY_SETTINGS_MODULE", "SCRAPY_PROJECT", "SSL_CERT_FILE", "OPENSSL_CONF", "NODE_OPTIONS", "HTTPS_PROXY"),
        *("api_key", "1KEY", "A-B", "A.B", "A=B", "", "A" * 101, "A\n", "Ä"),
    ],
)
def test_names_that_decide_how_a_process_runs_and_what_is_no_name_are_refused(name: str) -> None:
    assert refused_variable(name)


def test_no_variable_is_taken_for_a_setting_of_the_node() -> None:
    names = {name.upper() for name in NodeSettings.model_fields} | OUTSIDE_SETTINGS
    assert not [name for name in names if refused_variable(name) is None]


@pytest.mark.parametrize("value", ["a\0b", "\ud800", MASK])
def test_a_value_that_cannot_be_is_refused_without_being_quoted(value: str) -> None:
    with pytest.raises(ValueError, match=r"^API_KEY: ") as refused:
        check_variables({"API_KEY": value}, 1000)
    assert value == MASK or value not in str(refused.value)


def test_variables_are_bounded() -> None:
    with pytest.raises(ValueError, match="1000 bytes") as refused:
        check_variables({"API_KEY": "topsecret" * 200}, 1000)
    assert "topsecret" not in str(refused.value)
    with pytest.raises(ValueError, match="100 variables"):
        check_variables({f"V{number}": "" for number in range(MAX_VARIABLES + 1)}, 10_000)


@pytest.mark.parametrize("name", sorted(OUR_SETTINGS | OVERRULED))
def test_what_guards_the_platform_is_refused_by_name_even_where_it_was_opened(name: str) -> None:
    assert refused_setting(name, None)
    assert refused_run_setting(name, None, opened=[name])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DOWNLOAD_HANDLERS", {"http": "other.Handler"}),
        ("DOWNLOAD_HANDLERS_BASE", {}),
        ("EXTENSIONS_BASE", {}),
        ("ADDONS", {"other.Addon": 1}),
        ("TELNETCONSOLE_PORT", [6023, 6073]),
        ("REMOTE_CONTROL_JOBS_DIR", "/tmp"),
        ("PLAYWRIGHT_LAUNCH_OPTIONS", {"executable_path": "/bin/sh"}),
        ("EXTENSIONS", {"crawler.report.progress.ProgressReport": None}),
        ("EXTENSIONS", '{"crawler.report.crawl_limits.LogLimit": null}'),
        ("DOWNLOADER_MIDDLEWARES", {"crawler.net.egress.EgressCheck": None}),
        ("EXTENSIONS", {"scrapy.extensions.telnet.TelnetConsole": 1}),
        ("FEEDS", {"/etc/cron.d/x": {"format": "csv"}}),
        ("FEEDS", {"file:///tmp/x.csv": {"format": "csv"}}),
        ("FEEDS", {"FILE:///tmp/x.csv": {"format": "csv"}}),
        ("FEEDS", {"out/../../../x.csv": {"format": "csv"}}),
        ("FEEDS", '{"/tmp/x.csv": {"format": "csv"}}'),
        ("FILES_STORE", "/srv"),
        ("IMAGES_STORE", "~/pictures"),
        ("HTTPCACHE_DIR", "/srv"),
        ("lower", 1),
    ],
)
def test_what_leads_past_the_platform_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        check_settings({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FEEDS", {"out/items.csv": {"format": "csv"}}),
        ("FEEDS", {"s3://bucket/items.csv": {"format": "csv"}}),
        ("ITEM_PIPELINES", {"shop.pipelines.Prices": None}),
        ("EXTENSIONS", {"shop.extensions.Tell": 5}),
        ("MEMUSAGE_LIMIT_MB", 300),
        ("ZYTE_API_TRANSPARENT_MODE", True),
        ("SHOP_PAGES", 3),
    ],
)
def test_an_admin_may_set_all_else_for_a_project_and_a_crawl_only_what_was_opened(name: str, value: Any) -> None:
    check_settings({name: value})
    assert "an admin opens" in (refused_run_setting(name, value) or "")
    assert refused_run_setting(name, value, opened=[name]) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("RETRY_TIMES", 0), ("DOWNLOAD_DELAY", 1.5), ("DOWNLOAD_DELAY", 2), ("COOKIES_ENABLED", False),
     ("USER_AGENT", "me/1.0"), ("RETRY_HTTP_CODES", [500, 502]), ("CLOSESPIDER_ITEMCOUNT", 10), ("SKIP_SEEN", "24h")],
)  # fmt: skip
def test_any_crawl_may_set_what_is_harmless(name: str, value: Any) -> None:
    assert refused_run_setting(name, value) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("RETRY_TIMES", 21), ("RETRY_TIMES", "3"), ("RETRY_TIMES", True), ("DOWNLOAD_DELAY", -1),
     ("DOWNLOAD_DELAY", "0"), ("COOKIES_ENABLED", 1), ("USER_AGENT", "a\nb"), ("RETRY_HTTP_CODES", [42]),
     ("CONCURRENT_REQUESTS", 65), ("CLOSESPIDER_ITEMCOUNT", None), ("DEPTH_PRIORITY", {"a": 1}),
     ("SKIP_SEEN", "24"), ("SKIP_SEEN", 24), ("SKIP_SEEN", "0h")],
)  # fmt: skip
def test_and_only_values_that_make_sense(name: str, value: Any) -> None:
    assert refused_run_setting(name, value)


def test_no_harmless_setting_names_a_class_a_file_or_a_guard() -> None:
    assert not [name for name in RUN_SETTINGS if refused_setting(name, None)]
    assert not [name for name in RUN_SETTINGS if name.endswith(("_CLASS", "_DIR", "_STORE", "_MODULE", "_FILE"))]
