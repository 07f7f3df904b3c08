"""Projects by name, and what an egg says of itself, read without running any of it.

Our own project is `DiscoveryBot` to the world and `default` to Scrapy; no name is told apart by case.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Collection
from configparser import ConfigParser
from configparser import Error as ParsingError
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

#: The project of the working directory's scrapy.cfg, which has no egg.
OWN_PROJECT = "default"
_OWN_NAMES = frozenset({OWN_PROJECT, "discoverybot"})
#: A name becomes that of folders and files: nothing hidden, nothing with a slash.
_PROJECT_NAME = re.compile(r"\w(?:[\w .-]{0,98}[\w-])?")


def canonical(name: str, known: Collection[str] = ()) -> str:
    """The name under which Scrapyd keeps the project that `name` means; `name` itself for one it does not know.

    An exact match wins, so two projects that differ in case only can both be reached.
    """
    if name.lower() in _OWN_NAMES:
        return OWN_PROJECT
    if name in known:
        return name
    return next((other for other in sorted(known) if other.lower() == name.lower()), name)


def is_project_name(name: str) -> bool:
    return _PROJECT_NAME.fullmatch(name) is not None


# --- what an egg says of itself, and what its packages may not be called

#: Packages of the node's own. They are found before an egg's, which would then run our code for its own.
OWN_PACKAGES = frozenset({"crawler", "gateway", "embedded", "celery_app"})
#: An egg has the first, a wheel or an egg with others inside one of those after it.
_ENTRY_POINTS = re.compile(r"(?:EGG-INFO|[^/]+\.egg-info|[^/]+\.dist-info)/entry_points\.txt")
#: Bytes; a name and a module take a hundred.
_MAX_ENTRY_POINTS = 1 << 20
_METADATA = re.compile(r"EGG-INFO|.+\.(egg-info|dist-info|data|libs)")
_MODULE = re.compile(r"(?P<name>\w+)(?:\.[\w.-]+)?\.(?:py|pyc|so|pyd)")


class EggError(Exception):
    """The egg cannot be run here; the message says why and what to do about it."""


class EggFile(NamedTuple):
    path: Path
    #: Dotted name of the module that its entry point names.
    settings_module: str
    #: Names of the packages and modules at its top.
    packages: frozenset[str]


def read_egg(path: Path) -> EggFile:
    """Raises `EggError` for what is no egg of a Scrapy project."""
    try:
        with zipfile.ZipFile(path) as archive:
            packages = frozenset(filter(None, map(_top_level, archive.namelist())))
            return EggFile(path, _settings_module(archive), packages)
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError) as error:
        raise EggError(f"the egg cannot be read: {error}") from None


def check_names(egg: EggFile) -> None:
    """Raises `EggError` if something else would be imported in the place of the egg's own packages."""
    if taken := sorted(egg.packages & OWN_PACKAGES):
        raise EggError(
            f"its package '{taken[0]}' has the name of one of this node's own, which would be imported instead: "
            "rename it (the folder, setup.py, scrapy.cfg and the imports)"
        )
    package = egg.settings_module.partition(".")[0]
    if where := _elsewhere(package):
        raise EggError(
            f"its package '{package}' is on this node already ({where}), which would be imported instead: rename it, "
            "or remove the other"
        )


def activate(egg: EggFile) -> None:
    """Make the egg importable, behind all that is installed, as Scrapyd does.

    Scrapyd's own function imports `pkg_resources` for it, a quarter of a second for each spider.
    """
    sys.path.append(str(egg.path))


def leave_working_directory() -> None:
    """Take the folder that `python -m` was started in off `sys.path`: it is Scrapyd's, and nothing of the egg's."""
    if sys.path and sys.path[0] == str(Path.cwd()):
        del sys.path[0]


def _top_level(name: str) -> str | None:
    first, slash, _ = name.partition("/")
    if slash:
        return None if _METADATA.fullmatch(first) else first
    module = _MODULE.fullmatch(first)
    return module["name"] if module else None


def _settings_module(archive: zipfile.ZipFile) -> str:
    for member in archive.infolist():
        if _ENTRY_POINTS.fullmatch(member.filename) and member.file_size <= _MAX_ENTRY_POINTS:
            parser = ConfigParser(delimiters=("=",), strict=False, interpolation=None)
            try:
                parser.read_string(archive.read(member).decode("utf-8", "replace"))
            except ParsingError:
                continue
            if module := parser.get("scrapy", "settings", fallback="").partition("[")[0].strip():
                return module
    raise EggError(
        "it does not say where its settings are: deploy it with scrapyd-deploy, or give its setup.py "
        "entry_points={'scrapy': ['settings = <package>.settings']}"
    )


def _elsewhere(package: str) -> str | None:
    """Where a package of this name comes from, if not from the egg. A mere folder gives way to the egg's."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec else None
