"""Packages of npm that clients use, for scripts that try them with Node.js."""

from __future__ import annotations

import subprocess
from pathlib import Path

from machine import find_program


def install(package: str, folder: Path) -> Path:
    """`folder` with the package (`name@version`), which is kept from run to run."""
    npm = find_program("npm")
    if not (folder / "node_modules" / package.partition("@")[0]).is_dir():
        options = ("--no-audit", "--no-fund", "--ignore-scripts")
        subprocess.run([npm, "install", *options, package], cwd=folder, check=True, capture_output=True, timeout=120)
    return folder
