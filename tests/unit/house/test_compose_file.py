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
    "scrapyd": "python -m crawler.node.place scrapyd --pidfile=",
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
OWN_DEFAULT = {"GATEWAY_WORKERS", "NODE_NAME"}
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
    assert OURS[name].read_only
    assert "USER discoverybot" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


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
    for name in interpolated_names() - SECRETS - OWN_DEFAULT:
        monkeypatch.delenv(name, raising=False)
    defaults = Settings.load()
    for service in OURS.values():
        handed = {name: str(value) for name, value in service.environment.items()}
        with monkeypatch.context() as environment:
            for name in (interpolated_names() - SECRETS - OWN_DEFAULT) & set(handed):
                environment.setenv(name, _interpolated(handed[name]))
                assert getattr(Settings.load(), name.lower()) == getattr(defaults, name.lower())


@pytest.mark.parametrize(
    ("name", "readers"),
    [
        ("CRAWL_ALLOW_NETWORKS", {"scheduler", "worker", "beat", "scrapyd", "tailer"}),
        ("CRAWL_MEMORY_LIMIT", {"scrapyd"}),
        ("NODE_KEEP_SECONDS", {"scrapyd", "tailer"}),
        ("CRAWL_USER_RUNNING_MAX", {"scheduler", "worker", "beat", "tailer"}),
        *(
            (f"{part}_RETENTION_DAYS", {"scheduler", "worker", "beat", "tailer"})
            for part in ("JOB", "ITEM", "LOG", "AUDIT")
        ),
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


def test_each_scrapyd_takes_a_place_on_the_volume_of_which_the_tailer_serves_all() -> None:
    scrapyd, tailer = OURS["scrapyd"], OURS["tailer"]
    assert scrapyd.volumes == tailer.volumes == ["nodes:/data"]
    for name in ("NODES_DIR", "NODE_NAME", "NODE_SLOTS", "NODE_RENDER_SLOTS"):
        assert scrapyd.environment[name] == tailer.environment[name]
    assert not {"NODE_URL", "DISCOVERYBOT_HOME"} & {*scrapyd.environment, *tailer.environment}


@pytest.mark.parametrize("name", ["scrapyd", "worker"])
def test_what_may_be_scaled_claims_no_port_and_no_name_for_itself(name: str) -> None:
    assert OURS[name].hostname is None
    assert all("-" in port.split(":")[1] for port in OURS[name].ports)


@EVERY
def test_what_it_publishes_it_publishes_on_loopback_only(service: Service) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service.ports)


@EVERY
def test_each_service_comes_back_and_is_on_one_network(service: Service) -> None:
    assert service.restart == "unless-stopped"
    assert service.networks == ["discoverybot-network"]


@EVERY
def test_each_service_has_a_health_check_and_takes_no_more_than_its_share(service: Service) -> None:
    assert service.healthcheck
    assert service.deploy.resources.limits.memory
    assert service.deploy.resources.limits.pids


def test_nobody_but_the_gateway_and_scrapyd_can_be_reached_from_the_host() -> None:
    assert {name for name, service in COMPOSE.services.items() if service.ports} == {"scheduler", "scrapyd"}


def test_the_gateway_can_be_reached_by_others_and_so_takes_keys() -> None:
    assert not ip_address(str(OURS["scheduler"].environment["GATEWAY_HOST"])).is_loopback


@EVERY
def test_what_it_waits_for_can_become_healthy(service: Service) -> None:
    assert all(COMPOSE.services[name].healthcheck for name in service.depends_on)


def test_every_volume_is_declared_and_used() -> None:
    used = {volume.partition(":")[0] for service in COMPOSE.services.values() for volume in service.volumes}
    assert used == set(COMPOSE.volumes)


def _interpolated(value: str) -> str:
    """As Compose does it: the default where there is one, else a value of ours."""
    return re.sub(r"\$\{[A-Z_]+(?::-([^}]*)|:\?)\}", lambda match: "secret" if match[1] is None else match[1], value)
