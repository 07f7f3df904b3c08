"""A project's folder is deployed by the command `discoverybot deploy`, which knows how to make an egg of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from discoverybot_client.errors import DiscoveryBotError

#: How files of requirements are called.
_FILES = (".txt", ".lock", ".toml", ".in")


class DeployError(DiscoveryBotError):
    """The project could not be deployed. The message is what `discoverybot deploy` says."""


def text_of(requirements: str | Path | None) -> str | None:
    """The text of requirements. Raises `ValueError` for the name of a file: pip would take it for a package's."""
    if isinstance(requirements, Path):
        return requirements.read_text(encoding="utf-8")
    if requirements is not None and requirements.strip().endswith(_FILES) and len(requirements.split()) == 1:
        raise ValueError(f"requirements: this is a text, and Path({requirements!r}) a file")
    return requirements


def deploy_folder(
    url: str,
    environment: dict[str, str],
    folder: Path,
    options: dict[str, str],
    requirements: str | Path | None = None,
) -> dict[str, Any]:
    """The answer to the deployment. Raises `DeployError`."""
    if not isinstance(requirements, str):
        return _deployed(url, environment, folder, {**options, **_named(requirements)})
    with TemporaryDirectory(prefix="discoverybot-deploy-") as place:
        file = Path(place, "requirements.txt")
        file.write_text(text_of(requirements) or "", encoding="utf-8")
        return _deployed(url, environment, folder, {**options, **_named(file)})


def _named(requirements: Path | None) -> dict[str, str]:
    return {} if requirements is None else {"requirements": str(requirements)}


def _deployed(url: str, environment: dict[str, str], folder: Path, options: dict[str, str]) -> dict[str, Any]:
    beside = str(Path(sys.executable).parent)
    command = shutil.which("discoverybot", path=beside) or shutil.which("discoverybot")
    if command is None:
        raise DeployError(
            "to make an egg of a folder, the platform's own command is needed: pip install discoverybot; "
            "an egg that was made elsewhere can be deployed without it"
        )
    arguments = [argument for name, value in options.items() for argument in (f"--{name}", value)]
    done = subprocess.run(  # noqa: S603 - a command of ours
        [command, "deploy", str(folder), "--url", url, "--json", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DeployError(done.stderr.strip() or done.stdout.strip())
    told: dict[str, Any] = json.loads(done.stdout)
    return told
