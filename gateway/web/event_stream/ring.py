"""The live end of a watched job's log, as it came over Redis."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.web.event_stream.run import Run
from gateway.web.event_stream.sse import log_event


class Ring(Run):
    """A run that follows the newest lines and forgets the oldest. Whatever it has not got is read from the stores."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        super().__init__(attempt=0, start=0)
        self._max_entries = max_entries
        self._max_bytes = max_bytes

    def push(self, attempt: int, rows: Iterable[tuple[int, int, str]]) -> bool:
        """Take (start, end, JSON) rows; whether lines before them are missing, so that the run begins anew.

        A tailer that was killed publishes lines again: what is known, or of an earlier attempt, is dropped.
        """
        restarted = False
        for start, end, data in rows:
            if (attempt, end) <= (self.attempt, self.end):
                continue
            if attempt != self.attempt or start != self.end:
                self._restart(attempt, start)
                restarted = True
            self.append(end, log_event(attempt, end, data.encode()))
        self._trim()
        return restarted

    def _restart(self, attempt: int, start: int) -> None:
        self._drop(len(self))
        self.attempt, self.start = attempt, start

    def _trim(self) -> None:
        # a quarter more than allowed before anything goes: moving a list per line would be quadratic
        if len(self) * 4 <= self._max_entries * 5 and self.size * 4 <= self._max_bytes * 5:
            return
        count = max(0, len(self) - self._max_entries)
        excess = self.size - self._max_bytes
        for event in self._events[:count]:
            excess -= len(event)
        while excess > 0:
            excess -= len(self._events[count])
            count += 1
        self._drop(count)
