"""Where the CLI writes: results to stdout, everything about them to stderr."""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from pathlib import Path

from rich.console import Console

# what others have named is shown as it is: `[/b]` is no markup, and `:key:` no picture
_console = partial(Console, highlight=False, markup=False, emoji=False)
#: Columns of what is piped somewhere: tables must not lose their right half to a terminal that is not there.
_PIPED = 200

out = _console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED)
err = _console(stderr=True)


def program() -> str:
    """What to type to run us again: our name where the shell finds it, else the path from the present folder."""
    path = Path(sys.executable).with_name("discoverybot")
    if shutil.which("discoverybot") or not path.exists():
        return "discoverybot"
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def counted(number: int, thing: str) -> str:
    """`1 page`, `2 pages`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
