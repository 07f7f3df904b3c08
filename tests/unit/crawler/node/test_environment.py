from __future__ import annotations

from pathlib import Path

import pytest
from scrapyd.config import Config

from crawler.node.config import NodeConfig, NodeEnvironment, allowed
from gateway.settings import NodeSettings, ScrapydSettings, Settings

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
    assert [name for name, value in env.items() if "from-a-file" in value] == ["HTTP_CACHE_REDIS_URL"]
    assert "DISCOVERYBOT_SECRETS" not in env
