"""What is decided before anything starts."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import pytest

from embedded.stack.ports import PICKED, PortPicker, is_free
from embedded.stack.state import AlreadyRunningError, StackState, only_stack
from embedded.stack.stores import StackStore, other_redis_database, redacted
from embedded.stack.up import SERVICES_HANDLERS, make_plan, processes, scrapyd_password
from gateway.errors import SettingsError
from gateway.settings import Settings


def _state(**more: object) -> StackState:
    names = ("gateway_url", "scrapyd_url", "scrapyd_username", "scrapyd_password", "redis_url", "mongo_uri")
    return StackState.model_validate({**dict.fromkeys(names, "x"), **more})


def test_a_port_is_kept_over_restarts_while_it_is_free() -> None:
    first = PortPicker({}).pick("redis")
    assert PortPicker({"redis": first}).pick("redis") == first


def test_no_port_is_picked_that_the_system_may_give_to_somebody_else_meanwhile() -> None:
    ports = PortPicker({})
    picked = [ports.pick(name) for name in ("redis", "mongo", "scrapyd", "gateway")]
    assert len(set(picked)) == 4
    assert set(picked) <= set(PICKED)


def test_stacks_that_start_at_the_same_time_do_not_pick_the_same_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    picked = []
    for pid in (4711, 4712):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        ports = PortPicker({})
        picked += [ports.pick(name) for name in ("redis", "mongo", "scrapyd", "gateway")]
    assert len(set(picked)) == 8


def test_another_port_is_picked_when_the_old_one_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        assert not is_free(taken)
        assert PortPicker({"redis": taken}).pick("redis") != taken


def test_the_password_of_scrapyd_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    made = scrapyd_password(Settings(), tmp_path)
    assert len(made) >= 20
    assert scrapyd_password(Settings(), tmp_path) == made
    assert stat.S_IMODE((tmp_path / "scrapyd-password").stat().st_mode) == 0o600


def test_a_password_that_is_given_wins(tmp_path: Path) -> None:
    assert scrapyd_password(Settings.model_validate({"scrapyd_password": "mine"}), tmp_path) == "mine"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("url", "other"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/2"),
        ("rediss://u:p@host", "rediss://u:p@host/2"),
        ("redis://host/3?ssl=1", "redis://host/5?ssl=1"),
        ("unix:///tmp/redis.sock", None),
    ],
)
def test_the_broker_has_a_database_of_its_own(url: str, other: str | None) -> None:
    assert other_redis_database(url, 2) == other


def test_a_url_is_shown_without_its_password() -> None:
    assert redacted("mongodb://me:secret@host/db") == "mongodb://me:…@host/db"


def test_the_stack_tells_its_processes_where_everything_is(tmp_path: Path) -> None:
    plan = make_plan(Settings(), tmp_path, free_ports=True)
    environment = plan.environment
    assert environment["DISCOVERYBOT_HOME"] == str(tmp_path)
    assert environment["EXPORT_TO"] == str(tmp_path / "exports")
    assert len({environment[name] for name in ("REDIS_URL", "HTTP_CACHE_REDIS_URL", "BROKER_URL")}) == 3
    assert [process.name for process in processes(plan)] == [
        *("redis", "mongo", "scrapyd", "tailer", "worker", "beat", "gateway")
    ]


def test_no_credential_of_a_store_is_handed_to_spiders(tmp_path: Path) -> None:
    plan = make_plan(Settings(), tmp_path, free_ports=True)
    cache, redis = (urlsplit(plan.environment[name]) for name in ("HTTP_CACHE_REDIS_URL", "REDIS_URL"))
    assert cache.netloc.rpartition("@")[2] == redis.netloc.rpartition("@")[2]
    assert cache.username
    assert cache.password != redis.password
    # one that is not this stack's own may hold anything, and everybody's
    elsewhere = replace(plan, redis=StackStore("redis://:secret@10.0.0.2/0", "your own"))
    assert "HTTP_CACHE_REDIS_URL" not in elsewhere.environment
    named = Settings.model_validate({"http_cache_redis_url": "redis://:pages@10.0.0.3/0"})
    assert replace(elsewhere, settings=named).environment["HTTP_CACHE_REDIS_URL"] == "redis://:pages@10.0.0.3/0"


def test_scrapyd_is_not_told_where_the_stores_are(tmp_path: Path) -> None:
    table = {process.name: process for process in processes(make_plan(Settings(), tmp_path, free_ports=True))}
    own = {"SECRETS_KEY": "x", "DISCOVERYBOT_KEY": "db_x", "RABBITMQ_PASSWORD": "x", "NODE_SLOTS": "3", "HOME": "/x"}
    told = table["scrapyd"].environment(own)
    assert told.keys() & own.keys() == {"NODE_SLOTS", "HOME"}
    assert not told.keys() & {"MONGO_URI", "REDIS_URL", "BROKER_URL"}
    assert {"SCRAPYD_PASSWORD", "DISCOVERYBOT_HOME", "HTTP_CACHE_REDIS_URL"} <= told.keys()
    assert {"MONGO_URI", "REDIS_URL", "BROKER_URL", *own} <= table["tailer"].environment(own).keys()


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root may start others' processes")
def test_where_projects_have_users_of_their_own_nothing_else_runs_as_root() -> None:
    settings = Settings.model_validate({"node_uids": "42000-42004"})
    # not below the folder of all tests, which is closed to others
    with TemporaryDirectory() as folder:
        home = Path(folder)
        with pytest.raises(SettingsError, match=r"NODE_UIDS: .* belongs to user 0"):
            make_plan(settings, home, free_ports=True)
        os.chown(home, 41_000, 41_001)
        plan = make_plan(settings, home, free_ports=True)
        # its stores can write to them
        assert {(path.stat().st_uid, path.stat().st_gid) for path in home.rglob("*")} == {(41_000, 41_001)}
    for process in processes(plan):
        is_scrapyd = process.name == "scrapyd"
        assert process.user == (None if is_scrapyd else (41_000, 41_001))
        assert ("crawler.node.keeper" in process.command) is is_scrapyd
    assert plan.environment["HOME"] == folder


def test_a_part_of_the_platform_needs_the_addresses_of_the_rest(tmp_path: Path) -> None:
    some = ("scrapyd", "tailer")
    with pytest.raises(SettingsError, match="REDIS_URL: must be set"):
        make_plan(Settings(), tmp_path, free_ports=True, only=some)
    with pytest.raises(SettingsError, match="--only: tailor: the processes are redis, mongo"):
        make_plan(Settings(), tmp_path, free_ports=True, only=("tailor",))
    shared = {"scrapyd_password": "shared"}
    plan = make_plan(Settings.model_validate(shared), tmp_path, free_ports=True, only=("redis", "mongo", "worker"))
    table = {process.name: process.needs for process in processes(plan)}
    assert table == {"redis": (), "mongo": (), "worker": ("redis", "mongo")}


_ALLOWED = ("PROJECT_BUILD_SOURCES", "PROJECT_SOURCES", "PROJECT_LENIENT", "CRAWL_ALLOW_HANDLERS")
_ANYWHERE = "https://,http://,ssh://"
_ZYTE = ",".join(SERVICES_HANDLERS)
_NOTHING = (None, None, None, None)


@pytest.mark.parametrize(
    ("settings", "only", "allowed"),
    [
        ({}, (), ("true", _ANYWHERE, "true", _ZYTE)),
        ({"project_build_sources": False}, (), (None, _ANYWHERE, "true", _ZYTE)),
        ({"project_lenient": False}, (), ("true", _ANYWHERE, None, _ZYTE)),
        ({"crawl_allow_handlers": ()}, (), ("true", _ANYWHERE, "true", None)),
        # others may deploy here, or what they deploy has users of its own
        ({"gateway_host": "0.0.0.0"}, (), _NOTHING),
        ({"node_uids": "20000-20099"}, (), _NOTHING),
        ({"scrapyd_password": "shared"}, ("redis", "mongo", "scrapyd"), _NOTHING),
    ],
)
def test_more_is_allowed_where_the_operator_is_the_user(
    tmp_path: Path, settings: dict[str, object], only: tuple[str, ...], allowed: tuple[str | None, ...]
) -> None:
    given = Settings.model_validate(settings)
    own = given.model_copy(update={"node_uids": None})
    plan = replace(make_plan(own, tmp_path, free_ports=True, only=only), settings=given)
    assert tuple(map(plan.environment.get, _ALLOWED)) == allowed


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:"),
        ("localhost", "http://localhost:"),
        ("[::1]", "http://[::1]:"),
        ("0.0.0.0", "http://127.0.0.1:"),
    ],
)
def test_the_gateway_is_reached_where_it_listens(tmp_path: Path, host: str, url: str) -> None:
    settings = Settings.model_validate({"gateway_host": host})
    assert make_plan(settings, tmp_path, free_ports=True).gateway_url.startswith(url)


def test_the_secrets_of_the_stack_are_for_its_owner_only(tmp_path: Path) -> None:
    _state().write(tmp_path / "stack.json")
    assert stat.S_IMODE((tmp_path / "stack.json").stat().st_mode) == 0o600
    assert StackState.read(tmp_path) == _state()


def test_a_note_that_cannot_be_read_is_no_note(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text("{")
    assert StackState.read(tmp_path) is None


def test_only_processes_that_are_still_the_same_count_as_left_over() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        state = _state().with_pids({"one": process.pid})
        reused = state.model_copy(update={"started": {"one": 1.0}})
        assert [one.pid for one in state.leftovers()] == [process.pid]
        assert not reused.leftovers()
        process.kill()
    assert not state.leftovers()


def test_a_folder_has_one_stack(tmp_path: Path) -> None:
    with only_stack(tmp_path), pytest.raises(AlreadyRunningError, match=str(os.getpid())), only_stack(tmp_path):
        pass
    with only_stack(tmp_path):
        pass
