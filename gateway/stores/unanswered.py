"""Calls of this process that MongoDB, Redis or the broker did not answer: silent for too long, or gone before that.

Most are made again at once, and nobody notices. They are remembered for a minute, for the next sign of life to tell.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import NamedTuple

from gateway.clock import steady_seconds

#: Seconds for which a call is remembered,
_KEPT = 60.0
#: and how many of each store.
_MOST = 1000
#: When they failed (steady seconds), by store. Of the process, as its log: whoever makes a call notes it.
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
