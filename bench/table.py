"""The rows that a benchmark returns: our value and the one it is compared with, measured alternately in one run."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

Measured = TypeVar("Measured")
_BOUNDS = {"<=": operator.le, ">=": operator.ge}


class Row(NamedTuple):
    what: str
    unit: str
    ours: float
    #: The value that ours is compared with.
    beside: float
    beside_what: str
    #: `ours / beside`.
    ratio: float
    #: The target for the ratio, for instance `>= 0.9`; empty if there is none.
    wanted: str = ""


def is_met(row: Row) -> bool | None:
    """Whether the ratio is as wanted; `None` if no ratio is wanted."""
    if not row.wanted:
        return None
    bound, value = row.wanted.split()
    return bool(_BOUNDS[bound](row.ratio, float(value)))


def alternate(ours: Callable[[], float], beside: Callable[[], float], rounds: int) -> tuple[float, float]:
    """Medians of `rounds` measurements of each, after one warm-up. They alternate, so that a change of the machine's
    speed affects both.
    """
    ours(), beside()
    pairs = in_turn(ours, beside, rounds)
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


def in_turn(
    ours: Callable[[], Measured], beside: Callable[[], Measured], rounds: int
) -> list[tuple[Measured, Measured]]:
    return [(ours(), beside()) for _ in range(rounds)]


def render(rows: Sequence[Row]) -> str:
    head = ("what", "unit", "ours", "beside", "ratio", "wanted", "beside what")
    lines = [
        (
            row.what,
            row.unit,
            f"{row.ours:.3g}",
            f"{row.beside:.3g}",
            f"{row.ratio:.2f}",
            _wanted(row),
            row.beside_what,
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in (head, *lines)) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (head, *lines)
    )


def _wanted(row: Row) -> str:
    return row.wanted + " (missed)" * (is_met(row) is False)
