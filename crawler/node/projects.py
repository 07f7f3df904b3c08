"""Names of projects, and what an egg says about itself, read without running any of it.

Our own project is called `DiscoveryBot` everywhere but in Scrapy, which calls it `default`. Case does not matter.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from configparser import ConfigParser
from configparser import Error as ParsingError
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from crawler.node import former_names, former_ways, locales, project_files
from gateway.contract.outbox import read_file
from gateway.contract.reasons import Reason

#: The project of the working directory's scrapy.cfg, which has no egg.
OWN_PROJECT = "default"
_OWN_NAMES = frozenset({OWN_PROJECT, "discoverybot"})
#: A project's name becomes the name of folders and files, so it cannot begin with a dot or have a slash.
_PROJECT_NAME = re.compile(r"\w(?:[\w .-]{0,98}[\w-])?")


def canonical(name: str, known: Collection[str] = ()) -> str:
    """The name under which Scrapyd keeps the project `name`; `name` itself if Scrapyd does not know it.

    An exact match wins, so two projects that differ in case only can both be reached.
    """
    if name.lower() in _OWN_NAMES:
        return OWN_PROJECT
    if name in known:
        return name
    return next((other for other in sorted(known) if other.lower() == name.lower()), name)


def is_project_name(name: str) -> bool:
    return _PROJECT_NAME.fullmatch(name) is not None


# --- what an egg says about itself, and which names its packages cannot have

#: The node's own packages. If an egg has a package of one of these names, its process uses the egg's package, and
#: ours have other names there, with the prefix `RENAMED` (`crawler.node.renamed`).
OWN_PACKAGES = frozenset({"crawler", "gateway", "embedded", "celery_app"})
RENAMED = "discoverybot_"
#: Folders of metadata: an egg has the first; wheels, and eggs that contain other distributions, have the others.
_INFO = re.compile(r"EGG-INFO|.+\.egg-info|.+\.dist-info")
#: Maximum number of bytes of `entry_points.txt`; one entry point takes about a hundred.
_MAX_ENTRY_POINTS = 1 << 20
_METADATA = re.compile(r"EGG-INFO|.+\.(egg-info|dist-info|data|libs)")
_MODULE = re.compile(r"(?P<name>\w+)(?:\.[\w.-]+)?\.(?:py|pyc|so|pyd)")


class EggError(Exception):
    """The egg cannot be run here. `reason` says why as a code; the message says why, and what to do."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class UnpackedEgg(NamedTuple):
    """An unpacked egg."""

    path: Path
    #: Dotted name of the module that its entry point names.
    settings_module: str
    #: Names of the packages and modules at its top.
    packages: frozenset[str]


def read_egg(path: Path) -> UnpackedEgg:
    """What an unpacked egg says about itself. Raises `EggError` if it is not an egg of a Scrapy project."""
    try:
        top = _top(path)
    except OSError as error:
        raise EggError(Reason.EGG_UNREADABLE, f"the egg cannot be read: {error.strerror}") from None
    return UnpackedEgg(path, _settings_module(path, sorted(filter(_INFO.fullmatch, top))), _packages(top))


def takes_our_names(path: Path) -> bool:
    """Whether an unpacked egg has packages with the names of ours. Raises `OSError`."""
    return not _packages(_top(path)).isdisjoint(OWN_PACKAGES)


def check_names(egg: UnpackedEgg) -> None:
    """Raises `EggError` if another package would be imported instead of one of the egg's own."""
    package = egg.settings_module.partition(".")[0]
    if package not in OWN_PACKAGES and (where := _elsewhere(package)):
        raise EggError(
            Reason.PACKAGE_TAKEN,
            f"its package '{package}' is on this node already ({where}), which would be imported instead: rename it, "
            "or remove the other",
        )


def leave_working_directory() -> None:
    """Remove the working directory of `python -m` from `sys.path`: it is Scrapyd's, not the egg's."""
    if sys.path and sys.path[0] == str(Path.cwd()):
        del sys.path[0]


def _top(path: Path) -> dict[str, bool]:
    """The names at the top of the egg, and whether each is a folder."""
    with os.scandir(path) as entries:
        return {entry.name: entry.is_dir() for entry in entries}


def _packages(top: dict[str, bool]) -> frozenset[str]:
    names = (_package(name) if is_folder else _module(name) for name, is_folder in top.items())
    return frozenset(filter(None, names))


def _package(folder: str) -> str | None:
    return None if _METADATA.fullmatch(folder) else folder


def _module(file: str) -> str | None:
    module = _MODULE.fullmatch(file)
    return module["name"] if module else None


def _settings_module(path: Path, infos: Iterable[str]) -> str:
    for info in infos:
        parser = ConfigParser(delimiters=("=",), strict=False, interpolation=None)
        try:
            content = read_file(path / info / "entry_points.txt", _MAX_ENTRY_POINTS)
            parser.read_string(content.decode("utf-8", "replace"))
        except (OSError, ParsingError):
            continue
        if module := parser.get("scrapy", "settings", fallback="").partition("[")[0].strip():
            return module
    raise EggError(
        Reason.EGG_UNREADABLE,
        "it does not say where its settings are: deploy it with scrapyd-deploy, or give its setup.py "
        "entry_points={'scrapy': ['settings = <package>.settings']}",
    )


def _elsewhere(package: str) -> str | None:
    """Where a package of this name is imported from, if not from the egg. `None` if the egg's comes first, as it does
    before a folder without `__init__.py`.
    """
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return None
    return spec.origin if spec else None


# --- what runs a project's jobs, and the variables that say so to their process

#: Variables with the unpacked egg, and the module of the spider.
EGG, SPIDER_MODULE = "DISCOVERYBOT_EGG", "DISCOVERYBOT_SPIDER_MODULE"
#: Variables with the virtual environment, and set if the process has only those of our packages that a crawl needs.
VENV, PROJECTS_PYTHON = "DISCOVERYBOT_VENV", "DISCOVERYBOT_PROJECTS_PYTHON"
#: Folder, among the virtual environments, with those packages of ours that a crawl needs, and no others.
RUNTIME = ".runtime"


class ProjectCode(NamedTuple):
    """What runs a project's jobs: which Python runs them, and which code it finds besides what is
    installed there.
    """

    #: The unpacked egg; our own project has none.
    egg: Path | None = None
    #: The module of the spider, if only that is to be imported; `None` if all modules are.
    spider_module: str | None = None
    #: The virtual environment with the project's dependencies; `None` if it runs with the node's own packages.
    venv: Path | None = None
    #: The folder of our renamed packages, if the egg has packages with names of ours.
    renamed: Path | None = None

    @property
    def is_plain(self) -> bool:
        """Whether jobs run with the node's own Python and under our packages' own names, as those of our own project
        do.
        """
        return self.venv is None and self.renamed is None

    @property
    def base(self) -> ProjectCode:
        """The part that several projects can share: without egg and spider."""
        return self._replace(egg=None, spider_module=None)

    def module(self, ours: str) -> str:
        """The name that our module `ours` has in a process of this project."""
        return f"{RENAMED}{ours}" if self.renamed else ours

    def command(self, module: str, *args: str) -> list[str]:
        """The command that runs our module `module`."""
        return [self.python, "-m", self.module(module), *args]

    @property
    def python(self) -> str:
        return str(self.venv / "bin" / "python") if self.venv else sys.executable

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which the runner finds the project."""
        names = {EGG: self.egg, SPIDER_MODULE: self.spider_module}
        env = {name: str(value) for name, value in names.items() if value is not None}
        if not self.is_plain:
            env |= {PROJECTS_PYTHON: "1", "PYTHONPATH": str(self._runtime)}
        if self.venv is not None:
            path = f"{self.venv / 'bin'}:{os.environ.get('PATH', os.defpath)}"
            env |= {VENV: str(self.venv), "VIRTUAL_ENV": str(self.venv), "PATH": path}
        return env

    @property
    def _runtime(self) -> Path | None:
        """The folder from which a process of the project imports our packages."""
        return self.renamed or (self.venv and self.venv.parent.parent / RUNTIME)


def activate(path: Path) -> UnpackedEgg:
    """Add an unpacked egg to the end of this process's import path. Scrapyd does not remove the egg meanwhile.

    Scrapyd's own function imports `pkg_resources` for this, which takes a quarter of a second for each spider. Raises
    `EggError`.
    """
    egg = read_egg(path)
    leave_working_directory()
    former_names.bring_back()
    former_ways.bring_back()
    project_files.open_from(path)
    locales.make_missing()
    sys.path.append(str(path))
    sys.meta_path.insert(0, _EggsOwn(path))
    os.environ["SCRAPY_SETTINGS_MODULE"] = egg.settings_module
    return egg


class _EggsOwn(MetaPathFinder):
    """Finds the egg's packages before ours of the same name, which may be installed as well."""

    def __init__(self, egg: Path) -> None:
        self._egg = str(egg)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - required by the interface
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [self._egg], target) if fullname in OWN_PACKAGES else None
