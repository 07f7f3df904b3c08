"""What the templates of the console's pages have in common."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from gateway import console
from gateway.console.pages import ENVIRONMENT
from gateway.items import table_files

_CONSOLE = Path(console.__file__).parent
_TEMPLATES = sorted((_CONSOLE / "templates").rglob("*.html"))
#: Markup and expressions; the rest is what a person reads.
_NOT_SHOWN = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<[^>]*>", re.DOTALL)


def test_no_page_shows_an_escape_sequence() -> None:
    r"""An editor that was asked for a line break has written `\n` once."""
    assert not [path for path in _TEMPLATES if "\\" in _NOT_SHOWN.sub("", path.read_text())]


def test_downloads_are_offered_in_the_formats_that_the_gateway_can_write(monkeypatch: pytest.MonkeyPatch) -> None:
    for extra, formats in ((find_spec("json"), "jsonl json csv xlsx parquet"), (None, "jsonl json csv xlsx")):
        monkeypatch.setattr(table_files, "find_spec", lambda _, found=extra: found)
        offered = ENVIRONMENT.from_string("{{ file_formats() }}").render()
        assert offered == formats
    assert not [path for path in _TEMPLATES if "parquet" in path.read_text()]
