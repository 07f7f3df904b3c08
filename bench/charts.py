"""Draws the rows of a table of `docs/figures.md` as bars: our figure, and below it the one that it is
compared with.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from html import escape

from bench.table import Row, is_met

_LABELS, _BARS, _VALUES = 470, 330, 150
_WIDTH = _LABELS + _BARS + _VALUES
_ROW, _BAR, _TOP = 58, 16, 34
#: Most characters in a line of a label, and most lines for what is measured. One more line says what it is compared
#: with.
_LINE, _LINES = 66, 2
_TITLE = "Our figures, each above what it is compared with; the table has the same numbers"
#: The picture has its own background, so that it is readable on any page.
_STYLE = """
  .ground { fill: #ffffff }
  .ours { fill: #0969da }
  .missed { fill: #bc4c00 }
  .beside { fill: #afb8c1 }
  .wanted { stroke: #1f2328; stroke-width: 2 }
  text { font: 12.5px system-ui, sans-serif; fill: #1f2328 }
  .small { font-size: 11.5px; fill: #57606a }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117 }
    .ours { fill: #58a6ff }
    .missed { fill: #f0883e }
    .beside { fill: #484f58 }
    .wanted { stroke: #e6edf3 }
    text { fill: #e6edf3 }
    .small { fill: #adbac7 }
  }
"""


def chart(rows: Sequence[Row]) -> str:
    """An SVG picture. Each row has its own scale, which ends at the larger of its two figures or at its limit."""
    height = _TOP + _ROW * len(rows)
    view = f'viewBox="0 0 {_WIDTH} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {view} role="img" aria-label="{_TITLE}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="ground" width="{_WIDTH}" height="{height}"/>',
            *_legend(),
            *(line for number, row in enumerate(rows) for line in _bars(row, _TOP + _ROW * number)),
            "</svg>\n",
        ]
    )


def _legend() -> Iterator[str]:
    for left, kind, word in ((0, "ours", "ours"), (70, "missed", "ours, target missed"), (220, "beside", "beside")):
        yield f'<rect class="{kind}" x="{_LABELS + left}" y="10" width="12" height="12"/>'
        yield f'<text x="{_LABELS + left + 17}" y="20">{word}</text>'
    yield f'<path class="wanted" d="M{_LABELS + 300},8 v16"/><text x="{_LABELS + 307}" y="20">target</text>'


def _bars(row: Row, top: int) -> Iterator[str]:
    limit = row.beside * float(row.wanted.split()[1]) if row.wanted else None
    end = max(row.ours, row.beside, limit or 0) or 1
    label = textwrap.wrap(row.what, _LINE, max_lines=_LINES, placeholder=" …")
    for number, words in enumerate(label):
        yield f'<text x="10" y="{top + 14 + 15 * number}">{escape(words)}</text>'
    beside = textwrap.shorten(f"beside: {row.beside_what}", _LINE + 6, placeholder=" …")
    yield f'<text class="small" x="10" y="{top + 14 + 15 * len(label)}">{escape(beside)}</text>'
    bars = (("missed" if is_met(row) is False else "ours", row.ours), ("beside", row.beside))
    for number, (kind, value) in enumerate(bars):
        y, width = top + 3 + (_BAR + 3) * number, value / end * _BARS
        yield f'<rect class="{kind}" x="{_LABELS}" y="{y}" width="{max(width, 1):.1f}" height="{_BAR}"/>'
        yield f'<text x="{_LABELS + _BARS + 8}" y="{y + 12}">{value:.3g} {escape(row.unit)}</text>'
    if limit is not None:
        yield f'<path class="wanted" d="M{_LABELS + limit / end * _BARS:.1f},{top} v{2 * _BAR + 9}"/>'
