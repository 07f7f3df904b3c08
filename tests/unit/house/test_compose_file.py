"""The compose file starts our processes, hands them settings that exist, and opens no door to the outside."""

from __future__ import annotations

import re
from ipaddress import ip_address

import pytest
from unit.house.compose_file import Build, Service, interpolated_names, read_compose_file
from unit.house.sources import ROOT

from gateway.settings import OUTSIDE_SETTINGS, NodeSettings, Settings

COMPOSE = read_compose_file()
PROCESSES = {
    "scheduler": "python -m gateway.web",
    "worker": "celery -A celery_app worker",
    "beat": "celery -A celery_app beat",
    "scrapyd": "scrapyd --pidfile=",
    "tailer": "python -m gateway.tailer",
}
STORES = {"mongodb": "mongo:8", "redis": "redis:8", "redis-cache": "redis:8", "rabbitmq": "rabbitmq:4"}
#: Of the images that are not ours.
IMAGES_OWN = {
    "MONGO_INITDB_ROOT_USERNAME",
    "MONGO_INITDB_ROOT_PASSWORD",
    "REDISCLI_AUTH",
    "RABBITMQ_DEFAULT_USER",
    "RABBITMQ_DEFAULT_PASS",
}
SECRETS = {"MONGO_PASSWORD", "REDIS_PASSWORD", "RABBITMQ_PASSWORD", "SCRAPYD_PASSWORD"}
#: Settings that the compose file has a default of its own for: it serves a whole machine.
RAISED = {"GATEWAY_WORKERS"}
SETTINGS = {name.upper() for name in Settings.model_fields}
NODE_SETTINGS = {name.upper() for name in NodeSettings.model_fields}
OURS = {name: COMPOSE.services[name] for name in PROCESSES}
EVERY = pytest.mark.parametrize("service", COMPOSE.services.values(), ids=COMPOSE.services)


def test_it_has_the_services_of_the_architecture() -> None:
    assert set(COMPOSE.services) == set(PROCESSES) | set(STORES)
    assert {name: COMPOSE.services[name].image for name in STORES} == STORES


@pytest.mark.parametrize("name", PROCESSES)
def test_each_of_our_processes_runs_its_plain_command_in_our_image(name: str) -> None:
    assert " ".join(OURS[name].command) == PROCESSES[name]
    target = "node" if name == "scrapyd" else "scheduler"
    assert OURS[name].image == f"discoverybot/{target}"
    assert OURS[name].build == Build(context=".", target=target)
    assert f" AS {target}\n" in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert OURS[name].cap_drop == ["ALL"]


@EVERY
def test_every_variable_it_sets_is_one_that_somebody_reads(service: Service) -> None:
    known = SETTINGS | OUTSIDE_SETTINGS if service in OURS.values() else IMAGES_OWN
    assert set(service.environment) <= known


def test_it_takes_secrets_and_settings_from_the_environment_and_nothing_else() -> None:
    assert interpolated_names() <= SETTINGS | SECRETS


def test_it_holds_no_secret() -> None:
    values = [str(value) for service in COMPOSE.services.values() for value in service.environment.values()]
    assert not [value for value in values if re.search(r"://[^/@:]*:(?!\$\{)[^/@]+@", value)]
    passwords = {
        value
        for service in COMPOSE.services.values()
        for name, value in service.environment.items()
        if name.endswith(("PASSWORD", "PASS", "AUTH"))
    }
    assert passwords == {f"${{{name}:?}}" for name in SECRETS}


def test_the_settings_it_hands_over_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, service in OURS.items():
        with monkeypatch.context() as environment:
            for variable, value in service.environment.items():
                environment.setenv(variable, _interpolated(str(value)))
            settings = NodeSettings.load() if name == "scrapyd" else Settings.load()
        assert settings.discoverybot_home


def test_what_is_not_set_is_as_it_is_without_the_compose_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in interpolated_names() - SECRETS - RAISED:
        monkeypatch.delenv(name, raising=False)
    defaults = Settings.load()
    for service in OURS.values():
        handed = {name: str(value) for name, value in service.environment.items()}
        with monkeypatch.context() as environment:
            for name in (interpolated_names() - SECRETS - RAISED) & set(handed):
                environment.setenv(name, _interpolated(handed[name]))
                assert getattr(Settings.load(), name.lower()) == getattr(defaults, name.lower())


@pytest.mark.parametrize(
    ("name", "readers"),
    [
        ("CRAWL_ALLOW_NETWORKS", {"scheduler", "worker", "beat", "scrapyd", "tailer"}),
        ("CRAWL_MEMORY_LIMIT", {"scrapyd"}),
        ("NODE_KEEP_SECONDS", {"scrapyd", "tailer"}),
        *((f"{part}_RETENTION_DAYS", {"scheduler", "worker", "beat", "tailer"}) for part in ("JOB", "ITEM", "LOG")),
    ],
)
def test_who_sets_it_beside_the_compose_file_sets_it_for_all_who_read_it(name: str, readers: set[str]) -> None:
    handed = {service for service in OURS if f"${{{name}:-" in str(OURS[service].environment.get(name))}
    assert handed == readers


def test_spiders_are_handed_no_secret_of_the_stores() -> None:
    own_door = {"SCRAPYD_BIND_ADDRESS", "SCRAPYD_USERNAME", "SCRAPYD_PASSWORD"}
    assert set(OURS["scrapyd"].environment) <= NODE_SETTINGS | own_door


def test_spiders_know_of_no_redis_but_the_one_that_may_forget() -> None:
    told = {value for name, value in OURS["scrapyd"].environment.items() if name.endswith("REDIS_URL")}
    assert told == {"redis://redis-cache:6379/0"}


def test_scrapyd_and_its_tailer_are_one_node() -> None:
    scrapyd, tailer = OURS["scrapyd"], OURS["tailer"]
    assert scrapyd.volumes == tailer.volumes
    for name in ("NODE_NAME", "NODE_URL", "NODE_SLOTS", "NODE_RENDER_SLOTS"):
        assert scrapyd.environment[name] == tailer.environment[name]


@EVERY
def test_what_it_publishes_it_publishes_on_loopback_only(service: Service) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service.ports)


@EVERY
def test_each_service_comes_back_and_is_on_one_network(service: Service) -> None:
    assert service.restart == "unless-stopped"
    on_the_host = service is OURS["scheduler"]
    assert service.networks == ([] if on_the_host else ["discoverybot-network"])
    assert service.network_mode == ("host" if on_the_host else None)


def test_the_gateway_finds_on_the_host_what_it_knows_by_name() -> None:
    for name in (host.partition(":")[0] for host in OURS["scheduler"].extra_hosts):
        (port,) = COMPOSE.services[name].ports
        assert port.split(":")[1] == port.split(":")[2]
    assert {"mongodb", "redis", "rabbitmq", "scrapyd"} == {
        host.removesuffix(":127.0.0.1") for host in OURS["scheduler"].extra_hosts
    }


def test_the_gateway_listens_where_it_is_allowed_to() -> None:
    assert ip_address(str(OURS["scheduler"].environment["GATEWAY_HOST"])).is_loopback


@EVERY
def test_what_it_waits_for_can_become_healthy(service: Service) -> None:
    assert all(COMPOSE.services[name].healthcheck for name in service.depends_on)


def test_every_volume_is_declared_and_used() -> None:
    used = {volume.partition(":")[0] for service in COMPOSE.services.values() for volume in service.volumes}
    assert used == set(COMPOSE.volumes)


def _interpolated(value: str) -> str:
    """As Compose does it: the default where there is one, else a value of ours."""
    return re.sub(r"\$\{[A-Z_]+(?::-([^}]*)|:\?)\}", lambda match: "secret" if match[1] is None else match[1], value)
