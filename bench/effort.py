"""How much a benchmark does."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

Chosen = TypeVar("Chosen")


class Effort(StrEnum):
    #: Takes seconds, and only shows that the benchmark runs. Its figures mean nothing.
    SMOKE = "smoke"
    #: For the table of `make bench`.
    TABLE = "table"
    #: For the table of `make bench-long`.
    LONG = "long"

    def of(self, smoke: Chosen, table: Chosen, long: Chosen | None = None) -> Chosen:
        """The value for this effort. `LONG` has the table's unless `long` is given."""
        if self is Effort.SMOKE:
            return smoke
        return table if self is Effort.TABLE or long is None else long
