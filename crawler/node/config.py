"""Scrapyd's configuration as this node means it: the file says what is plugged in, the environment says where.

Scrapyd and the runner in the spider's process both build a `Config` of their own; both must find the same eggs.
"""

from __future__ import annotations

from typing import TypeVar

from scrapyd.config import Config
from scrapyd.exceptions import ConfigError

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
