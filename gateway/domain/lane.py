"""Where a job stands among those that wait: in which lane, and who is before it there."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple, Self
from urllib.parse import quote, unquote

#: A point of priority is worth as much as having waited for so much longer.
POINT = timedelta(minutes=1)
_BROWSER, _PLAIN = "browser", "plain"
#: Comes after every character of a quoted text.
_LAST = "\x7f"


class Need(NamedTuple):
    """What a job needs of a node besides a slot."""

    project: str
    #: `None` is any.
    version: str | None = None
    render: bool = False

    def __str__(self) -> str:
        parts = _BROWSER if self.render else _PLAIN, quote(self.project, safe=""), quote(self.version or "", safe="")
        return "/".join(parts)

    @property
    def end(self) -> str:
        """Above the names of all lanes that need this, and below those of all that follow."""
        return f"{self}/{_LAST}"


class Lane(NamedTuple):
    """The jobs of one user that need the same: where there is room for one of them there is for any."""

    need: Need
    user_id: str

    def __str__(self) -> str:
        return f"{self.need}/{quote(self.user_id, safe='')}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The lane of that name. Raises `ValueError` for what is none."""
        kind, project, version, user_id = text.split("/")
        return cls(Need(unquote(project), unquote(version) or None, kind == _BROWSER), unquote(user_id))


def rank(due: datetime, priority: int) -> datetime:
    """Who has the lowest goes first. All age alike, a second each second, so that who is before whom never changes,
    and is known when a job is made: Jackson's urgency numbers (Naval Research Logistics Quarterly 9, 1962).
    """
    return due - priority * POINT
