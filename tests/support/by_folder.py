"""How `pytest -n` distributes test files: a worker stays in a folder until all files of the folder are given out.

The tests of a folder share fixtures, such as a platform or a browser, which are then started in one worker instead of
all. And workers are in different folders, so tests that wait leave the processors to tests that compute.
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: Parts of a folder's path that count, as in `tests/browser/console`: what is below it shares its fixtures.
_DEPTH = 3


def folder_of(file: str) -> str:
    return str(PurePosixPath(*PurePosixPath(file).parent.parts[:_DEPTH]))


def next_file(waiting: list[str], own: str | None, others: set[str]) -> str:
    """The next file for a worker that was in the folder `own`, while other workers are in `others`."""
    left = Counter(map(folder_of, waiting))
    if own not in left:
        # a folder without a worker, or else the one with the most files left
        own = next((one for one in left if one not in others), left.most_common(1)[0][0])
    return next(file for file in waiting if folder_of(file) == own)


class FolderScheduling(LoadFileScheduling):
    """`--dist loadfile` would give out the files in their order to any worker."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        folders = {one: folder_of(next(reversed(files))) for one, files in self.assigned_work.items() if files}
        own = folders.pop(node, None)
        self.workqueue.move_to_end(next_file(list(self.workqueue), own, set(folders.values())), last=False)
        super()._assign_work_unit(node)
