"""`discoverybot up` refuses what cannot work before it starts anything."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import warm
from stores import embedded_mongo, free_port

from embedded.stack.state import only_stack
from gateway.stores.document_format import Format, enter
from gateway.stores.mongo import connect

Up = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def up(tmp_path: Path) -> Up:
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "DISCOVERYBOT_HOME": str(tmp_path), **environment}
        return warm.run("gateway.cli.main", "up", *arguments, env=env)

    return run


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(("setting", "wanted_by"), [("GATEWAY_PORT", "the gateway"), ("SCRAPYD_PORT", "Scrapyd")])
def test_a_taken_port_is_named_with_the_setting_that_moves_it(
    up: Up, taken: int, setting: str, wanted_by: str
) -> None:
    (other,) = {"GATEWAY_PORT", "SCRAPYD_PORT"} - {setting}
    done = up(**{setting: str(taken), other: str(free_port())})
    assert done.returncode == 2
    assert f"port {taken}, which {wanted_by} asks for, is taken" in done.stderr
    assert f"{setting}={taken + 1}" in done.stderr
    assert not done.stdout


def test_a_second_stack_in_one_folder_is_refused(up: Up, tmp_path: Path) -> None:
    with only_stack(tmp_path):
        done = up("--free-ports")
    assert done.returncode == 2
    assert f"runs already (pid {os.getpid()})" in done.stderr
    assert "DISCOVERYBOT_HOME" in done.stderr


def test_a_store_that_is_named_but_away_is_not_replaced(up: Up, taken: int) -> None:
    done = up("--free-ports", REDIS_URL="redis://:secret@127.0.0.1:1/0")
    assert done.returncode == 2
    assert "REDIS_URL: redis://:…@127.0.0.1:1/0 does not answer" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid"])
def test_an_address_that_is_not_this_machines_is_refused_before_anything_starts(up: Up, host: str) -> None:
    done = up("--free-ports", GATEWAY_HOST=host)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: GATEWAY_HOST: {host} is not an address of this machine")
    assert not done.stdout


def test_a_wrong_setting_is_named(up: Up) -> None:
    done = up(GATEWAY_PORT="many")
    assert done.returncode == 2
    assert done.stderr.startswith("error: GATEWAY_PORT: ")


def test_stores_that_a_newer_version_has_written_end_it_with_their_line(up: Up, tmp_path: Path) -> None:
    with embedded_mongo(tmp_path / "newer") as mongo:
        database = connect(str(mongo))
        enter(database, Format(2, 2))
        done = up("--free-ports", MONGO_URI=str(mongo))
        assert done.returncode == 1
        assert "MONGO_URI: a newer version has written to discoverybot at 127.0.0.1:" in done.stdout
        assert "starting it again" not in done.stdout
        assert database.list_collection_names() == ["counters"]
        database.client.close()
