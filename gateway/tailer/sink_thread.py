"""Serves one store, in a thread of its own: while it is away, the other one is served all the same."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple, Protocol

import structlog

from gateway.domain.node_files import AttemptId
from gateway.tailer.attempt import Attempt

log = structlog.get_logger()

#: Seconds to leave a store, or an attempt, alone after a failure; doubled for each further one.
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 2.0
#: Seconds after which an attempt whose files cannot be read is told of.
LASTING = 5.0
#: Seconds between two rounds. A line that comes alone is shipped at once; of many in a row each round takes what has
#: gathered, which costs a fraction of shipping them one by one. The pace doubles up to that of the event stream,
#: where lines wait for each other anyway, and is forgotten after a while without rounds.
FIRST_PACE = 0.005
PACE = 0.02
QUIET = 0.1


class Sink(Protocol):
    @property
    def name(self) -> str: ...

    def ship(self, attempt: Attempt) -> bool:
        """Ship some of what is new in `attempt`; whether there may be more."""

    def is_away(self, error: Exception) -> bool:
        """Whether `error` means that the store cannot be reached, so that other attempts would fare no better."""


class _Trouble(NamedTuple):
    failures: int
    #: Monotonic, as is the next.
    until: float
    since: float
    error: Exception


class SinkThread(threading.Thread):
    def __init__(self, sink: Sink) -> None:
        super().__init__(name=f"ship to {sink.name}", daemon=True)
        self._sink = sink
        self._changed = threading.Condition()
        #: In the order in which they were asked for.
        self._waiting: dict[AttemptId, Attempt] = {}
        self._troubled: dict[AttemptId, _Trouble] = {}
        self._stopping = threading.Event()
        #: Monotonic.
        self._next_round = 0.0
        self._pace = FIRST_PACE

    def look_at(self, attempt: Attempt) -> None:
        """There may be something new in `attempt`. Returns at once."""
        with self._changed:
            self._waiting.setdefault(attempt.id, attempt)
            self._changed.notify()

    def forget(self, attempt_id: AttemptId) -> None:
        with self._changed:
            self._waiting.pop(attempt_id, None)
            self._troubled.pop(attempt_id, None)

    @property
    def troubles(self) -> list[str]:
        """Which attempts have had a file that cannot be read for a while, and what it is."""
        then = time.monotonic() - LASTING
        return [
            f"{attempt_id}: {trouble.error}"
            for attempt_id, trouble in list(self._troubled.items())
            if trouble.since < then and isinstance(trouble.error, OSError)
        ]

    def stop(self) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify()

    def run(self) -> None:
        away = 0
        while (attempt := self._next()) is not None:
            if self._is_troubled(attempt):
                continue
            with attempt.in_log():
                away = self._ship(attempt, away)

    def _ship(self, attempt: Attempt, away: int) -> int:
        """How often in a row the store was away, this time included."""
        try:
            if self._sink.ship(attempt):
                self.look_at(attempt)
        except Exception as error:  # noqa: BLE001 - nothing that one attempt or one call does may end shipping
            return self._failed(attempt, error, away)
        return self._succeeded(attempt, away)

    def _next(self) -> Attempt | None:
        """The attempt that has waited longest; `None` when it is time to go."""
        while not self._stopping.is_set():
            if not self._waiting:
                self._begin_round()
            with self._changed:
                if self._waiting:
                    return self._waiting.pop(next(iter(self._waiting)))
        return None

    def _begin_round(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping.is_set())
        early = self._next_round - time.monotonic()
        self._pace = FIRST_PACE if -early > QUIET else min(2 * self._pace, PACE)
        # not under the condition: there, every further line would wake this thread
        self._stopping.wait(max(0.0, early))
        self._next_round = time.monotonic() + self._pace

    def _is_troubled(self, attempt: Attempt) -> bool:
        trouble = self._troubled.get(attempt.id)
        return trouble is not None and time.monotonic() < trouble.until

    def _failed(self, attempt: Attempt, error: Exception, away: int) -> int:
        if self._sink.is_away(error):
            if away == 0:
                log.warning("store_away", store=self._sink.name, error=str(error))
            self.look_at(attempt)
            self._stopping.wait(_pause(away))
            return away + 1
        failures = trouble.failures if (trouble := self._troubled.get(attempt.id)) else 0
        # of a file that cannot be read there is no more to say than that
        about = {"error": str(error)} if isinstance(error, OSError) else {"exc_info": error}
        log.error("attempt_not_shipped", attempt=str(attempt.id), store=self._sink.name, **about)
        now, since = time.monotonic(), trouble.since if trouble else time.monotonic()
        self._troubled[attempt.id] = _Trouble(failures + 1, now + _pause(failures), since, error)
        return away

    def _succeeded(self, attempt: Attempt, away: int) -> int:
        self._troubled.pop(attempt.id, None)
        if away:
            log.info("store_back", store=self._sink.name)
        return 0


def _pause(failures: int) -> float:
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(failures, 16))
