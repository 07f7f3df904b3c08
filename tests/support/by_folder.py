"""How `pytest -n` shares out the files with tests: a worker stays in a folder until all of its files are given away.

What the tests of a folder share, such as a platform or a browser, is then started in one worker and not in all of
them. And workers are in different folders: tests that wait leave the processors to tests that compute.
"""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: `tests/browser/console`, `tests/integration/web`: what is below them shares what they have.
_DEPTH = 3


def folder_of(file: str) -> str:
    return str(PurePosixPath(*PurePosixPath(file).parent.parts[:_DEPTH]))


def next_file(waiting: list[str], own: str | None, others: set[str]) -> str:
    """What a worker gets that was in the folder `own`, while others are in theirs."""
    left = Counter(map(folder_of, waiting))
    if own not in left:
        # where nobody is, or where most is left
        own = next((one for one in left if one not in others), left.most_common(1)[0][0])
    return next(file for file in waiting if folder_of(file) == own)


class FolderScheduling(LoadFileScheduling):
    """`--dist loadfile` gives the files away in their order, whoever asks."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        folders = {one: folder_of(next(reversed(files))) for one, files in self.assigned_work.items() if files}
        own = folders.pop(node, None)
        self.workqueue.move_to_end(next_file(list(self.workqueue), own, set(folders.values())), last=False)
        super()._assign_work_unit(node)
