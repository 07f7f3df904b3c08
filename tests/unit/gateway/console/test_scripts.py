"""What the console's scripts compute, tested where they compute it: in `js/`, with Node's own test runner."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from machine import find_program

TESTS = sorted((Path(__file__).parent / "js").glob("*.test.mjs"))


def test_what_the_scripts_compute() -> None:
    node = find_program("node")
    done = subprocess.run(
        [node, "--test", *map(str, TESTS)],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TZ": "UTC"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
