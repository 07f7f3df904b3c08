"""`?level=` and `?q=`: which lines a client wants to see."""

from __future__ import annotations

from typing import NamedTuple, Self

import orjson

from gateway.domain.errors import InvalidRequestError
from gateway.domain.log_line import LEVELS

MAX_TEXT = 200


class LineFilter(NamedTuple):
    #: Lowest level number shown; a line without a level of its own has that of the line it belongs to.
    level: int = 0
    #: Text to be found, casefolded.
    text: str = ""

    @classmethod
    def of(cls, level: str | None, text: str | None) -> Self:
        """Raises `InvalidRequestError` that names `level` or `q`."""
        if level is not None and level.upper() not in LEVELS:
            raise InvalidRequestError("level", f"must be one of {', '.join(LEVELS)}")
        if text is not None and len(text) > MAX_TEXT:
            raise InvalidRequestError("q", f"must have at most {MAX_TEXT} characters")
        return cls(LEVELS[level.upper()] if level else 0, (text or "").casefold())

    @property
    def is_active(self) -> bool:
        return self != type(self)()

    def accepts(self, data: bytes) -> bool:
        """`data` is an entry's JSON (see `LogEntry.to_json`). The text is looked for in message and logger."""
        entry = orjson.loads(data)
        if LEVELS.get(entry["level"], 0) < self.level:
            return False
        return self.text in f"{entry.get('logger', '')} {entry['msg']}".casefold()
