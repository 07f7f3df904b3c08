"""The results of the fault tests, a row each: what was injected, what was lost or doubled, and how long recovery
took.

`make faults` names a file in FAULT_TABLE, to which each scenario adds its row, and prints them:

    python tests/support/fault_table.py <file>
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple, Self


class Row(NamedTuple):
    scenario: str
    #: The fault, how often or how long it was injected, and into how many crawls.
    injected: str
    #: Accepted crawls without a complete run that is correctly reported.
    lost: int
    #: Crawls with more than one complete run.
    doubled: int
    #: Seconds from the end of the fault until work goes on; absent if nothing was away at any time.
    recovered: float | None

    @classmethod
    def read(cls, line: str) -> Self:
        return cls(**json.loads(line))

    @property
    def is_good(self) -> bool:
        return not (self.lost or self.doubled)

    def __str__(self) -> str:
        took = "–" if self.recovered is None else f"{self.recovered:.1f}"
        return f"| {self.scenario} | {self.injected} | {self.lost} | {self.doubled} | {took} |"


def record(scenario: str, injected: str, *, lost: int, doubled: int, recovered: float | None) -> None:
    """Add the row to the table, if there is one, and then fail if anything was lost or doubled.

    `recovered` in seconds; see `Row`.
    """
    row = Row(scenario, injected, lost, doubled, recovered)
    if path := os.environ.get("FAULT_TABLE"):
        with Path(path).open("a", encoding="utf-8") as table:
            table.write(json.dumps(row._asdict()) + "\n")
    assert row.is_good, f"{scenario}: {lost} lost, {doubled} doubled"


def markdown(rows: list[Row]) -> str:
    head = ("| Scenario | Injected | Lost | Doubled | Seconds to recover |", "|---|---|--:|--:|--:|")
    return "\n".join((*head, *map(str, rows)))


def main(path: Path) -> int:
    """Print the table. Returns an exit code other than zero if one of its rows is bad."""
    rows = [Row.read(line) for line in path.read_text(encoding="utf-8").splitlines()]
    sys.stdout.write(f"\n{markdown(rows)}\n")
    return int(not all(row.is_good for row in rows))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
