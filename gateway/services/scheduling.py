"""Fires what is due. Any number of beats may tick at once, and die between any two steps."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple


class TickReport(NamedTuple):
    """What one tick did, by job ids; for skipped and missed slots by the ids that their jobs would have had."""

    fired: list[str]
    skipped: list[str]
    missed: list[str]
    #: One-off jobs whose time has come.
    promoted: list[str]
    #: Schedules that are due still.
    due_left: int
    #: When there will be something to do, as far as is known.
    next_due: datetime | None


class Scheduling:
    def tick(self) -> TickReport:
        """Everything that is due now. Raises what a store raises that is away; whatever was begun is gone on with."""
        raise NotImplementedError
