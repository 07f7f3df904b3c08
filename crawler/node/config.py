"""Scrapyd's configuration on this node: scrapyd.conf says which of our classes are used; ports, folders and passwords
come from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scrapyd.config import Config
from scrapyd.environ import Environment
from scrapyd.exceptions import ConfigError
from scrapyd.utils import get_file_path

from crawler.orders import NODE_RULES, NodeRules
from gateway.private_names import require_names
from gateway.settings import NodeSettings, ScrapydSettings

require_names("scrapyd", Environment, "_prepare_file")


class NodeConfigError(ConfigError):
    """The node cannot start like this; Scrapyd prints the message and ends."""


class NodeConfig(Config):
    """Scrapyd's `config`, with the settings of the environment taking precedence. Scrapyd hands it to every class
    that its configuration names, and these take `settings` from it.

    Scrapyd runs any egg that is uploaded, so it never listens without a password. Raises `NodeConfigError` if there
    is none.
    """

    def __init__(self, config: Config, settings: ScrapydSettings) -> None:
        self.cp = config.cp
        self.settings: ScrapydSettings = settings
        self._set("http_port", settings.scrapyd_port)
        self._set("max_proc", settings.node_slots)
        self._set("node_name", settings.node_name)
        for option, folder in (("eggs_dir", "eggs"), ("logs_dir", "logs"), ("dbs_dir", "dbs")):
            self._set(option, settings.node_dir / folder)
        password = settings.scrapyd_password.get_secret_value()
        if not password:
            raise NodeConfigError(
                "SCRAPYD_PASSWORD is not set: Scrapyd executes the eggs it is sent, so it never runs without a "
                "password. Set it to a long random text here and for the gateway's workers "
                "(`discoverybot up` does both)."
            )
        self._set("password", password)
        if "scrapyd_username" in settings.model_fields_set or not config.get("username", ""):
            self._set("username", settings.scrapyd_username)

    def _set(self, option: str, value: object) -> None:
        self.cp.set(self.SECTION, option, str(value).replace("%", "%%"))  # ConfigParser interpolates


# --- the variables of a spider's process: it runs other people's code, so only listed ones of Scrapyd's are passed on

#: Needed by Python, the C library and OpenSSL, and never secret.
_SYSTEM = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV"})
_SYSTEM_PREFIXES = ("LC_", "PYTHON", "SSL_CERT_")
_OURS = frozenset(name.upper() for name in NodeSettings.model_fields) | {"DISCOVERYBOT_CRASH_PLAN"}


def allowed(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The part of `environ` that other people's code may see."""
    listed = _SYSTEM | _OURS
    return {name: value for name, value in environ.items() if name in listed or name.startswith(_SYSTEM_PREFIXES)}


class NodeEnvironment(Environment):
    """Scrapyd's environment, limited to the allow-list. Unlike Scrapyd's it prunes no logs: those may be in use."""

    def __init__(self, config: NodeConfig) -> None:
        # the URL has its password from a file that spiders may be unable to read
        url = config.settings.http_cache_redis_url
        cache = {"HTTP_CACHE_REDIS_URL": url} if url else {}
        rules = {NODE_RULES: NodeRules.of(config.settings).to_json()}
        # printed lines must reach the log at once, not when the process ends, which it may never do by itself
        super().__init__(config, initenv={**allowed(), **cache, **rules, "PYTHONUNBUFFERED": "1"})

    def for_project(self, project: str, version: str | None = None) -> dict[str, str]:
        """The variables that make the runner act on `project`; without a `version`, on its newest."""
        message = {"_project": project, **({"_version": version} if version else {})}
        env: dict[str, str] = self.get_environment(message, slot=None)
        return env

    def _prepare_file(self, message: dict[str, Any], directory: str, extension: str) -> str:
        path = Path(
            get_file_path(directory, message["_project"], message["_spider"], f"{message['_job']}.{extension}").path
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)
