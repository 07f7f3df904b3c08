"""A project's folder is deployed by the command `discoverybot deploy`, which knows how to make an egg of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from discoverybot_client.errors import DiscoveryBotError


class DeployError(DiscoveryBotError):
    """The project could not be deployed. The message is what `discoverybot deploy` says."""


def deploy_folder(url: str, environment: dict[str, str], folder: Path, options: dict[str, str]) -> dict[str, Any]:
    """The answer to the deployment. Raises `DeployError`."""
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
