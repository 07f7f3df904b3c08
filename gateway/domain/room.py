"""What there is room for: which of the waiting jobs could be started somewhere now."""

from __future__ import annotations

from typing import NamedTuple

from gateway.domain.job import DEFAULT_PROJECT
from gateway.domain.lane import Need


class Egg(NamedTuple):
    """One version of a deployed project."""

    project: str
    version: str


class Room(NamedTuple):
    """Of all nodes together. A job of our own project, which is on every node, fits wherever there is room at all."""

    #: What was deployed where a slot is free.
    eggs: frozenset[Egg] = frozenset()
    #: What was deployed where a browser may be driven as well; `None` where none may.
    render_eggs: frozenset[Egg] | None = None

    def fits(self, need: Need) -> bool:
        eggs = self.render_eggs if need.render else self.eggs
        if eggs is None:
            return False
        if need.version is not None:
            return need.project == DEFAULT_PROJECT or Egg(need.project, need.version) in eggs
        return need.project == DEFAULT_PROJECT or any(egg.project == need.project for egg in eggs)
