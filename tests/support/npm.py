"""npm packages of clients, for scripts that try them with Node.js."""

from __future__ import annotations

import subprocess
from pathlib import Path

from machine import find_program


def install(package: str, folder: Path) -> Path:
    """Install the package (`name@version`) into `folder`, where it is kept between runs, and return the folder."""
    npm = find_program("npm")
    if not (folder / "node_modules" / package.partition("@")[0]).is_dir():
        options = ("--no-audit", "--no-fund", "--ignore-scripts")
        subprocess.run([npm, "install", *options, package], cwd=folder, check=True, capture_output=True, timeout=120)
    return folder
