"""A deployed project's egg: put away whole, and unpacked for the time that its spider runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from scrapyd.eggstorage import FilesystemEggStorage
from scrapyd.runner import activate_egg

from crawler.node.config import node_config
from gateway.crash_points import state_change

#: What an egg is called until it is whole. Beside the projects' folders, where a file is taken for no project.
_INCOMING = ".incoming"


class EggStorage(FilesystemEggStorage):
    """Scrapyd's writes into the egg itself: an upload that is cut short, by a kill or a full disk, would leave half
    an egg as the project's newest version, and a spider that starts meanwhile would get what is there.
    """

    @state_change("node.add_version")
    def put(self, eggfile: BinaryIO, project: str, version: str) -> None:
        """Store the egg, or replace it, or leave all as it was. Raises `OSError` and `DirectoryTraversalError`."""
        path = Path(self._egg_path(project, version))
        incoming = Path(self.basedir) / _INCOMING
        incoming.parent.mkdir(parents=True, exist_ok=True)
        try:
            with incoming.open("wb") as file:
                shutil.copyfileobj(eggfile, file)
            path.parent.mkdir(exist_ok=True)
            incoming.replace(path)
        finally:
            incoming.unlink(missing_ok=True)


@contextmanager
def project_environment(project: str) -> Iterator[None]:
    """Put the egg of `project` on `sys.path`, in the version of `SCRAPYD_EGG_VERSION`, else its newest.

    Scrapyd's runner does the same, but looks for eggs where scrapyd.conf says, not where this node keeps them.
    """
    version, egg = FilesystemEggStorage(node_config()).get(project, os.environ.get("SCRAPYD_EGG_VERSION"))
    if egg is None:
        yield
        return
    with egg, TemporaryDirectory(prefix="egg-") as folder:
        # a copy: the egg may be deleted or replaced by a new deployment while the spider still imports from it
        path = Path(folder) / f"{project}-{version}.egg"
        path.write_bytes(egg.read())
        activate_egg(str(path))
        yield
