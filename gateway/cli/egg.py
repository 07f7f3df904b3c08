"""A Scrapy project as an egg: a ZIP file of its packages, and a note that says where its settings are.

What `scrapyd-deploy` makes of a project without a setup.py of its own, but nothing of the project is run for it, and
files beside the modules (templates, word lists) come along.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as ParsingError
from pathlib import Path
from typing import NamedTuple

#: Never part of what is deployed, at the top of a project.
_LEFT_OUT = frozenset({"tests", "test", "build", "dist", "docs", "setup.py", "conftest.py"})
_ENTRY_POINTS = "EGG-INFO/entry_points.txt"


class EggError(Exception):
    """The folder is no Scrapy project, or the file no egg; the message says what is missing."""


class ScrapyProject(NamedTuple):
    folder: Path
    #: Dotted name of its settings module.
    settings: str
    #: What scrapy.cfg says that it is deployed as, else its settings' package.
    name: str


def read_project(folder: Path) -> ScrapyProject:
    """Raises `EggError` where there is no scrapy.cfg that says where the settings are."""
    path = folder / "scrapy.cfg"
    config = ConfigParser(interpolation=None, strict=False)
    try:
        if not config.read(path, encoding="utf-8"):
            raise EggError(f"{folder} is no Scrapy project: there is no scrapy.cfg in it")
        settings = config.get("settings", "default", fallback="")
    except (ParsingError, UnicodeDecodeError) as error:
        raise EggError(f"{path} cannot be read: {error}") from None
    if not settings:
        raise EggError(f"{path} does not say where the settings are: [settings] default = <package>.settings")
    if not _is_module(folder, settings):
        raise EggError(f"{path} says that the settings are {settings}, but there is no such module in {folder}")
    return ScrapyProject(folder, settings, _deployed_as(config) or settings.partition(".")[0])


def build_egg(project: ScrapyProject, version: str, target: Path) -> None:
    """Write the egg to `target`. Raises `OSError`."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as egg:
        for path in _members(project):
            egg.write(path, path.relative_to(project.folder).as_posix())
        egg.writestr("EGG-INFO/PKG-INFO", f"Metadata-Version: 1.1\nName: {project.name}\nVersion: {version}\n")
        egg.writestr(_ENTRY_POINTS, f"[scrapy]\nsettings = {project.settings}\n")


def project_of_egg(path: Path) -> str:
    """The package that its settings are in. Raises `EggError` for what is no egg of a Scrapy project."""
    config = ConfigParser(delimiters=("=",), interpolation=None, strict=False)
    try:
        with zipfile.ZipFile(path) as egg:
            config.read_string(egg.read(_ENTRY_POINTS).decode("utf-8", "replace"))
    except (zipfile.BadZipFile, OSError):
        raise EggError(f"{path} is no egg: it is no ZIP file") from None
    except (KeyError, ParsingError):
        pass
    settings = config.get("scrapy", "settings", fallback="").strip()
    if not settings:
        raise EggError(f"{path} is no egg of a Scrapy project: it does not say where its settings are")
    return settings.partition(".")[0]


def _deployed_as(config: ConfigParser) -> str | None:
    targets = (name for name in config.sections() if name == "deploy" or name.startswith("deploy:"))
    names = (config.get(target, "project", fallback=None) for target in targets)
    return next((name for name in names if name), None)


def _is_module(folder: Path, name: str) -> bool:
    path = folder.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _members(project: ScrapyProject) -> Iterator[Path]:
    own = project.settings.partition(".")[0]
    for path in sorted(project.folder.iterdir()):
        if path.name in _LEFT_OUT and path.stem != own:
            continue
        if path.is_dir() and (path.name == own or (path / "__init__.py").is_file()):
            yield from sorted(inner for inner in path.rglob("*") if inner.is_file() and _is_source(inner, path))
        elif path.suffix == ".py":
            yield path


def _is_source(path: Path, package: Path) -> bool:
    parts = path.relative_to(package).parts
    return path.suffix != ".pyc" and not any(part.startswith(".") or part == "__pycache__" for part in parts)
