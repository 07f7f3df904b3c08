"""What tests need of the machine. Without it they are skipped; where a program is missing, CI fails instead."""

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
    """The path of the first one that is installed."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    return found or missing(f"{' or '.join(names)} is not installed: see tests/install-system-packages")


def find_headless_chromium() -> str:
    """Without the windows that Chromium makes unseen for each context: those cost six times the processor's time."""
    return find_program("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def missing(reason: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Have the empty `folder` be a file system of its own, of `size` as `mount` takes it."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        # a container of CI may lack the right to it
        pytest.skip("a file system of its own needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
