"""What a spider's process is told. It runs other people's code: it is handed a list, not Scrapyd's environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scrapyd.config import Config
from scrapyd.environ import Environment
from scrapyd.utils import get_file_path

from crawler.node.config import load_settings
from gateway.settings import NodeSettings

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
