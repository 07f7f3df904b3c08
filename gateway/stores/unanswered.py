"""Calls of this process that MongoDB, Redis or the broker did not answer, because it was too slow or not reachable.

Most such calls are repeated at once, and no user notices. They are remembered for a minute, and the next heartbeat
reports them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import NamedTuple

from gateway.clock import steady_seconds

#: Seconds for which a call is remembered.
_KEPT = 60.0
#: How many calls of each store are remembered.
_MOST = 1000
#: When the calls failed (`steady_seconds`), by store. It is global, as the log is, because all callers note calls
#: here.
_calls: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_MOST))


class Unanswered(NamedTuple):
    """Recent calls that a store did not answer."""

    store: str
    calls: int
    #: Seconds from the first call to the last.
    lasted: float
    #: Seconds since the last call.
    ago: float


def note_unanswered(store: str) -> None:
    """Record that this store has just not answered a call."""
    _calls[store].append(steady_seconds())


def lately_unanswered() -> list[Unanswered]:
    """The unanswered calls of the last minute, by store."""
    now = steady_seconds()
    recent = {store: [at for at in calls.copy() if now - at <= _KEPT] for store, calls in _calls.copy().items()}
    return [Unanswered(store, len(ats), ats[-1] - ats[0], now - ats[-1]) for store, ats in recent.items() if ats]
