"""A deployed project's egg, for the time that its spider runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from scrapyd.eggstorage import FilesystemEggStorage
from scrapyd.runner import activate_egg

from crawler.node.config import node_config


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
