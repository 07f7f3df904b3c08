"""Where a reader stands in a job's log."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

_POSITION = re.compile(r"(\d{1,6})-(\d{1,15})", re.ASCII)


class Position(NamedTuple):
    """Everything before byte `offset` of attempt `attempt`'s log has been read. Positions are ordered."""

    attempt: int
    offset: int

    def __str__(self) -> str:
        return f"{self.attempt}-{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """`None` for anything that is not the id of an event of ours."""
        match = _POSITION.fullmatch(text)
        return cls(int(match[1]), int(match[2])) if match else None


#: Where whoever has read nothing stands.
START = Position(1, 0)
