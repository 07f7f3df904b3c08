"""A beat on a machine whose wall clock is wrong."""

from __future__ import annotations

import turned_clock  # noqa: F401 - which turns it

from gateway.worker.beat import MongoScheduler


class WrongClockScheduler(MongoScheduler):
    """Imported by name, and by that turns the clock of its process."""
