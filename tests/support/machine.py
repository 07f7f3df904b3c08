"""Requirements of tests on the machine. Without one, tests are skipped; if a program is missing, CI fails instead."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest


def find_program(*names: str) -> str:
    """The path of the first of these programs that is installed."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    return found or missing(f"{' or '.join(names)} is not installed: see tests/install-system-packages")


def find_headless_chromium() -> str:
    """Chromium's headless shell. Full Chromium makes invisible windows for each context, and takes six
    times the CPU.
    """
    return find_program("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def missing(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a file system of its own at the empty `folder`; `size` is an option of `mount`."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        # a CI container may lack the right to mount
        pytest.skip("a file system of its own needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
