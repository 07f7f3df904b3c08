from __future__ import annotations

from crawler.node.environment import allowed
from gateway.settings import NodeSettings, Settings

SECRETS = {name.upper() for name in Settings.model_fields} - {name.upper() for name in NodeSettings.model_fields}


def test_a_spider_is_told_the_nodes_settings_and_none_of_the_gateways() -> None:
    environ = dict.fromkeys({name.upper() for name in Settings.model_fields}, "x")
    assert {"MONGO_URI", "SCRAPYD_PASSWORD", "BROKER_URL"} <= SECRETS
    assert set(allowed(environ)) == {name.upper() for name in NodeSettings.model_fields}


def test_what_python_and_the_system_need_is_kept_and_all_else_dropped() -> None:
    kept = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE"]
    dropped = ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "path", "SCRAPY_SETTINGS_MODULE", "LD_PRELOAD"]
    assert list(allowed(dict.fromkeys([*kept, *dropped], "x"))) == kept
