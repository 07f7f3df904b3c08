"""Deployed projects' eggs: stored whole or not at all, and kept for as long as their spiders run."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import BinaryIO

from pydantic import BaseModel
from scrapyd.eggstorage import FilesystemEggStorage
from scrapyd.exceptions import DirectoryTraversalError, EggNotFoundError

from crawler.node.projects import activate, is_project_name, leave_working_directory, read_egg
from gateway.contract.outbox import SpiderInfo, read_file, write_atomically
from gateway.crash_points import state_change

#: In the environment of a spider that may not look for its egg: where it is.
EGG = "DISCOVERYBOT_EGG"
#: Beside the projects' folders, where a file is taken for no project.
_INCOMING = ".incoming-"
#: Beside an egg: which spiders it has.
_LISTING = ".spiders.json"
#: Scrapyd replaces dots as well, and then takes 1_9 for newer than 1_10.
_NOT_IN_A_VERSION = re.compile(r"[^A-Za-z0-9_.+-]")
_VERSION = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,99}")
#: What an egg is called in the folder of the attempt that runs it.
_IN_ATTEMPT = "project.egg"


class EggMissingError(LookupError):
    """The version that the job is to run is not on this node."""


class EggStorage(FilesystemEggStorage):
    """Scrapyd's writes into the egg itself: an upload that is cut short, by a kill or a full disk, would leave half
    an egg as the project's newest version, and a spider that starts meanwhile would get what is there.

    Here an egg is staged first, so that it can be looked at before it counts. Every method raises
    `DirectoryTraversalError` for a project or version whose name cannot be that of a file.
    """

    def put(self, eggfile: BinaryIO, project: str, version: str) -> None:
        """Store the egg, or replace it, or leave all as it was. Raises `OSError`."""
        staged = self.stage(eggfile)
        try:
            self.put_staged(staged, project, version)
        finally:
            self.discard(staged)

    @state_change("node.stage_version")
    def stage(self, eggfile: BinaryIO) -> Path:
        """A file with the egg in it, which is nobody's yet. Raises `OSError`."""
        folder = Path(self.basedir)
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, prefix=_INCOMING, suffix=".egg", delete=False) as file:
            try:
                shutil.copyfileobj(eggfile, file)
            except BaseException:
                Path(file.name).unlink()
                raise
        return Path(file.name)

    @state_change("node.add_version")
    def put_staged(self, staged: Path, project: str, version: str) -> None:
        """Let a staged egg be the project's `version`. Raises `OSError`."""
        path = self.path(project, version)
        path.parent.mkdir(exist_ok=True)
        staged.replace(path)

    @state_change("node.delete_version")
    def delete(self, project: str, version: str | None = None) -> None:
        """Raises `ProjectNotFoundError` and `EggNotFoundError`."""
        if version is not None:
            self.listing_path(project, version).unlink(missing_ok=True)
            if not self.path(project, version).exists():
                raise EggNotFoundError
        super().delete(project, version)

    def path(self, project: str, version: str) -> Path:
        return Path(self._egg_path(project, version))

    def listing_path(self, project: str, version: str) -> Path:
        """Where it may be written down which spiders the egg has."""
        return self.path(project, version).with_suffix(_LISTING)

    def wanted(self, project: str, version: str | None) -> Path | None:
        """The egg that a job of this version is to run, without one the newest; `None` if it is not there."""
        versions = self.list(project)
        name = stored_version(version) if version else next(iter(versions[-1:]), None)
        return self.path(project, name) if name and name in versions else None

    def has(self, project: str, version: str) -> bool:
        return self.path(project, version).is_file()

    @state_change("node.discard_version")
    def discard(self, *staged: Path) -> None:
        """Remove what did not come to count; by default what a killed Scrapyd has left."""
        for file in staged or Path(self.basedir).glob(f"{_INCOMING}*"):
            file.unlink(missing_ok=True)

    def _egg_path(self, project: str, version: str) -> str:
        name = stored_version(version)
        path: str = self._get_path(project, f"{name}.egg")
        return path

    def _get_path(self, project: str, *trusted: str) -> str:
        # Scrapyd takes "." for a project, whose deletion deletes all others
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


@contextmanager
def project_environment(project: str, eggs: Path) -> Iterator[None]:
    """Put the egg of `project` in `eggs` on `sys.path`, in the version of `SCRAPYD_EGG_VERSION`, else its newest.

    Scrapyd's runner does the same, but looks for eggs where scrapyd.conf says, not where this node keeps them.
    Raises `EggMissingError` and `EggError`.
    """
    if handed := os.environ.get(EGG):
        _activate(Path(handed))
        yield
        return
    storage = EggStorage({"eggs_dir": str(eggs)})
    wanted = os.environ.get("SCRAPYD_EGG_VERSION")
    versions = storage.list(project)
    version = stored_version(wanted) if wanted else next(iter(versions[-1:]), None)
    if version is None:
        yield
        return
    if version not in versions:
        raise EggMissingError(f"project '{project}' has no version '{wanted}' on this node (any more)")
    with ExitStack() as stack:
        # an attempt's folder is removed by the tailer, also if the spider is killed
        folder = os.environ.get("DISCOVERYBOT_ATTEMPT_DIR") or stack.enter_context(TemporaryDirectory(prefix="egg-"))
        _activate(_keep(storage.path(project, version), Path(folder) / _IN_ATTEMPT))
        yield


def _activate(path: Path) -> None:
    egg = read_egg(path)
    leave_working_directory()
    activate(egg)
    os.environ["SCRAPY_SETTINGS_MODULE"] = egg.settings_module


def _keep(egg: Path, copy: Path) -> Path:
    """The egg under a name of its own: it may be deleted, or replaced by a new deployment, while the spider still
    imports from it.
    """
    try:
        copy.hardlink_to(egg)
    except OSError:  # another disk, or one that knows no links
        shutil.copyfile(egg, copy)
    return copy


# --- which spiders each egg has, written down beside it: an egg is imported once, not at every start

#: Raised when listings say more of a spider, so that every egg is looked at again.
_FORMAT = 2
#: Bytes; twice what a listing may say (`crawler.node.spawn`).
MAX_LISTING = 16 << 20


class _Record(BaseModel):
    """The file beside the egg."""

    format: int
    #: Size and time of change (ns) of the egg that was listed.
    egg: tuple[int, int]
    spiders: list[SpiderInfo]


class EggListings:
    def __init__(self, storage: EggStorage) -> None:
        self._storage = storage
        self._records: dict[Path, _Record] = {}

    def get(self, project: str, version: str) -> list[SpiderInfo] | None:
        """The spiders of the egg as it is now; `None` if it has not been listed."""
        path = self._storage.listing_path(project, version)
        record = self._records.get(path) or _read(path)
        if record is None or (record.format, record.egg) != (_FORMAT, self._stamp(project, version)):
            return None
        self._records[path] = record
        return record.spiders

    @state_change("node.write_listing")
    def keep(self, project: str, version: str, spiders: list[SpiderInfo]) -> None:
        """Write down what the egg has that is stored now. Raises `OSError`."""
        stamp = self._stamp(project, version)
        if stamp is None:
            return
        path = self._storage.listing_path(project, version)
        self._records[path] = _Record(format=_FORMAT, egg=stamp, spiders=spiders)
        write_atomically(path, self._records[path].model_dump_json().encode())

    def _stamp(self, project: str, version: str) -> tuple[int, int] | None:
        try:
            found = self._storage.path(project, version).lstat()
        except FileNotFoundError:
            return None
        return found.st_size, found.st_mtime_ns


def _read(path: Path) -> _Record | None:
    try:
        return _Record.model_validate_json(read_file(path, MAX_LISTING))
    except (OSError, ValueError):
        return None
