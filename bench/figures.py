"""Writes what `bench/results.json` has into the tables of `docs/figures.md`: `python -m bench.figures`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bench.runner import RESULTS, ROOT, read
from bench.table import Row, render

PAGE = ROOT / "docs" / "figures.md"
#: A table stands between this line, which names its benchmarks, and the end of its code block.
_TABLE = re.compile(
    r"(?<=<!-- bench: )(?P<names>[a-z -]+)(?P<fence> -->\n```\n)(?P<table>.*?)(?=\n```$)", re.MULTILINE | re.DOTALL
)


def page(text: str, results: Mapping[str, Any]) -> str:
    """The text with its tables as the results have them. Raises `KeyError` for a benchmark without results."""

    def table(found: re.Match[str]) -> str:
        rows = [Row(**row) for name in found["names"].split() for row in results[name]["rows"]]
        return found["names"] + found["fence"] + render(rows)

    return _TABLE.sub(table, text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), read(RESULTS)), encoding="utf-8")
