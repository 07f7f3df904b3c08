"""Writes the content of `bench/results.json` into `docs/figures.md` and its charts: `python -m bench.figures`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bench.charts import chart
from bench.runner import RESULTS, ROOT, read
from bench.table import Row, render

PAGE = ROOT / "docs" / "figures.md"
CHARTS = ROOT / "docs" / "figures"
#: A table is between a line that names its benchmarks and the end of its code block.
_TABLE = re.compile(
    r"(?<=<!-- bench: )(?P<names>[a-z -]+)(?P<fence> -->\n```\n)(?P<table>.*?)(?=\n```$)", re.MULTILINE | re.DOTALL
)


def page(text: str, results: Mapping[str, Any]) -> str:
    """The text with its tables filled from the results. Raises `KeyError` for a benchmark without results."""
    return _TABLE.sub(lambda found: found["names"] + found["fence"] + render(_rows(found, results)), text)


def charts(text: str, results: Mapping[str, Any]) -> dict[str, str]:
    """A picture for each table, by the name of the table's first benchmark. Raises `KeyError` as `page` does."""
    return {found["names"].split()[0]: chart(_rows(found, results)) for found in _TABLE.finditer(text)}


def _rows(table: re.Match[str], results: Mapping[str, Any]) -> list[Row]:
    return [Row(**row) for name in table["names"].split() for row in results[name]["rows"]]


def write() -> None:
    results = read(RESULTS)
    text = page(PAGE.read_text(encoding="utf-8"), results)
    PAGE.write_text(text, encoding="utf-8")
    CHARTS.mkdir(exist_ok=True)
    for name, picture in charts(text, results).items():
        (CHARTS / f"{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    write()
