"""The jobs that ended within the last hour, kept between two looks so that each look reads only what is new."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from gateway.storage.ended_jobs import EndedJob, EndedJobs

WINDOW = timedelta(hours=1)
#: Ends that are kept, the latest.
MAX_ENDS = 20_000
#: An end may become visible so long after the time that it bears.
LATENESS = timedelta(seconds=15)


class RecentEnds:
    """Not to be used by two threads at once."""

    def __init__(self, ended: EndedJobs) -> None:
        self._ended = ended
        self._known: dict[str, EndedJob] = {}
        self._looked_at: datetime | None = None

    def look(self, now: datetime) -> Collection[EndedJob]:
        """Raises what PyMongo raises; nothing is lost by that, the next look reads what this one would have."""
        since = now - WINDOW
        unread = since if self._looked_at is None else max(since, self._looked_at - LATENESS)
        new = self._ended.since(unread, MAX_ENDS)
        # oldest first
        known = {**self._known, **{end.id: end for end in reversed(new)}}
        fresh = [end for end in known.values() if end.finished_at >= since][-MAX_ENDS:]
        self._known = {end.id: end for end in fresh}
        self._looked_at = now
        return self._known.values()
