"""Which Python a project's environment is made with: the node's own if it fits, else another of this machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from uv import find_uv_bin

from crawler.node.projects import EggError
from gateway.contract.reasons import Reason
from gateway.contract.requirements import Conditions

#: The oldest Python that our part of a crawl runs on.
OLDEST = Version("3.11")
#: Words in `PROJECT_PYTHONS`: Pythons that uv finds, Pythons that uv can download, and none but the node's own.
FOUND, DOWNLOAD, _NONE = "found", "download", "none"
#: Folder of downloaded Pythons, inside the folder of all virtual environments.
BROUGHT = ".pythons"
#: Maximum number of seconds that looking for Pythons takes.
_LOOK = 60


class Python(NamedTuple):
    version: str
    #: Path of the interpreter.
    path: str
    #: Differs between Pythons that cannot share an environment.
    key: tuple[str, ...]


def own() -> Python:
    key = (sys.version, sysconfig.get_platform(), sys.base_prefix)
    return Python(platform.python_version(), sys.executable, key)


def choose(said: Conditions, allowed: Iterable[str], folder: Path) -> Python | None:
    """The Python that the project is developed with, if it is installed; else the node's own, if it fits; else the
    oldest that fits; `None` if none fits. Raises `EggError` if the project's `requires-python` cannot be read.
    """
    here, wanted = own(), _range(said.requires_python)
    preferred = _preferred(said.python)
    fits_here = wanted.contains(here.version, prereleases=True)
    if fits_here and (preferred is None or preferred.contains(here.version, prereleases=True)):
        return here
    others = [one for one in _others(allowed, folder) if wanted.contains(one.version, prereleases=True)]
    if preferred is not None:
        for one in others:
            if preferred.contains(one.version, prereleases=True):
                return one
    return here if fits_here else next(iter(others), None)


def _range(text: str) -> SpecifierSet:
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        raise EggError(
            Reason.REQUIREMENTS_REFUSED, f"it asks for Python {text[:200]!r}, which is no range of versions"
        ) from None


def _preferred(text: str) -> SpecifierSet | None:
    """The range of versions that the project is developed with; `None` for a name like `pypy3.10`."""
    try:
        version = Version(text)
    except InvalidVersion:
        return None
    # any bug-fix release fits
    return SpecifierSet(f"=={version.major}.{version.minor}.*")


def refused(said: Conditions, allowed: Iterable[str], folder: Path) -> EggError:
    """Why no Python fits, and what to do about it."""
    wanted = _range(said.requires_python)
    there = [own(), *_others(allowed, folder)]
    names = ", ".join(dict.fromkeys(one.version for one in there))
    text = f"it asks for Python {wanted}, and this node has Python {names}"
    if not any(wanted.contains(f"3.{minor}.{patch}") for minor in range(OLDEST.minor, 100) for patch in (0, 99)):
        return EggError(
            Reason.PYTHON_MISSING,
            f"{text}; crawls need Python {OLDEST} or later: raise requires-python or lock it for that one",
        )
    return EggError(
        Reason.PYTHON_MISSING,
        f"{text}: install one that fits on the node's machine (or let it bring one: PROJECT_PYTHONS=found,download), "
        "or lock the project for one that is there",
    )


def _others(allowed: Iterable[str], folder: Path) -> list[Python]:
    """The newest Python of each minor version, the oldest minor version first."""
    newest: dict[tuple[int, int], Python] = {}
    for python in sorted(_installed([*allowed], folder), key=lambda one: Version(one.version)):
        version = Version(python.version)
        known = newest.get(key := (version.major, version.minor))
        if version >= OLDEST and (known is None or Version(known.version) < version):
            newest[key] = python
    return [*newest.values()]


def _installed(allowed: list[str], folder: Path) -> Iterator[Python]:
    places = [place for place in allowed if place not in {FOUND, DOWNLOAD, _NONE}]
    places += [str(path) for path in sorted((folder / BROUGHT).glob("*/bin"))]
    if FOUND in allowed:
        # pyenv installs Pythons in its own folder only
        pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
        places += map(str, sorted(pyenv.glob("versions/*/bin")))
        # pyenv's shims are left out: each starts a shell to find out which Python it stands for
        path = os.environ.get("PATH", os.defpath).split(os.pathsep)
        places += [place for place in path if Path(place) != pyenv / "shims"]
    if not places:
        return
    kinds = [] if FOUND in allowed else ["--no-managed-python"]
    command = [
        find_uv_bin(),
        "python",
        "list",
        "--only-installed",
        "--no-python-downloads",
        "--offline",
        "--no-config",
    ]
    command += ["--output-format", "json", *kinds, "--cache-dir", str(folder / ".cache")]
    env = {**{name: os.environ[name] for name in ("HOME",) if name in os.environ}, "PATH": os.pathsep.join(places)}
    try:
        done = subprocess.run(command, env=env, capture_output=True, check=True, timeout=_LOOK)  # noqa: S603 - our command
        found = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return
    for one in found:
        if one["implementation"] == "cpython" and one.get("variant", "default") == "default":
            yield Python(one["version"], one["path"], (one["version"], one["key"], one["path"]))
