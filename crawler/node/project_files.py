"""Files that a project opens by names relative to the folder of its scrapy.cfg (`open("words.txt")`).

A crawl runs in a folder of its own, which has what it writes, and its egg has the project's files in their places. So
a file that is opened for reading and is not in the working directory is looked for in the egg. Nothing is copied: a
crawl cannot change a file for others, and does not find a committed `items.json` where it writes its own.
"""

from __future__ import annotations

import builtins
import io
import os
from functools import wraps
from pathlib import Path
from typing import Any


def open_from(egg: Path) -> None:
    """Let this process read the files of the unpacked egg by names relative to the working directory."""
    opened = builtins.open

    @wraps(opened)
    def open_either(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        try:
            return opened(file, mode, *args, **kwargs)
        except FileNotFoundError:
            place = place_in(egg, os.fsdecode(file)) if set(mode) <= set("rbt") else None
            if place is None or not place.is_file():
                raise
        return opened(place, mode, *args, **kwargs)

    # `pathlib` and others take it from `io`
    builtins.open = io.open = open_either


def place_in(egg: Path, name: str) -> Path | None:
    """Where the egg has the file or folder of this name, relative to the working directory; `None` if it has none."""
    if not name:
        return None
    place = egg / os.path.relpath(name)
    return place if ".." not in place.parts and place.exists() else None
