"""Deployed projects' eggs: stored completely or not at all, and kept for as long as their spiders run."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, BinaryIO, NamedTuple

from pydantic import BaseModel, TypeAdapter
from scrapyd.eggstorage import FilesystemEggStorage
from scrapyd.exceptions import DirectoryTraversalError, EggNotFoundError

from crawler.node.projects import ProjectCode, is_project_name, takes_our_names
from crawler.node.renamed import renamed_runtime
from crawler.node.unpacking import UNPACKED
from crawler.node.venv_builder import VENVS, has_python
from gateway.contract.outbox import read_file, write_atomically
from gateway.contract.reasons import Reason
from gateway.contract.records import SpiderInfo
from gateway.contract.requirements import Conditions
from gateway.crash_points import state_change
from gateway.private_names import require_names

require_names("scrapyd", FilesystemEggStorage, "_egg_path", "_get_path")
#: Prefix of staged eggs. They lie beside the projects' folders, where Scrapyd takes no file for a project.
_INCOMING = ".incoming-"
#: Suffix of the file beside an egg that lists its spiders.
_LISTING = ".spiders.json"
#: Scrapyd replaces dots as well, and then takes 1_9 for newer than 1_10.
_NOT_IN_A_VERSION = re.compile(r"[^A-Za-z0-9_.+-]")
_VERSION = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,99}")


class EggMissingError(LookupError):
    """The version that the job is to run is not on this node, or cannot run there; `reason` is a code, if known."""

    def __init__(self, message: str, reason: Reason | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class EggStorage(FilesystemEggStorage):
    """Stores eggs atomically. Scrapyd's storage writes into the egg's own file: if that is cut short by a kill or a
    full disk, half an egg is the newest version, and spiders that start then get it.

    Here an egg is staged first, so that it can be examined before it is a version. Every method raises
    `DirectoryTraversalError` for a project or version whose name cannot be that of a file.
    """

    def put(self, eggfile: BinaryIO, project: str, version: str) -> None:
        """Store or replace the egg; if this fails, nothing has changed. Raises `OSError`."""
        staged = self.stage(lambda file: shutil.copyfileobj(eggfile, file))
        try:
            self.put_staged(staged, project, version)
        finally:
            self.discard(staged)

    @state_change("node.stage_version")
    def stage(self, write: Callable[[IO[bytes]], None]) -> Path:
        """A file with the egg that `write` writes; it is no version yet. Raises `OSError`, and what `write` does."""
        folder = Path(self.basedir)
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, prefix=_INCOMING, suffix=".egg", delete=False) as file:
            try:
                write(file)
            except BaseException:
                Path(file.name).unlink()
                raise
        return Path(file.name)

    @state_change("node.add_version")
    def put_staged(self, staged: Path, project: str, version: str) -> None:
        """Make a staged egg the project's `version`. Raises `OSError`."""
        path = self.path(project, version)
        path.parent.mkdir(exist_ok=True)
        staged.replace(path)

    @state_change("node.delete_version")
    def delete(self, project: str, version: str | None = None) -> None:
        """Delete a version, or the whole project. Raises `ProjectNotFoundError` and `EggNotFoundError`."""
        if version is not None:
            self.listing_path(project, version).unlink(missing_ok=True)
            if not self.path(project, version).exists():
                raise EggNotFoundError
        super().delete(project, version)

    def path(self, project: str, version: str) -> Path:
        return Path(self._egg_path(project, version))

    def listing_path(self, project: str, version: str) -> Path:
        """The file that lists the egg's spiders; it may be missing."""
        return self.path(project, version).with_suffix(_LISTING)

    @property
    def unpacked(self) -> Path:
        """The folder of all contents (`crawler.node.unpacking`)."""
        return Path(self.basedir).with_name(UNPACKED)

    @property
    def venvs(self) -> Path:
        """The folder of all virtual environments (`crawler.node.venv_builder`)."""
        return Path(self.basedir).with_name(VENVS)

    def code(self, egg: Path, venv: Path | None) -> ProjectCode:
        """The code that runs an unpacked egg in an environment. Raises `OSError`."""
        return ProjectCode(egg, venv=venv, renamed=renamed_runtime(self.venvs) if takes_our_names(egg) else None)

    def wanted(self, project: str, version: str | None) -> str | None:
        """The stored version for a job that names `version`; the newest if it names none. `None` for a project
        without eggs. Raises `EggMissingError`.
        """
        versions = self.list(project)
        name = stored_version(version) if version else next(iter(versions[-1:]), None)
        if version and name not in versions:
            raise EggMissingError(f"project '{project}' has no version '{version}' on this node (any more)")
        return name

    def has(self, project: str, version: str) -> bool:
        return self.path(project, version).is_file()

    @state_change("node.discard_version")
    def discard(self, *staged: Path) -> None:
        """Remove staged eggs; by default all, which a killed Scrapyd may have left."""
        for file in staged or Path(self.basedir).glob(f"{_INCOMING}*"):
            file.unlink(missing_ok=True)

    def _egg_path(self, project: str, version: str) -> str:
        name = stored_version(version)
        path: str = self._get_path(project, f"{name}.egg")
        return path

    def _get_path(self, project: str, *trusted: str) -> str:
        # Scrapyd accepts "." as a project, and deleting it deletes all projects
        if not is_project_name(project):
            raise DirectoryTraversalError(project)
        path: str = super()._get_path(project, *trusted)
        return path


def stored_version(version: str) -> str:
    """The name under which an egg is kept. Raises `DirectoryTraversalError` if there is none."""
    name = _NOT_IN_A_VERSION.sub("_", version)
    if not _VERSION.fullmatch(name):
        raise DirectoryTraversalError(version)
    return name


# --- the spiders of each egg are noted beside it, so that it is unpacked and imported once, not at every start

#: Increase this when a release finds out more about eggs, so that every egg is examined again.
_FORMAT = 5
_INFOS = TypeAdapter(list[SpiderInfo])
NO_SPIDERS = b"[]"
#: Maximum number of bytes of a listing's file: twice what a listing can have (`crawler.node.spawn`).
MAX_LISTING = 16 << 20


class Leniency(NamedTuple):
    """What a lenient node has changed so that an egg can be run."""

    #: Distributions that the egg imports without declaring them.
    added: tuple[str, ...] = ()
    #: The day (ISO date) whose latest versions are installed.
    as_of: str = ""
    #: Packages whose pinned versions cannot be built, so that later ones are taken.
    raised: tuple[str, ...] = ()
    #: Declared packages of which no version can be built, so that they are left out.
    left_out: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """Lines to be added to the end of its requirements."""
        said = Conditions(exclude_newer=self.as_of, at_least=" ".join(self.raised), without=" ".join(self.left_out))
        return [*self.added, *said.comments]


AS_DECLARED = Leniency()


class Contents(BaseModel):
    """The content of the file beside an egg."""

    format: int = _FORMAT
    #: The Python for which the egg was unpacked and compiled.
    python: str = str(sys.implementation.cache_tag)
    #: Size and time of change (ns) of the egg.
    egg: tuple[int, int]
    #: Where the egg lies unpacked, relative to the folder of all contents.
    folder: Path
    #: The environment with what it depends on, relative to the folder of all virtual environments.
    venv: Path | None = None
    leniency: Leniency = AS_DECLARED
    spiders: list[SpiderInfo]

    def module_of(self, spider: str) -> str | None:
        return next((info.module for info in self.spiders if info.name == spider), None)


class EggContents:
    def __init__(self, storage: EggStorage) -> None:
        self._storage = storage
        self._known: dict[Path, Contents] = {}
        #: By project and version: why the egg could not be examined, in words and as a code.
        self.problems: dict[tuple[str, str], tuple[str, Reason | None]] = {}
        #: By listing: the contents, whether they were the latest, and how they were described.
        self._described: dict[Path, tuple[Contents, bool, bytes]] = {}

    def describe(self, project: str, version: str, *, latest: bool) -> bytes:
        """The spiders of a version as a JSON array, empty if they are not known. The result is kept: a version can
        have tens of thousands of spiders, and Scrapyd is blocked while it makes the array.
        """
        path, contents = self._storage.listing_path(project, version), self.get(project, version)
        if contents is None:
            return NO_SPIDERS
        known = self._described.get(path)
        if known is None or known[0] is not contents or known[1] != latest:
            told = {"project": project, "version": version, "latest": latest}
            infos = [info.model_copy(update=told) for info in contents.spiders]
            known = self._described[path] = contents, latest, described(infos)
        return known[2]

    def get(self, project: str, version: str) -> Contents | None:
        """The contents of the stored egg; `None` if this egg has not been examined, or is not unpacked."""
        path = self._storage.listing_path(project, version)
        found = self._known.get(path) or _read(path)
        stamp = self._stamp(project, version)
        expected = stamp and Contents(egg=stamp, folder=Path(), spiders=[])
        if found is None or expected is None or _key(found) != _key(expected):
            return None
        venv = self.venv(found)
        if not all(path.is_dir() for path in self._paths(found)) or (venv is not None and not has_python(venv)):
            return None
        self._known[path] = found
        return found

    def code(self, project: str, version: str | None, spider: str) -> ProjectCode:
        """The code that runs a job of this spider; without a `version`, the newest. Raises `EggMissingError`."""
        wanted = self._storage.wanted(project, version)
        if wanted is None:
            return ProjectCode()
        contents = self.get(project, wanted)
        if contents is None:
            why, reason = self.problems.get((project, wanted), ("it is not unpacked yet", None))
            raise EggMissingError(
                f"version '{wanted}' of project '{project}' cannot be run on this node: {why}", reason
            )
        egg, venv = self._storage.unpacked / contents.folder, self.venv(contents)
        return self._storage.code(egg, venv)._replace(spider_module=contents.module_of(spider))

    def sizes(self, but: Path) -> dict[str, int]:
        """By project: the bytes of the listings of all its versions, without the listing `but`."""
        found = {}
        for project in self._storage.list_projects():
            paths = {self._storage.listing_path(project, version) for version in self._storage.list(project)}
            found[project] = sum(path.stat().st_size for path in paths - {but} if path.exists())
        return found

    def used(self) -> Iterator[Path]:
        """The folders of all versions' unpacked eggs and environments."""
        for project in self._storage.list_projects():
            for version in self._storage.list(project):
                if (contents := self.get(project, version)) is not None:
                    yield from self._paths(contents)

    def venv(self, contents: Contents) -> Path | None:
        return None if contents.venv is None else self._storage.venvs / contents.venv

    def _paths(self, contents: Contents) -> list[Path]:
        return [self._storage.unpacked / contents.folder, *filter(None, [self.venv(contents)])]

    @state_change("node.write_listing")
    def keep(
        self,
        project: str,
        version: str,
        egg: Path,
        venv: Path | None,
        spiders: list[SpiderInfo],
        *,
        leniency: Leniency = AS_DECLARED,
    ) -> None:
        """Note what is in the stored egg, which lies unpacked in the folder `egg`. Raises `OSError`."""
        stamp = self._stamp(project, version)
        if stamp is None:
            return
        path = self._storage.listing_path(project, version)
        folder, place = egg.relative_to(self._storage.unpacked), venv and venv.relative_to(self._storage.venvs)
        contents = Contents(egg=stamp, folder=folder, venv=place, leniency=leniency, spiders=spiders)
        self._known[path] = contents
        write_atomically(path, contents.model_dump_json().encode())

    def _stamp(self, project: str, version: str) -> tuple[int, int] | None:
        try:
            found = self._storage.path(project, version).lstat()
        except FileNotFoundError:
            return None
        return found.st_size, found.st_mtime_ns


def described(infos: list[SpiderInfo]) -> bytes:
    """A JSON array of them."""
    return _INFOS.dump_json(infos)


def _key(contents: Contents) -> tuple[object, ...]:
    return contents.format, contents.python, contents.egg


def _read(path: Path) -> Contents | None:
    try:
        return Contents.model_validate_json(read_file(path, MAX_LISTING))
    except (OSError, ValueError):
        return None
