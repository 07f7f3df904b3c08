from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.errors import SettingsError
from gateway.settings import NodeSettings, ScrapydSettings, Settings, kept_secret


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Settings.load()


def test_every_setting_has_a_default(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch)
    assert settings.gateway_port == 8001
    assert settings.redis_location == settings.broker_location == "redis://127.0.0.1:6379/0"


def test_a_broker_without_its_library_ends_the_process_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.settings.find_spec", {"boto3": None}.get)
    with pytest.raises(SettingsError, match=r"BROKER_URL.*discoverybot\[sqs\]"):
        load(monkeypatch, BROKER_URL="sqs://")


def test_traces_without_their_library_end_the_process_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.settings.find_spec", {"opentelemetry.sdk": object()}.get)
    with pytest.raises(SettingsError, match=r"OTEL_EXPORTER_OTLP_ENDPOINT.*discoverybot\[otel\]"):
        load(monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT="http://collector:4318")


def test_an_empty_endpoint_of_traces_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, OTEL_EXPORTER_OTLP_ENDPOINT="").otel_exporter_otlp_endpoint is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("GATEWAY_PORT", "eighty"), ("GATEWAY_PORT", "70000"), ("CRAWL_CACHE_TTL", "0"), ("LOG_LEVEL", "loud"),
     ("NODE_DEAD_AFTER", "11"),
     ("CRAWL_ALLOW_NETWORKS", "127.0.0.1/33"), ("CRAWL_ALLOW_NETWORKS", "none"),
     ("WEBHOOK_ALLOW_NETWORKS", "none, 10.1.0.0/16"), ("NODE_SLOTS", "0"), ("NODE_NAME", "../x"), ("NODE_URL", "ftp://x"),
     ("GATEWAY_RATE_LIMIT", "lots"), ("GATEWAY_RATE_LIMIT", "0/minute"), ("GATEWAY_RATE_LIMIT", "5/second;none"),
     ("GATEWAY_CORS_ORIGINS", "*"), ("GATEWAY_CORS_ORIGINS", "https://app.example, app.example"),
     ("FORWARDED_ALLOW_IPS", "*"), ("SCRAPYD_URL", "node1:6800"), ("SCRAPYD_URL", "http://node1:6800,node2"),
     ("SCRAPYD_URL", "http://"), ("SCRAPYD_URL", "http://node1:port"),
     ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")],
)  # fmt: skip
def test_a_malformed_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: "):
        load(monkeypatch, **{name: value})


@pytest.mark.parametrize("process", ["gateway.web", "gateway.tailer", "celery -A celery_app worker"])
def test_a_process_with_a_malformed_setting_ends_with_one_line(process: str) -> None:
    command = [sys.executable, "-m", *process.split()]
    environment = {**os.environ, "MONGO_URI": "localhost:27017"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"\w+: MONGO_URI must begin with .+\n", done.stderr)


def test_an_unknown_setting_with_a_prefix_of_ours_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="CRAWL_CASH_TTL"):
        load(monkeypatch, CRAWL_CASH_TTL="5")


def test_a_mongo_uri_must_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="MONGO_URI"):
        load(monkeypatch, MONGO_URI="localhost:27017")


def test_redis_and_the_broker_are_found_in_their_documented_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        load(monkeypatch, REDIS_HOST="cache", REDIS_PORT="7000", REDIS_DB="3").redis_location
        == "redis://cache:7000/3"
    )
    assert load(monkeypatch, REDIS_URL="redis://r:1/0").broker_location == "redis://r:1/0"
    assert load(monkeypatch, RABBITMQ_URL="amqp://q//").broker_location == "amqp://q//"
    assert load(monkeypatch, BROKER_URL="sqs://").broker_location == "sqs://"


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DISCOVERYBOT_SECRETS", str(tmp_path))
    return tmp_path


def test_a_setting_may_be_a_file(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (secrets / "scrapyd_password").write_text("from a file\n")
    (secrets / "MAX_RETRIES").write_text("7")
    (secrets / ".hidden").write_text("")
    (secrets / "a-folder").mkdir()
    settings = load(monkeypatch)
    assert (settings.scrapyd_password.get_secret_value(), settings.max_retries) == ("from a file", 7)
    assert load(monkeypatch, MAX_RETRIES="2").max_retries == 2


def test_a_password_gets_into_the_url_that_has_none(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mongo", "redis", "rabbitmq"):
        (secrets / f"{name}_password").write_text("p@ss/word")
    (secrets / "http_cache_redis_password").write_text("spiders/pass")
    settings = load(
        monkeypatch,
        MONGO_URI="mongodb://user@one,two:1/db?authSource=admin",
        REDIS_HOST="three",
        RABBITMQ_URL="amqp://user@four//",
        HTTP_CACHE_REDIS_URL="redis://five/0",
    )
    assert settings.mongo_uri == "mongodb://user:p%40ss%2Fword@one,two:1/db?authSource=admin"
    assert settings.redis_location == "redis://:p%40ss%2Fword@three:6379/0"
    assert settings.broker_location == "amqp://user:p%40ss%2Fword@four//"
    assert NodeSettings.load().http_cache_redis_url == "redis://:spiders%2Fpass@five/0"
    assert load(monkeypatch, REDIS_URL="redis://:own@three").redis_location == "redis://:own@three"


@pytest.mark.parametrize("seen", ["HTTP_CACHE_REDIS_URL", "RATE_LIMIT_REDIS_URL"])
@pytest.mark.parametrize(
    ("kept", "value"),
    [
        ("MONGO_URI", "mongodb://user:p%40ss@one,two:1/db"),
        ("REDIS_URL", "redis://:p%40ss@one/0"),
        ("REDIS_PASSWORD", "p@ss"),
        ("RABBITMQ_URL", "amqp://user:p%40ss@one//"),
        ("BROKER_URL", "amqps://user:p%40ss@one//"),
        ("SCRAPYD_PASSWORD", "p@ss"),
    ],
)
def test_a_password_that_spiders_see_is_nothing_elses(
    monkeypatch: pytest.MonkeyPatch, seen: str, kept: str, value: str
) -> None:
    load(monkeypatch, **{seen: "redis://:its-own@cache/0", kept: value})
    with pytest.raises(SettingsError, match=f"^{seen} has the same password as {kept}, and every spider can read it"):
        load(monkeypatch, **{seen: "redis://:p%40ss@cache/0"})


def test_a_node_that_knows_no_store_compares_its_own_password(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_cache_redis_password", "scrapyd_password"):
        (secrets / name).write_text("the same")
    monkeypatch.setenv("HTTP_CACHE_REDIS_URL", "redis://cache/0")
    with pytest.raises(SettingsError, match=r"^HTTP_CACHE_REDIS_URL has the same password as SCRAPYD_PASSWORD"):
        ScrapydSettings.load()


def test_a_password_of_nobody_is_named(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (secrets / "mongo_password").write_text("x")
    with pytest.raises(SettingsError, match="MONGO_PASSWORD is set, but MONGO_URI names no user"):
        load(monkeypatch)


def test_a_file_that_is_no_setting_is_named(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (secrets / "mongo_pasword").write_text("x")
    with pytest.raises(SettingsError, match="mongo_pasword"):
        load(monkeypatch)
    with pytest.raises(SettingsError, match="DISCOVERYBOT_SECRETS: /nowhere cannot be read"):
        load(monkeypatch, DISCOVERYBOT_SECRETS="/nowhere")


def test_nodes_are_kept_as_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    urls = load(monkeypatch, SCRAPYD_URL="http://Node1:6800/, https://crawl.example/scrapyd").scrapyd_url
    assert urls == ("http://Node1:6800", "https://crawl.example/scrapyd")


def test_networks_are_a_comma_separated_list(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, CRAWL_ALLOW_NETWORKS="127.0.0.0/8, ::1/128")
    assert [str(network) for network in settings.allowed_networks] == ["127.0.0.0/8", "::1/128"]


@pytest.mark.parametrize(
    ("value", "networks"), [("", ["127.0.0.0/8"]), ("none", []), ("10.1.0.0/16, ::1/128", ["10.1.0.0/16", "::1/128"])]
)
def test_webhooks_have_networks_of_their_own_or_those_of_crawls(
    monkeypatch: pytest.MonkeyPatch, value: str, networks: list[str]
) -> None:
    settings = load(monkeypatch, CRAWL_ALLOW_NETWORKS="127.0.0.0/8", WEBHOOK_ALLOW_NETWORKS=value)
    assert [str(network) for network in settings.webhook_networks] == networks


def test_a_node_knows_no_password_and_no_store() -> None:
    assert not {"mongo_uri", "scrapyd_password", "broker_url", "redis_url"} & set(NodeSettings.model_fields)


def test_a_kept_secret_is_one_for_all_who_ask_and_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "home" / "secret"
    with ThreadPoolExecutor(8) as threads:
        answers = set(threads.map(kept_secret, [file] * 40))
    assert len(answers) == 1
    assert len(answers.pop()) >= 32
    assert [path.name for path in file.parent.iterdir()] == ["secret"]
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_signing_key_is_the_one_that_is_set_or_the_one_that_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = load(monkeypatch, DISCOVERYBOT_HOME=str(tmp_path)).signing_key
    assert load(monkeypatch, DISCOVERYBOT_HOME=str(tmp_path)).signing_key == kept
    assert load(monkeypatch, GATEWAY_SIGNING_KEY="k" * 32).signing_key == "k" * 32
    with pytest.raises(SettingsError, match="GATEWAY_SIGNING_KEY"):
        load(monkeypatch, GATEWAY_SIGNING_KEY="k" * 31)
    monkeypatch.delenv("GATEWAY_SIGNING_KEY")
    (tmp_path / "signing-key").write_text("")
    with pytest.raises(SettingsError, match=r"GATEWAY_SIGNING_KEY.*empty"):
        _ = load(monkeypatch, DISCOVERYBOT_HOME=str(tmp_path)).signing_key
    with pytest.raises(SettingsError, match=r"GATEWAY_SIGNING_KEY.*Not a directory"):
        _ = load(monkeypatch, DISCOVERYBOT_HOME=str(tmp_path / "signing-key" / "x")).signing_key


def test_keys_of_secrets_are_those_that_are_set_or_the_one_that_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (kept,) = load(monkeypatch, DISCOVERYBOT_HOME=str(tmp_path)).secrets_keys
    assert load(monkeypatch, DISCOVERYBOT_HOME=str(tmp_path)).secrets_keys == (kept,)
    assert (tmp_path / "secrets-key").stat().st_mode & 0o777 == 0o600
    assert load(monkeypatch, SECRETS_KEY=f"{'a' * 32}, {'b' * 40}").secrets_keys == ("a" * 32, "b" * 40)
    for wrong in ("a" * 31, f"{'a' * 32},", f"{'a' * 32},{'b' * 31}"):
        with pytest.raises(SettingsError, match="SECRETS_KEY") as refused:
            load(monkeypatch, SECRETS_KEY=wrong)
        assert "aaa" not in str(refused.value)


@pytest.mark.parametrize("name", ["Handler", "a.b c", "a..b", ".a", "a.b:C"])
def test_an_allowed_handler_is_the_dotted_name_of_a_class(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert load(monkeypatch, CRAWL_ALLOW_HANDLERS="a.b.C, d.E").crawl_allow_handlers == ("a.b.C", "d.E")
    with pytest.raises(SettingsError, match="CRAWL_ALLOW_HANDLERS"):
        load(monkeypatch, CRAWL_ALLOW_HANDLERS=name)


def test_exports_may_be_written_only_to_folders_and_buckets() -> None:
    found = Settings(export_to="/srv/exports/, s3://lake/{user}").export_to  # type: ignore[arg-type]  # as a variable
    assert found == ("file:///srv/exports", "s3://lake/{user}")
    assert Settings().export_to == ()
    for wrong in ("exports", "ftp://host/x", "s3://key:secret@lake"):
        with pytest.raises(ValidationError, match="export_to"):
            Settings(export_to=wrong)  # type: ignore[arg-type]  # the same
