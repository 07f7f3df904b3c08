"""State of a spider that has to go on with its crawl: what it has seen, what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Called with the part's name, the method and its arguments.
Note = Callable[[str, str, tuple[Any, ...]], None]


class KeptState:
    """A part of a spider's state whose changes are stored with the request that caused them.

    A spider names its parts in `kept_state`, a dictionary. A method that changes a part calls `note` with its own
    name and the arguments with which the change can be repeated.
    """

    _part = ""
    _note: Note | None = None

    def keep(self, part: str, note: Note) -> None:
        self._part, self._note = part, note

    def note(self, method: str, *args: Any) -> None:
        if self._note is not None:
            self._note(self._part, method, args)

    def replay(self, method: str, args: tuple[Any, ...]) -> None:
        """Repeat a change that an earlier attempt has made."""
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


class KeptQueue(KeptState):
    """A queue of elements with keys that are never used twice.

    The request that takes an element may be done before the request that has put it there, so changes can be repeated
    in that order. Taking is therefore repeated by key, and also works before putting.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Any] = {}
        self._taken_before: set[str] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def first(self) -> Any:
        return next(iter(self._waiting.values()))

    def put(self, key: str, element: Any) -> None:
        if key in self._taken_before:
            self._taken_before.discard(key)
        else:
            self._waiting[key] = element
        self.note("put", key, element)

    def take(self) -> tuple[str, Any]:
        """Remove the first element; return its key and the element."""
        key = next(iter(self._waiting))
        element = self._waiting.pop(key)
        self.note("taken", key)
        return key, element

    def taken(self, key: str) -> None:
        if self._waiting.pop(key, None) is None:
            self._taken_before.add(key)
