"""What a Scrapy project depends on, as a requirements file: the first that it has of its locks and requirements."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from uv import find_uv_bin


class EggError(Exception):
    """The folder is no Scrapy project, or the file no egg; the message says what is missing."""


#: Seconds in which uv reads a lock.
_EXPORT = 60
_SCRAPINGHUB = "scrapinghub.yml"


class Requirements(NamedTuple):
    #: Where they are from.
    name: str
    content: bytes


def find_requirements(folder: Path) -> Requirements | None:
    """The first that is there: those that scrapinghub.yml names, those of uv.lock, poetry.lock or Pipfile.lock,
    requirements.txt.

    Raises `EggError`, `OSError`.
    """
    named = _named_for_scrapinghub(folder)
    if named is not None and (folder / named).is_file():
        return Requirements(named, (folder / named).read_bytes())
    if (folder / "uv.lock").is_file() and (folder / "pyproject.toml").is_file():
        return Requirements("uv.lock", _exported(folder))
    path = folder / "requirements.txt"
    if (folder / "poetry.lock").is_file():
        lock = _read(folder / "poetry.lock", tomllib.loads)
        if _has_groups(lock) or not path.is_file():
            return Requirements("poetry.lock", _text(_of_poetry(lock), _pythons_of_poetry(lock)))
    if (folder / "Pipfile.lock").is_file():
        lock = _read(folder / "Pipfile.lock", json.loads)
        version = lock.get("_meta", {}).get("requires", {}).get("python_version")
        return Requirements("Pipfile.lock", _text(_of_pipenv(lock), f"=={version}.*" if version else None))
    if named is not None and not path.is_file():  # for their cloud it may be made when it is deployed there
        raise EggError(
            f"{folder / _SCRAPINGHUB} says that the requirements are in {named}, which is not there: make it, or "
            "deploy with --requirements FILE or --no-requirements"
        )
    return Requirements(path.name, path.read_bytes()) if path.is_file() else None


def _named_for_scrapinghub(folder: Path) -> str | None:
    path = folder / _SCRAPINGHUB
    if not path.is_file():
        return None
    try:
        said = yaml.safe_load(path.read_bytes())
    except yaml.YAMLError as error:
        raise EggError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
    said = said if isinstance(said, dict) else {}
    requirements = said.get("requirements")
    name = requirements.get("file") if isinstance(requirements, dict) else said.get("requirements_file")
    return str(name) if name else None


def _exported(folder: Path) -> bytes:
    """What the lock says, without the project itself and what is needed for its development only."""
    kept = ["--frozen", "--no-dev", "--no-emit-workspace", "--no-annotate", "--no-header", "--quiet"]
    command = [find_uv_bin(), "export", "--offline", "--no-python-downloads", *kept, "--project", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=True, timeout=_EXPORT)  # noqa: S603 - ours
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode("utf-8", "replace").strip()
        raise EggError(f"{folder / 'uv.lock'} cannot be read: {said}") from None
    except subprocess.TimeoutExpired:
        raise EggError(f"{folder / 'uv.lock'} could not be read within {_EXPORT} s") from None
    # what is exported says no more for which Python it was locked
    python = _read(folder / "uv.lock", tomllib.loads).get("requires-python")
    return _text([done.stdout.decode()], python)


# --- locks of others, which have exact versions and hashes as well


def _read(path: Path, parse: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    try:
        return parse(path.read_text("utf-8"))
    except ValueError as error:
        raise EggError(f"{path} cannot be read: {error}") from None


def _text(lines: Iterable[str], python: str | None) -> bytes:
    """A node refuses them if its Python is another than they were locked for."""
    head = [f"# requires-python: {python}"] if python else []
    return "".join(f"{line}\n" for line in [*head, *lines]).encode()


def _has_groups(lock: dict[str, Any]) -> bool:
    """Whether it says what is for development only: that of Poetry 1 does not."""
    return all("groups" in package for package in lock.get("package", ()))


def _pythons_of_poetry(lock: dict[str, Any]) -> str | None:
    """`^3.11` is Poetry's way to say `>=3.11,<4`."""
    wanted = str(lock.get("metadata", {}).get("python-versions", ""))
    if wanted.startswith("^"):
        wanted = f">={wanted[1:]},<{int(wanted[1:].partition('.')[0]) + 1}"
    try:
        return str(SpecifierSet(wanted)) or None
    except InvalidSpecifier:
        return None


def _of_poetry(lock: dict[str, Any]) -> Iterator[str]:
    if not _has_groups(lock):
        raise EggError(
            "poetry.lock is of Poetry 1, which does not say what is for development only: run `poetry lock` with "
            "Poetry 2, or `poetry export -o requirements.txt`"
        )
    for package in lock.get("package", ()):
        if "main" in package["groups"] and not package.get("optional"):
            markers = package.get("markers")
            marker = markers.get("main") if isinstance(markers, dict) else markers
            hashes = [file["hash"] for file in package.get("files", ())]
            yield _line("poetry.lock", package["name"], _place(package), hashes, marker)


def _place(package: dict[str, Any]) -> str | None:
    """From where it comes; `None` for a way that no node can go."""
    source = package.get("source", {})
    match source.get("type", "legacy"):
        case "legacy":
            return f"=={package['version']}"
        case "git":
            return f" @ git+{source['url']}@{source['resolved_reference']}"
        case "url":
            return f" @ {source['url']}"
    return None


def _of_pipenv(lock: dict[str, Any]) -> Iterator[str]:
    for name, package in lock.get("default", {}).items():
        place = f" @ git+{package['git']}@{package['ref']}" if "git" in package else package.get("version")
        yield _line("Pipfile.lock", name, place, package.get("hashes", ()), package.get("markers"))


def _line(lock: str, name: str, place: str | None, hashes: Iterable[str], marker: str | None) -> str:
    if place is None:
        raise EggError(
            f"{lock}: {name} comes from a folder or file, which a node has not: publish it, or name its URL"
        )
    line = f"{name}{place} ; {marker}" if marker else f"{name}{place}"
    return "".join([line, *(f" --hash={one}" for one in hashes)])
