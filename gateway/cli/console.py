"""Where the CLI writes: results to stdout, everything about them to stderr.

What a page, a log or the gateway says is shown, and never obeyed: a terminal that gets its control characters would
move the cursor, fill the clipboard (OSC 52) or answer on the keyboard's behalf.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

#: C0 but for tab and line feed, DEL, C1, what turns the direction of writing, and halves of surrogate pairs.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
#: Of those, what UTF-8 that JSON holds may have as it is.
_CONTROLS_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""With its control characters as `\x1b`, `\r` or `\u202e`."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def visible_json(text: str) -> str:
    """The same JSON, and nothing in it that a terminal obeys."""
    return _CONTROLS_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Visible(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        # before rich takes some of them away without a word
        return super().render_str(visible(text), **options)

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """Whatever it was that was printed, it comes by here; `control` is rich's own."""
        return super()._render_buffer(
            part if part.control else part._replace(text=visible(part.text)) for part in buffer
        )


# what others have named is shown as it is: `[/b]` is no markup, and `:key:` no picture
_console = partial(_Visible, highlight=False, markup=False, emoji=False)
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
