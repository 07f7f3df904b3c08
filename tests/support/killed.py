"""A story that is told by one process after another, each killed at the next crash point, until one comes through."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from stores import ROOT


def tell_until_nobody_is_killed(tell: Callable[..., object]) -> None:
    """For the process that `killed_everywhere` starts: prints how many were killed, and how the last one ended."""
    killed = 0
    while True:
        if (pid := os.fork()) == 0:
            try:
                tell(*sys.argv[1:])
            except BaseException:  # noqa: BLE001 - whatever it was, it is told to the test
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
    """Whoever tells it dies once before and once after each write of `points`, and the last one gets to the end.

    `story` is source that defines or imports `tell`, which is given `arguments`; it may import what lies `beside` the
    file of that name.
    """
    plan = tmp_path / "plan"
    plan.mkdir()
    for point in points:
        for side in ("before", "after"):
            (plan / f"{point}.{side}").touch()
    paths = (str(Path(beside).parent), str(ROOT / "tests/support"), str(ROOT))
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{story}\nfrom killed import tell_until_nobody_is_killed\ntell_until_nobody_is_killed(tell)",
            *arguments,
        ],
        cwd=ROOT,
        env={
            **os.environ,
            **variables,
            "PYTHONPATH": os.pathsep.join(paths),
            "DISCOVERYBOT_CRASH_PLAN": str(plan),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    left = sorted(path.name for path in plan.iterdir())
    assert not left, (left, done.stderr)
    # before it, what was logged
    assert done.stdout.splitlines()[-1].split() == [str(2 * len(points)), "0"], done.stderr
