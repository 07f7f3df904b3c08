"""The part of the Compose specification (github.com/compose-spec/compose-spec) that we use, each key known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field
from unit.house.sources import ROOT

#: Of the whole platform on one machine, and of one crawl node on another.
MAIN, NODE = "docker-compose.yml", "deploy/node/compose.yml"
Duration = Annotated[str, Field(pattern=r"^(\d+h)?(\d+m)?(\d+s)?$", min_length=2)]
Scalar = str | int | float | bool | None
_INTERPOLATED = re.compile(r"(?<!\$)\$\{([A-Z_]+)")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class HealthCheck(_Part):
    test: list[str]
    interval: Duration
    timeout: Duration
    retries: int
    start_period: Duration | None = None


class Dependency(_Part):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class Limits(_Part):
    memory: Annotated[str, Field(pattern=r"^\d+[mg]$")]
    pids: int


class Resources(_Part):
    limits: Limits


class Deploy(_Part):
    replicas: int = 1
    resources: Resources


class Build(_Part):
    context: str
    target: str


class NetworkUse(_Part):
    aliases: list[str] = []
    ipv4_address: str | None = None


class SecretUse(_Part):
    source: str
    target: str


class Service(_Part):
    image: str
    user: str | None = None
    build: Build | None = None
    init: bool = False
    hostname: str | None = None
    command: list[str] = []
    environment: dict[str, Scalar] = {}
    ports: list[str] = []
    volumes: list[str] = []
    networks: list[str] | dict[str, NetworkUse] = []
    secrets: list[str | SecretUse] = []
    restart: Literal["no", "always", "on-failure", "unless-stopped"]
    depends_on: dict[str, Dependency] = {}
    healthcheck: HealthCheck | None = None
    deploy: Deploy
    cpu_shares: int | None = None
    oom_score_adj: int = 0
    ulimits: dict[str, int] = {}
    read_only: bool = False
    tmpfs: list[str] = []
    cap_drop: list[str] = []
    cap_add: list[str] = []
    security_opt: list[str] = []
    stop_grace_period: Duration | None = None
    shm_size: str | None = None

    @property
    def secret_files(self) -> dict[str, str]:
        """By the secret: where the container finds it."""
        every = [secret if isinstance(secret, SecretUse) else _in_its_place(secret) for secret in self.secrets]
        return {secret.source: secret.target for secret in every}


def _in_its_place(secret: str) -> SecretUse:
    return SecretUse(source=secret, target=f"/run/secrets/{secret}")


class Network(_Part):
    name: str


class Secret(_Part):
    file: str


class ComposeFile(_Part):
    name: str
    services: dict[str, Service]
    networks: dict[str, Network]
    secrets: dict[str, Secret]
    volumes: dict[str, None]


def read_compose_file(path: str = MAIN) -> ComposeFile:
    """Raises `ValidationError` on a key that Compose does not know."""
    content: dict[str, Any] = yaml.safe_load(_text(path))
    return ComposeFile.model_validate({key: value for key, value in content.items() if not key.startswith("x-")})


def interpolated_names(path: str = MAIN) -> set[str]:
    """Variables that Compose itself takes from the environment or the .env file."""
    return set(_INTERPOLATED.findall(_text(path)))


def interpolated(value: str, given: Mapping[str, str | None] | None = None) -> str:
    """As Compose does it where these are set. Raises `KeyError` for one that is not and has no default."""

    def put_in(match: re.Match[str]) -> str:
        name, default = match.groups()
        return (given or {}).get(name) or default if default is not None else str((given or {})[name])

    return re.sub(r"(?<!\$)\$\{([A-Z_]+)(?::-([^}]*)|:\?[^}]*)\}", put_in, value).replace("$$", "$")


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")
