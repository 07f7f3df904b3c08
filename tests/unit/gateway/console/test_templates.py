"""What the templates of the console's pages have in common."""

from __future__ import annotations

import re
from pathlib import Path

from gateway import console

_CONSOLE = Path(console.__file__).parent
_TEMPLATES = sorted((_CONSOLE / "templates").rglob("*.html"))
#: Markup and expressions; the rest is what a person reads.
_NOT_SHOWN = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<[^>]*>", re.DOTALL)


def test_no_page_shows_an_escape_sequence() -> None:
    r"""An editor that was asked for a line break has written `\n` once."""
    assert not [path for path in _TEMPLATES if "\\" in _NOT_SHOWN.sub("", path.read_text())]
