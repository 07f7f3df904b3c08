"""Scrapyd's configuration as this node means it: the file says what is plugged in, the environment says where."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from scrapyd.config import Config
from scrapyd.environ import Environment
from scrapyd.exceptions import ConfigError
from scrapyd.utils import get_file_path

from gateway.settings import DoorSettings, NodeSettings, SettingsError

_Settings = TypeVar("_Settings", bound=NodeSettings)


class NodeConfigError(ConfigError):
    """The node cannot start like this; Scrapyd prints the message and ends."""


def load_settings() -> NodeSettings:
    """The node's settings. Raises `NodeConfigError` that names what is wrong."""
    return _load(NodeSettings)


def _load(model: type[_Settings]) -> _Settings:
    try:
        return model.load()
    except SettingsError as error:
        raise NodeConfigError(str(error)) from None


def apply(config: Config, settings: NodeSettings | None = None) -> None:
    """Let the environment's settings win over scrapyd.conf, in place."""
    settings = settings or load_settings()
    node = settings.node_dir
    _set(config, "http_port", settings.scrapyd_port)
    _set(config, "max_proc", settings.node_slots)
    _set(config, "node_name", settings.node_name)
    for option, folder in (("eggs_dir", "eggs"), ("logs_dir", "logs"), ("dbs_dir", "dbs")):
        _set(config, option, node / folder)


def node_config() -> Config:
    """A `Config` as Scrapyd reads it, from the working directory, with `apply` done."""
    config = Config()
    apply(config)
    return config


def require_password(config: Config) -> None:
    """Scrapyd runs whatever egg it is handed, so it never listens without a password. It reads the environment by
    itself, and is told here what a file says. Raises `NodeConfigError`.
    """
    door = _load(DoorSettings)
    password = door.scrapyd_password.get_secret_value()
    if not password:
        raise NodeConfigError(
            "SCRAPYD_PASSWORD is not set: Scrapyd executes the eggs it is sent, so it never runs without a password. "
            "Set it to a long random text here and for the gateway's workers (`discoverybot up` does both)."
        )
    _set(config, "password", password)
    if "scrapyd_username" in door.model_fields_set or not config.get("username", ""):
        _set(config, "username", door.scrapyd_username)


def _set(config: Config, option: str, value: object) -> None:
    config.cp.set(Config.SECTION, option, str(value).replace("%", "%%"))  # ConfigParser interpolates


# --- what a spider's process is given: it runs other people's code, so it gets a list, not Scrapyd's environment

#: Needed by Python, the C library and OpenSSL, and no secret of anybody.
_SYSTEM = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV"})
_SYSTEM_PREFIXES = ("LC_", "PYTHON", "SSL_CERT_")
_OURS = frozenset(name.upper() for name in NodeSettings.model_fields) | {"DISCOVERYBOT_CRASH_PLAN"}


def allowed(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The part of `environ` that code we did not write may see."""
    listed = _SYSTEM | _OURS
    return {name: value for name, value in environ.items() if name in listed or name.startswith(_SYSTEM_PREFIXES)}


def _from_files() -> dict[str, str]:
    """What spiders need to know and may have no access to: the cache's URL, with the password of its file in it."""
    url = load_settings().http_cache_redis_url
    return {"HTTP_CACHE_REDIS_URL": url} if url else {}


class NodeEnvironment(Environment):
    """Scrapyd's environment, from the allow-list, and without its pruning of logs (which deleted running ones')."""

    def __init__(self, config: Config) -> None:
        # prints must reach the log when they happen, not when the process ends, if it ends of itself at all
        super().__init__(config, initenv={**allowed(), **_from_files(), "PYTHONUNBUFFERED": "1"})

    def for_project(self, project: str, version: str | None = None) -> dict[str, str]:
        """The variables that make the runner act on `project`; without a `version`, on its newest."""
        message = {"_project": project, **({"_version": version} if version else {})}
        env: dict[str, str] = self.get_environment(message, slot=None)
        return env

    def log_path(self, project: str, spider: str, job: str) -> Path:
        """Where Scrapyd's console looks for a job's log. Raises `DirectoryTraversalError`."""
        return Path(get_file_path(self.logs_dir, project, spider, f"{job}.log").path)

    def _prepare_file(self, message: dict[str, Any], directory: str, extension: str) -> str:
        path = Path(
            get_file_path(directory, message["_project"], message["_spider"], f"{message['_job']}.{extension}").path
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)
