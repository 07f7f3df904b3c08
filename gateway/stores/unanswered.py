"""Calls of this process that MongoDB, Redis or the broker did not answer: it was silent for too long, or was gone.

Most calls are repeated at once, and no user notices. They are remembered for a minute; the next heartbeat reports
them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import NamedTuple

from gateway.clock import steady_seconds

#: Seconds for which a call is remembered.
_KEPT = 60.0
#: Calls of each store that are remembered.
_MOST = 1000
#: When they failed (steady seconds), by store. There is one per process, as of its log: all callers note their calls.
_calls: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_MOST))


class Unanswered(NamedTuple):
    store: str
    calls: int
    #: Seconds from the first to the last.
    lasted: float
    #: Seconds since the last.
    ago: float


def note_unanswered(store: str) -> None:
    _calls[store].append(steady_seconds())


def lately_unanswered() -> list[Unanswered]:
    now = steady_seconds()
    recent = {store: [at for at in calls.copy() if now - at <= _KEPT] for store, calls in _calls.copy().items()}
    return [Unanswered(store, len(ats), ats[-1] - ats[0], now - ats[-1]) for store, ats in recent.items() if ats]
