"""A machine joins: what it is told is kept where `up`, or Docker, finds it."""

from __future__ import annotations

import json
import stat
from importlib.metadata import version
from pathlib import Path

import pytest
from dotenv import dotenv_values
from unit.gateway.cli.conftest import Answer, Run, StandIn
from unit.house.compose_file import NODE, interpolated, interpolated_names, read_compose_file

from gateway.access.invitation import NodeVariables
from gateway.cli.join import SHARED
from gateway.container import Container
from gateway.settings import Settings

TOLD = {
    "MONGO_URI": "mongodb://discoverybot:p$w@10.0.0.2:27017/discoverybot?authSource=admin",
    "REDIS_URL": "redis://:p%23@10.0.0.2:6379/0",
    "BROKER_URL": "amqp://discoverybot:p@10.0.0.2:5672//",
    "QUEUE_NAME": "it's ${scraping}",
    "SCRAPYD_USERNAME": "somebody",
    "SCRAPYD_PASSWORD": "of-all-nodes",
    "FILES_URL": "s3://crawls/files",
}
ANSWER = Answer(200, {"version": version("discoverybot"), "variables": TOLD})


@pytest.fixture
def folder(gateway: StandIn, run: Run, tmp_path: Path) -> Path:
    """Of a machine that has joined."""
    gateway.says("POST /nodes/join", ANSWER)
    done = run("join", gateway.url, "lyon-1", "--address", "10.0.0.3", "--files", "node", DISCOVERYBOT_KEY="db_once")
    assert done.returncode == 0, done.stderr
    assert "docker compose up" in done.stdout
    return tmp_path / "node"


def test_it_writes_all_that_the_compose_file_of_a_node_reads(folder: Path) -> None:
    given = dotenv_values(folder / ".env", interpolate=False)
    assert set(given) <= interpolated_names(NODE)
    compose = read_compose_file(NODE)
    assert {path.name for path in (folder / "secrets").iterdir()} == set(compose.secrets)
    for service in compose.services.values():
        for value in (*service.ports, *map(str, service.environment.values())):
            interpolated(value, given)
    assert interpolated(compose.services["scrapyd"].ports[0], given) == "10.0.0.3:6800:6800"


def test_the_tailer_finds_in_them_what_the_gateway_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = dotenv_values(folder / ".env", interpolate=False)
    for name, value in read_compose_file(NODE).services["tailer"].environment.items():
        monkeypatch.setenv(name, interpolated(str(value), given))
    monkeypatch.setenv("DISCOVERYBOT_SECRETS", str(folder / "secrets"))
    settings = Settings.load()
    found = {name: getattr(settings, name.lower()) for name in TOLD}
    assert found | {"SCRAPYD_PASSWORD": settings.scrapyd_password.get_secret_value()} == TOLD
    assert not settings.files_secret_key
    assert (settings.node_name, settings.node_base_url) == ("lyon-1", "http://10.0.0.3:6800")


def test_what_is_no_setting_of_a_node_is_not_kept(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    hostile = {"LD_PRELOAD": "/tmp/x.so", "PYTHONPATH": "/tmp", "COMPOSE_FILE": "x.yml", "SECRETS_KEY": "x"}
    gateway.says("POST /nodes/join", Answer(200, {**ANSWER.body, "variables": TOLD | hostile}))
    for options in ([], ["--files", "node"]):
        done = run("join", gateway.url, "lyon-1", "--address", "10.0.0.3", *options, DISCOVERYBOT_KEY="db_once")
        assert done.returncode == 0, done.stderr
        assert "https" not in done.stderr
    [kept] = tmp_path.rglob("node.json")
    for text in (kept.read_text(), (tmp_path / "node" / ".env").read_text()):
        assert not [name for name in hostile if name in text]


def test_a_value_that_would_begin_a_line_of_its_own_is_refused(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    lines = TOLD | {"QUEUE_NAME": "scraping'\nCOMPOSE_FILE=x.yml"}
    gateway.says("POST /nodes/join", Answer(200, {**ANSWER.body, "variables": lines}))
    done = run("join", gateway.url, "lyon-1", "--address", "10.0.0.3", "--files", "node", DISCOVERYBOT_KEY="db_once")
    assert (done.returncode, "QUEUE_NAME: is not one line" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "node" / ".env").exists()


def test_what_a_gateway_tells_is_what_a_node_takes() -> None:
    key = {"files_access_key": "k", "files_secret_key": "s"}
    s3 = {"files_endpoint": "http://s3.example", "files_region": "x", **key}
    told = s3 | {name.lower(): value for name, value in TOLD.items()}
    variables = Container(Settings.model_validate(told))[NodeVariables]
    assert variables.shared.keys() | variables.needed == SHARED


def test_a_node_logs_in_to_the_stores_as_whom_it_was_given(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    own = {
        "MONGO_URI": "mongodb://lyon-1:m@10.0.0.2/discoverybot?authSource=admin",
        "REDIS_URL": "redis://lyon-1:r@10.0.0.2/0",
        "BROKER_URL": "amqp://lyon-1:b@10.0.0.2//",
    }
    gateway.says("POST /nodes/join", ANSWER)
    done = run(
        *("join", gateway.url, "lyon-1", "--address", "10.0.0.3"), DISCOVERYBOT_KEY="db_once", NODE_UIDS="3-9", **own
    )
    assert (done.returncode, "NODE_UIDS" in done.stderr) == (0, False), done.stderr
    # never their values
    assert [asked.body for asked in gateway.asked("/nodes/join")] == [{"name": "lyon-1", "has": sorted(own)}]
    [kept] = tmp_path.rglob("node.json")
    kept_settings = json.loads(kept.read_bytes())
    assert kept_settings.items() >= (TOLD | own | {"NODE_UIDS": "3-9"}).items()


def test_who_lets_all_projects_be_one_user_is_told_what_that_means(gateway: StandIn, run: Run) -> None:
    gateway.says("POST /nodes/join", ANSWER)
    done = run("join", gateway.url, "lyon-1", "--address", "10.0.0.3", DISCOVERYBOT_KEY="db_once")
    assert (done.returncode, "can read its stores' passwords" in done.stderr) == (0, True), done.stderr


def test_the_way_to_another_machine_is_to_be_encrypted(run: Run) -> None:
    done = run("join", "http://gateway.invalid", "lyon-1", "--address", "10.0.0.3", DISCOVERYBOT_KEY="db_once")
    assert "without https://" in done.stderr


def test_no_secret_is_in_the_environment_and_their_folder_is_closed(folder: Path) -> None:
    assert not [name for name in dotenv_values(folder / ".env") if name.endswith(("PASSWORD", "_URI", "SECRET_KEY"))]
    assert stat.S_IMODE((folder / "secrets").stat().st_mode) == 0o700
    # each image reads them as a user of its own
    assert {stat.S_IMODE(file.stat().st_mode) for file in (folder / "secrets").iterdir()} == {0o444}


def test_a_machine_that_has_joined_does_not_join_anew(folder: Path, gateway: StandIn, run: Run) -> None:
    done = run("join", gateway.url, "lyon-1", "--files", "node", DISCOVERYBOT_KEY="db_another")
    assert done.returncode == 2
    assert "node/.env: this machine has joined already" in done.stderr
    assert len(gateway.asked("/nodes/join")) == 1


def test_an_invitation_is_kept_where_nothing_can_be_written(gateway: StandIn, run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    gateway.says("POST /nodes/join", ANSWER)
    done = run(
        "join", gateway.url, "lyon-1", "--address", "10.0.0.3", "--files", "file/node", DISCOVERYBOT_KEY="db_x"
    )
    assert (done.returncode, "cannot be written to" in done.stderr) == (2, True), done.stderr
    assert not gateway.asked("/nodes/join")
