"""State of a spider that has to go on with its crawl: what it has seen, what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Called with the part's name, the method and its arguments.
Note = Callable[[str, str, tuple[Any, ...]], None]


class KeptState:
    """A part of a spider's state whose changes are kept with the request that they came of.

    A spider names its parts in `kept_state`, a dictionary. A method that changes a part calls `note` with its own
    name and what it takes to do it again.
    """

    _part = ""
    _note: Note | None = None

    def keep(self, part: str, note: Note) -> None:
        self._part, self._note = part, note

    def note(self, method: str, *args: Any) -> None:
        if self._note is not None:
            self._note(self._part, method, args)

    def replay(self, method: str, args: tuple[Any, ...]) -> None:
        """Do again what an attempt before has done."""
        note, self._note = self._note, None
        try:
            getattr(self, method)(*args)
        finally:
            self._note = note


class KeptSet(KeptState, set[Any]):
    """A set that only grows."""

    def add(self, element: Any) -> None:
        if element not in self:
            super().add(element)
            self.note("add", element)
