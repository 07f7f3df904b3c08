"""Scrapyd's configuration and the environment of spiders."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from scrapyd.config import Config

from crawler.node.application import load_settings
from crawler.node.config import NodeConfig, NodeConfigError, NodeEnvironment, allowed
from gateway.settings import NodeSettings, ScrapydSettings, Settings

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DISCOVERYBOT_HOME", str(tmp_path / "50%(x)s"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SCRAPYD_PASSWORD", "x")


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NODE_SLOTS", "5")
    monkeypatch.setenv("SCRAPYD_PORT", "6999")
    config = NodeConfig(Config(), load_settings())
    assert (config.getint("max_proc"), config.getint("http_port")) == (5, 6999)
    assert config.get("eggs_dir") == str(tmp_path / "50%(x)s" / "node" / "eggs")


def test_a_wrong_setting_is_a_configuration_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_SLOTS", "many")
    with pytest.raises(NodeConfigError, match="NODE_SLOTS"):
        load_settings()


def test_there_is_always_a_user_name_and_never_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(values={})
    config.cp.set("scrapyd", "password", "in a file")
    monkeypatch.delenv("SCRAPYD_USERNAME", raising=False)
    for password in ("", None):
        monkeypatch.delenv("SCRAPYD_PASSWORD", raising=False)
        if password is not None:
            monkeypatch.setenv("SCRAPYD_PASSWORD", password)
        with pytest.raises(NodeConfigError, match="SCRAPYD_PASSWORD"):
            NodeConfig(config, load_settings())
    monkeypatch.setenv("SCRAPYD_PASSWORD", "x")
    NodeConfig(config, load_settings())
    assert (config.get("username"), config.get("password")) == ("discoverybot", "x")


def test_the_password_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCRAPYD_PASSWORD", raising=False)
    monkeypatch.setenv("DISCOVERYBOT_SECRETS", str(tmp_path))
    (tmp_path / "scrapyd_password").write_text("a file's\n")
    config = NodeConfig(Config(values={}), load_settings())
    assert config.get("password") == "a file's"


def test_scrapyd_conf_says_something_about_every_option_that_scrapyd_has() -> None:
    ours, theirs = Config(), Config(values={})
    theirs.cp.read_string(files("scrapyd").joinpath("default_scrapyd.conf").read_text())
    text = (ROOT / "scrapyd.conf").read_text()
    for section in ("scrapyd", "services"):
        for option in theirs.cp.options(section):
            assert re.search(rf"^{re.escape(option)}\s*=", text, re.MULTILINE), option
            same = theirs.cp.get(section, option) == ours.cp.get(section, option)
            assert same or re.search(rf"^#.*\n(?:.*=.*\n)*{re.escape(option)}\s*=", text, re.MULTILINE), option


# --- environment

SECRETS = {name.upper() for name in Settings.model_fields} - {name.upper() for name in NodeSettings.model_fields}


def test_a_spider_is_told_the_nodes_settings_and_none_of_the_gateways() -> None:
    environ = dict.fromkeys({name.upper() for name in Settings.model_fields}, "x")
    assert {"MONGO_URI", "SCRAPYD_PASSWORD", "BROKER_URL"} <= SECRETS
    assert set(allowed(environ)) == {name.upper() for name in NodeSettings.model_fields}


def test_what_python_and_the_system_need_is_kept_and_all_else_dropped() -> None:
    kept = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE"]
    dropped = ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "path", "SCRAPY_SETTINGS_MODULE", "LD_PRELOAD"]
    assert list(allowed(dict.fromkeys([*kept, *dropped], "x"))) == kept


def test_of_what_is_in_files_a_spider_is_told_only_the_password_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_cache_redis_password", "scrapyd_password"):
        (tmp_path / name).write_text("from-a-file")
    monkeypatch.setenv("DISCOVERYBOT_SECRETS", str(tmp_path))
    monkeypatch.setenv("HTTP_CACHE_REDIS_URL", "redis://cache/0")
    env = NodeEnvironment(NodeConfig(Config(values={}), ScrapydSettings.load())).for_project("default")
    assert env["HTTP_CACHE_REDIS_URL"] == "redis://:from-a-file@cache/0"
    assert [name for name, value in env.items() if "from-a-file" in value] == [
        "HTTP_CACHE_REDIS_URL",
        "DISCOVERYBOT_NODE",
    ]
    assert "DISCOVERYBOT_SECRETS" not in env
