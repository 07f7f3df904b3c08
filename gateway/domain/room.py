"""What there is room for: which of the waiting jobs could be started somewhere now."""

from __future__ import annotations

from typing import NamedTuple


class Egg(NamedTuple):
    """One version of a deployed project."""

    project: str
    version: str


class Room(NamedTuple):
    """Of all nodes together. A job of our own project without a browser fits wherever there is room at all."""

    #: A browser may be driven.
    render: bool = True
    #: What was deployed where a slot is free.
    eggs: frozenset[Egg] = frozenset()
