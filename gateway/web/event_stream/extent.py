"""How far a job's log reaches, as far as its document says."""

from __future__ import annotations

from gateway.domain.job import Attempt, Job
from gateway.web.event_stream.position import Position


def attempt_at(job: Job, position: Position) -> Attempt | None:
    """The attempt whose log is being read; `None` for one that no node has accepted (yet, or ever)."""
    return job.attempts.get(str(position.attempt))


def next_attempt(job: Job, position: Position) -> int | None:
    """Numbers may be left out: an attempt that was placed and never accepted has no record."""
    return min((number for number in map(int, job.attempts) if number > position.attempt), default=None)


def has_ended(job: Job, position: Position) -> bool:
    """Whether nothing more will be written to the log that is being read."""
    attempt = attempt_at(job, position)
    ended = attempt is not None and attempt.exit is not None
    return ended or job.is_final or next_attempt(job, position) is not None


def known_end(job: Job, position: Position) -> int | None:
    """Offset at which the log that is being read ends; `None` while it runs, or if nobody saw it end."""
    if not has_ended(job, position):
        return None
    attempt = attempt_at(job, position)
    return 0 if attempt is None else attempt.log_end
