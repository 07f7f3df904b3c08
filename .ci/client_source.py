"""What the makers of the Python client's modules share: how the source that they write looks."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: The types of JSON in Python.
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

Schema = dict[str, Any]


def docstring(text: str | None) -> Iterator[str]:
    """The lines of a docstring, as editors show it beside a class or a field; none without a text."""
    if text:
        whole = " ".join(text.split()).replace("\\", "\\\\").rstrip(".") + "."
        lines = textwrap.wrap(whole, 104, break_long_words=False, break_on_hyphens=False)
        yield f'    """{lines[0]}' + ('"""' if len(lines) == 1 else "")
        yield from (f"    {line}" for line in lines[1:])
        if len(lines) > 1:
            yield '    """'


def formatted(text: str) -> str:
    """The module's text, as `make check` wants it."""
    ruff = [str(Path(sys.executable).with_name("ruff")), "format", "--config", str(ROOT / "pyproject.toml"), "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
