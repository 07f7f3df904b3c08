"""A beat on a machine whose wall clock is wrong."""

from __future__ import annotations

import turned_clock  # noqa: F401 - sets the clock wrong

from gateway.worker.beat import MongoScheduler


class WrongClockScheduler(MongoScheduler):
    """Scheduler that is imported by name, which sets the clock of its process wrong."""
