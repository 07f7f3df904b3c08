"""Which Chromium renders pages on this node."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from gateway.crash_points import state_change
from gateway.domain.node_files import BROWSER, write_atomically

if TYPE_CHECKING:
    from gateway.settings import NodeSettings

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
#: Below the home folder, on Linux and on macOS.
_PLAYWRIGHTS = (
    ".cache/ms-playwright/chromium*/chrome-*/chrome",
    "Library/Caches/ms-playwright/chromium*/chrome-*/*.app/Contents/MacOS/*",
)


def find_chromium(settings: NodeSettings) -> Path | None:
    """`CHROMIUM_PATH`, else the first on `PATH`, else Playwright's own.

    Where `CHROMIUM_PATH` is set nothing else is looked for: who names one does not want another.
    """
    if settings.chromium_path:
        return settings.chromium_path.absolute() if _is_program(settings.chromium_path) else None
    on_path = next((path for name in _NAMES if (path := shutil.which(name))), None)
    return Path(on_path).absolute() if on_path else _playwrights_own()


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _playwrights_own() -> Path | None:
    """The newest that `playwright install chromium` has put into the home folder."""
    found = [path for pattern in _PLAYWRIGHTS for path in Path.home().glob(pattern) if _is_program(path)]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


@state_change("node.browser")
def write_browser_file(node_dir: Path, settings: NodeSettings) -> None:
    """Write down for the tailer whether this node can render pages."""
    node_dir.mkdir(parents=True, exist_ok=True)
    chromium = find_chromium(settings)
    write_atomically(node_dir / BROWSER, orjson.dumps({"chromium": str(chromium) if chromium else None}))
