"""A machine joins: what it is told is kept where `up`, or Docker, finds it."""

from __future__ import annotations

import stat
from importlib.metadata import version
from pathlib import Path

import pytest
from dotenv import dotenv_values
from unit.gateway.cli.conftest import Answer, Run, StandIn
from unit.house.compose_file import NODE, interpolated, interpolated_names, read_compose_file

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
