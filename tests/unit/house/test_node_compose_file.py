"""A node's compose file, and those that are put over the platform's own, differ from it only where they must."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
import yaml
from unit.house.compose_file import NODE, Build, Service, interpolated_names, read_compose_file
from unit.house.sources import ROOT

from gateway.cli.join import SECRETS
from gateway.settings import OUTSIDE_SETTINGS, Settings

MAIN_SERVICES = read_compose_file().services
COMPOSE = read_compose_file(NODE)
SERVICES = COMPOSE.services
#: Where a node of its own, on another machine, is not as several that share a volume beside the stores.
DIFFERENT = {"build", "command", "ports", "environment", "networks", "secrets", "volumes", "depends_on"}
#: Of the environment: its name and address, given by `join`, and how it finds the stores, files and its password.
GIVEN = {"NODE_NAME", "NODE_URL", "SCRAPYD_USERNAME", "QUEUE_NAME", "FILES_URL"}
OVER = ROOT / "deploy/compose"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_as_the_platforms_own(name: str) -> None:
    assert SERVICES[name].model_dump(exclude=DIFFERENT) == MAIN_SERVICES[name].model_dump(exclude=DIFFERENT)
    own, main = SERVICES[name].environment, MAIN_SERVICES[name].environment
    assert {key: own[key] for key in own.keys() - GIVEN} == {key: main[key] for key in own.keys() - GIVEN}


def test_scrapyd_is_told_all_that_it_is_told_on_the_platforms_machine_but_its_place_on_a_volume() -> None:
    own, main = SERVICES["scrapyd"], MAIN_SERVICES["scrapyd"]
    assert main.environment.keys() - own.environment.keys() == {"NODES_DIR"}
    place = ["python", "-m", "crawler.node.place"]
    assert own.command == main.command[:3] + main.command[3 + len(place) :]
    assert main.command[3 : 3 + len(place)] == place
    assert own.build == Build(context="../..", target="node")
    same = {"networks", "secrets", "volumes", "depends_on"}
    assert own.model_dump(include=same) == main.model_dump(include=same)


def test_only_the_tailer_knows_the_stores_and_spiders_are_on_another_network() -> None:
    assert set(SERVICES) == {"scrapyd", "tailer", "redis-cache"}
    knowing = {name for name, service in SERVICES.items() if {"mongo_uri", "redis_url"} & set(service.secret_files)}
    assert knowing == {"tailer"}
    assert not set(SERVICES["tailer"].networks) & set(SERVICES["scrapyd"].networks)
    assert SERVICES["tailer"].volumes == SERVICES["scrapyd"].volumes == ["nodes:/data"]
    assert set(COMPOSE.volumes) == {"nodes"}


def test_nothing_but_scrapyd_is_published_and_that_at_the_address_which_was_joined_with() -> None:
    (port,) = [port for service in SERVICES.values() for port in service.ports]
    assert re.fullmatch(r"\$\{SCRAPYD_BIND_ADDRESS:\?[^}]+\}:\$\{SCRAPYD_PORT:-6800\}:6800", port)


def test_its_secrets_are_those_that_a_join_writes() -> None:
    names = {name.lower() for name in SECRETS}
    assert {name: secret.file for name, secret in COMPOSE.secrets.items()} == {
        name: f"./secrets/{name}" for name in names
    }
    assert {secret for service in SERVICES.values() for secret in service.secret_files} == names
    assert not {name for name in interpolated_names(NODE) if name in SECRETS}


def test_what_it_takes_from_the_environment_is_a_setting() -> None:
    assert interpolated_names(NODE) <= {name.upper() for name in Settings.model_fields} | OUTSIDE_SETTINGS


@pytest.mark.parametrize("file", ["stores-elsewhere.yml", "nodes-elsewhere.yml"])
def test_what_is_put_over_the_platforms_file_is_of_its_form(file: str) -> None:
    for name, part in _over(file).items():
        merged = {**MAIN_SERVICES[name].model_dump(), **part}
        merged["deploy"] = {**MAIN_SERVICES[name].deploy.model_dump(), **part.get("deploy", {})}
        Service.model_validate(merged)


def test_stores_elsewhere_are_not_run_here_and_their_addresses_can_be_said() -> None:
    left_out = {name: part["deploy"] for name, part in _over("stores-elsewhere.yml").items()}
    assert left_out == {name: {"replicas": 0} for name in ("mongodb", "redis", "rabbitmq")}
    environment = MAIN_SERVICES["worker"].environment
    for name in ("MONGO_URI", "REDIS_URL", "RABBITMQ_URL"):
        assert str(environment[name]).startswith(f"${{{name}:-")


def test_nodes_elsewhere_reach_the_stores_where_these_are_published() -> None:
    published = {port for part in _over("nodes-elsewhere.yml").values() for port in part["ports"]}
    assert published == {f"${{STORES_ADDRESS:?}}:{port}:{port}" for port in (27017, 6379, 5672)}


def test_a_node_has_the_same_rights_whichever_page_makes_its_users() -> None:
    pages = [(ROOT / f"docs/how-to/{name}.md").read_text() for name in ("several-machines", "run-on-a-server")]
    for rights in (r"db\.createRole\(.*?\n\]\.map\(.*?\n", r"~logs:\*[^\n\"]+", r"set_permissions \$node [^\n]+"):
        one, other = (re.findall(rights, page, re.DOTALL) for page in pages)
        assert one[0] == other[0]


def _over(file: str) -> dict[str, Any]:
    content: dict[str, dict[str, Any]] = yaml.safe_load((OVER / file).read_text(encoding="utf-8"))
    return content["services"]


# --- TLS


def test_caddy_runs_hardened_and_passes_on_to_the_gateway_alone() -> None:
    caddy = Service.model_validate(_over("tls.yml")["caddy"])
    hardened = {"restart", "cap_drop", "security_opt", "read_only", "ulimits"}
    assert caddy.model_dump(include=hardened) == MAIN_SERVICES["redis"].model_dump(include=hardened)
    assert caddy.cap_add == ["NET_BIND_SERVICE"]
    assert caddy.healthcheck
    text = (ROOT / "deploy/caddy/Caddyfile").read_text(encoding="utf-8")
    assert "./deploy/caddy/Caddyfile:/etc/caddy/Caddyfile:ro" in caddy.volumes
    lines = [line.strip() for line in text.splitlines() if line.startswith("\t")]
    environment = MAIN_SERVICES["scheduler"].environment
    assert lines == [
        "admin off",
        'header Strict-Transport-Security "max-age=31536000"',
        f"reverse_proxy {environment['GATEWAY_HOST']}:{environment['GATEWAY_PORT']}",
    ]
    assert re.findall(r"\{\$(\w+)\}", text) == list(caddy.environment) == ["TLS_HOST"]


def test_the_gateway_believes_caddy_and_nobody_else_whose_request_it_is() -> None:
    over = _over("tls.yml")
    networks = Service.model_validate(over["caddy"]).networks
    assert isinstance(networks, dict)
    ((network, use),) = networks.items()
    assert network in MAIN_SERVICES["scheduler"].networks
    assert over["scheduler"] == {"environment": {"FORWARDED_ALLOW_IPS": use.ipv4_address}}
    content = yaml.safe_load((OVER / "tls.yml").read_text(encoding="utf-8"))
    (pool,) = content["networks"][network]["ipam"]["config"]
    assert ip_address(str(use.ipv4_address)) in ip_network(pool["subnet"])
    assert ip_address(str(use.ipv4_address)) not in ip_network(pool["ip_range"])
