"""The two ends of an attempt, told to the job: that it was started, and how it ended."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from gateway.domain.node_files import ITEMS, LOG, AttemptId, ExitReport
from gateway.tailer.attempt import Attempt
from gateway.tailer.exit_facts import read_facts
from gateway.tailer.outbox import started_at


class Completion(Protocol):
    """What the tailer needs of it. Both may be repeated; both return once MongoDB has the facts."""

    def attempt_started(self, attempt_id: AttemptId, started_at: datetime) -> None: ...

    def record_exit(self, attempt_id: AttemptId, facts: ExitReport, log_end: int) -> bool: ...


class ExitShipper:
    def __init__(self, completion: Completion) -> None:
        self._completion = completion

    def ship_start(self, attempt: Attempt) -> None:
        if attempt.start_reported:
            return
        moment = started_at(attempt.folder)
        if moment is not None:
            self._completion.attempt_started(attempt.id, moment)
            attempt.start_reported = True

    def ship_exit(self, attempt: Attempt) -> bool:
        """To be called once MongoDB has what can be read of log and items. Whether the job has the attempt."""
        lost = attempt.checkpoint.lost
        facts = read_facts(attempt).model_copy(update={"items_lost": lost.get(ITEMS), "log_lost": lost.get(LOG)})
        return self._completion.record_exit(attempt.id, facts, attempt.log_end or 0)
