"""The egg of a project's folder is made by the command `discoverybot deploy`, which knows how."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from discoverybot_client.errors import DiscoveryBotError

#: How files of requirements are called.
_FILES = (".txt", ".lock", ".toml", ".in")


class DeployError(DiscoveryBotError):
    """No egg could be made of the project's folder. The message is what `discoverybot deploy` says."""


class Built(NamedTuple):
    """An egg, and what is said of it when it is uploaded."""

    egg: Path
    project: str
    version: str
    #: The text of its requirements.
    requirements: str | None


def text_of(requirements: str | Path | None) -> str | None:
    """The text of requirements. Raises `ValueError` for the name of a file: pip would take it for a package's."""
    if isinstance(requirements, Path):
        return requirements.read_text(encoding="utf-8")
    if requirements is not None and requirements.strip().endswith(_FILES) and len(requirements.split()) == 1:
        raise ValueError(f"requirements: this is a text, and Path({requirements!r}) a file")
    return requirements


def build_egg(source: Path, place: Path, options: dict[str, str], requirements: str | Path | None) -> Built:
    """The egg of the project in the folder `source`, made in `place`. Raises `DeployError`."""
    if isinstance(requirements, str):
        text, requirements = text_of(requirements), place / "given.txt"
        requirements.write_text(text or "", encoding="utf-8")
    named = {} if requirements is None else {"requirements": str(requirements)}
    beside = str(Path(sys.executable).parent)
    command = shutil.which("discoverybot", path=beside) or shutil.which("discoverybot")
    if command is None:
        raise DeployError(
            "to make an egg of a folder, the platform's own command is needed: pip install discoverybot; "
            "an egg that was made elsewhere can be deployed without it"
        )
    arguments = [argument for name, value in {**options, **named}.items() for argument in (f"--{name}", value)]
    done = subprocess.run(  # noqa: S603 - a command of ours
        [command, "deploy", str(source), "--build", str(place), "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise DeployError(done.stderr.strip() or done.stdout.strip())
    told = json.loads(done.stdout)
    needs = told["requirements"]
    return Built(Path(told["egg"]), told["project"], told["version"], needs and text_of(Path(needs)))
