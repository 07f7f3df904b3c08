"""A story that several processes run one after the other, each killed at the next crash point, until one completes
it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import warm
from stores import ROOT

#: Most seconds for all of them.
_PATIENCE = 300


def main() -> None:
    """For the process that `killed_everywhere` starts. Its arguments are the story and the arguments of `tell`."""
    scope: dict[str, Callable[..., object]] = {}
    exec(sys.argv.pop(1), scope)
    tell_until_nobody_is_killed(scope["tell"])


def tell_until_nobody_is_killed(tell: Callable[..., object]) -> None:
    """Run `tell` in new processes until none is killed. Prints how many were killed, and how the last one ended."""
    killed = 0
    while True:
        if (pid := os.fork()) == 0:
            try:
                tell(*sys.argv[1:])
            except BaseException:  # noqa: BLE001 - any exception is passed on to the test
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        if not os.WIFSIGNALED(status):
            break
        killed += 1
    sys.stdout.write(f"{killed} {os.waitstatus_to_exitcode(status)}\n")


def killed_everywhere(
    tmp_path: Path, points: Sequence[str], story: str, *arguments: str, beside: str, **variables: str
) -> None:
    """Check that a process dies once before and once after each write of `points`, and that the last one completes
    the story.

    `story` is source code that defines or imports `tell`, which gets `arguments`. It can import modules that are
    `beside` the file of that name.
    """
    plan = tmp_path / "plan"
    plan.mkdir()
    for point in points:
        for side in ("before", "after"):
            (plan / f"{point}.{side}").touch()
    paths = (str(Path(beside).parent), str(ROOT / "tests/support"), str(ROOT))
    own = {"PYTHONPATH": os.pathsep.join(paths), "DISCOVERYBOT_CRASH_PLAN": str(plan)}
    done = warm.run("killed", story, *arguments, env={**os.environ, **variables, **own}, patience=_PATIENCE)
    assert done.returncode == 0, done.stderr
    left = sorted(path.name for path in plan.iterdir())
    assert not left, (left, done.stderr)
    # the lines before the last one are log
    assert done.stdout.splitlines()[-1].split() == [str(2 * len(points)), "0"], done.stderr
