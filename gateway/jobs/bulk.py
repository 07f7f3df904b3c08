"""Bulk actions on all jobs that match a filter: stop them, run them again, or remove them.

A call works for a few seconds and returns how far it has come; the client continues from there with the next call.
The work is stored nowhere, and no process continues it by itself: to stop it, a client makes no more calls. If a
gateway dies half-way, the client can repeat the call: jobs that were stopped or removed no longer match the filter,
and no job is run again twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from attrs import define, field

from gateway.errors import (
    ConflictError,
    CountChangedError,
    DiscoveryBotError,
    NotFoundError,
    TooManyError,
    UnavailableError,
    UnreadableError,
)
from gateway.jobs.completion import Cancellation
from gateway.jobs.job import FINAL_STATUSES, LIVE_STATUSES, JobStatus
from gateway.jobs.queries import JobFilter, JobQueries, ListedPlace
from gateway.jobs.rerun import DeadLetters, Resubmission
from gateway.stores.mongo import mongo_errors, within

#: Seconds after which a call begins no further job.
SECONDS = 2.0
#: Seconds that MongoDB has to count the jobs, or to find the next ones; the same as for a list of jobs.
LOOK_SECONDS = 10.0
#: How many jobs are looked up at once.
BATCH = 200
#: How many refused jobs an answer names.
MOST_NAMED = 20


class Action(StrEnum):
    """What can be done to many jobs at once."""

    CANCEL = "cancel"
    RETRY = "retry"
    DELETE = "delete"
    #: Run a dead letter again.
    REQUEUE = "requeue"
    #: Take a dead letter off the list.
    DISMISS = "dismiss"


class Deletes(Protocol):
    """What deletes an ended job with everything that belongs to it. Raises `ConflictError`, `JobNotFoundError`."""

    def delete(self, job_id: str) -> None: ...


@define
class Refused:
    """A job that could not be acted on, and why."""

    job_id: str
    error: DiscoveryBotError


@define
class BulkProgress:
    """What one call has done."""

    done: int = 0
    refused: int = 0
    #: The first `MOST_NAMED` refused jobs.
    named: list[Refused] = field(factory=list)
    #: Where the next call continues; `None` at the end.
    next: str | None = None
    #: The error that ended the call early, because every further job would have met it, too.
    stopped: DiscoveryBotError | None = None


class Asked(NamedTuple):
    """Who asked for the action, and with which request."""

    by: str | None = None
    request_id: str | None = None
    #: The API key, if it has a budget. Jobs that are run again use this budget.
    budget_key: str | None = None
    #: Act only on jobs that already matched the filter at this time.
    as_of: datetime | None = None


@define(eq=False, repr=False, slots=False, kw_only=True)
class BulkActs:
    """Carries out actions on all jobs that match a filter."""

    _queries: JobQueries
    _cancellation: Cancellation
    _resubmission: Resubmission
    _letters: DeadLetters
    _deletion: Deletes
    _monotonic: Callable[[], float] = time.monotonic

    def count(self, action: Action, wanted: JobFilter) -> int:
        """How many of the wanted jobs allow the action."""
        named = _doable(action, wanted)
        with mongo_errors(), within(LOOK_SECONDS):
            return 0 if named is None else self._queries.count(named)

    def act(
        self, action: Action, wanted: JobFilter, expect: int, asked: Asked, after: str | None = None
    ) -> BulkProgress:
        """Act on the jobs, newest first, for `SECONDS`; `after` is the `next` of the call before.

        Raises `CountChangedError` if `asked` has no `as_of`, and the first call does not find as many jobs as
        expected; `InvalidRequestError` for an `after` that no call has returned.
        """
        if after is None and asked.as_of is None and (count := self.count(action, wanted)) != expect:
            raise CountChangedError(expect, count)
        progress = BulkProgress(next=after)
        named, until = _doable(action, wanted, asked.as_of), self._monotonic() + SECONDS
        while named is not None:
            with mongo_errors(), within(LOOK_SECONDS):
                places = self._queries.places(named, BATCH, progress.next)
            if not self._act_on(places, action, asked, progress, until):
                return progress
            if len(places) < BATCH:
                break
        progress.next = None
        return progress

    def _act_on(
        self, places: list[ListedPlace], action: Action, asked: Asked, progress: BulkProgress, until: float
    ) -> bool:
        """Act on these jobs. Returns whether to go on with the jobs that follow."""
        for place in places:
            if progress.done + progress.refused and self._monotonic() > until:
                return False
            try:
                self._act(place.job_id, action, asked)
                progress.done += 1
            except (TooManyError, UnavailableError) as error:
                if not progress.done:
                    raise
                progress.stopped = error
                return False
            except (ConflictError, NotFoundError, UnreadableError) as error:
                progress.refused += 1
                if len(progress.named) < MOST_NAMED:
                    progress.named.append(Refused(place.job_id, error))
            progress.next = place.cursor
        return True

    def _act(self, job_id: str, action: Action, asked: Asked) -> None:
        if action is Action.CANCEL:
            self._cancellation.cancel(job_id, asked.by)
        elif action is Action.RETRY:
            self._resubmission.run_again(job_id, asked.request_id, once=True, budget_key=asked.budget_key)
        elif action is Action.REQUEUE:
            self._letters.requeue(job_id, asked.request_id, once=True, budget_key=asked.budget_key)
        elif action is Action.DISMISS:
            self._letters.dismiss(job_id)
        else:
            self._deletion.delete(job_id)


def _doable(action: Action, wanted: JobFilter, as_of: datetime | None = None) -> JobFilter | None:
    """The filter, narrowed to jobs that allow the action; `None` if no job can match. Leaves out jobs that were made
    after `as_of`, and, if the action needs ended jobs, those that ended after it.
    """
    if as_of is not None:
        wanted = wanted._replace(until=min(wanted.until or as_of, as_of))
        if action is not Action.CANCEL:
            wanted = wanted._replace(finished_until=min(wanted.finished_until or as_of, as_of))
    if action in {Action.REQUEUE, Action.DISMISS}:
        return wanted._replace(dead=True)
    possible = LIVE_STATUSES if action is Action.CANCEL else FINAL_STATUSES
    statuses = tuple(status for status in wanted.status or JobStatus if status in possible)
    if not statuses:
        return None
    if action is Action.CANCEL:
        return wanted._replace(status=statuses, unasked=True)
    return wanted._replace(status=statuses, settled=action is Action.DELETE)
