"""Ends attempts and jobs: the platform first records how an attempt ended, then decides whether the job is retried,
paused or over, then carries out the consequences.

Each step is a compare-and-set or idempotent, so any process may repeat it at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog
from attrs import define, field
from redis import RedisError, ResponseError

from gateway.clock import Clock, utc_now
from gateway.contract.outbox import AttemptId
from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport
from gateway.errors import ConflictError, JobNotFoundError
from gateway.jobs import messages
from gateway.jobs.backoff import backoff
from gateway.jobs.dedupe import DedupeRelease
from gateway.jobs.job import GOOD_STATUSES, Attempt, Job, JobStatus, StepKind
from gateway.jobs.messages import EventPublisher, Waker, about
from gateway.jobs.outcome import CANCELLED, Outcome, decide
from gateway.jobs.queue import JobQueue
from gateway.jobs.store import CANCEL_SECONDS, JobStore
from gateway.nodes.health import NodeHealth
from gateway.nodes.holds import HoldStore
from gateway.nodes.store import NodeStore
from gateway.stores.mongo import mongo_errors
from gateway.stores.redis import dedupe_key
from gateway.traced import traced

log = structlog.get_logger()

#: How long a job may be paused.
PAUSE_LIMIT = timedelta(days=7)


@define(eq=False, repr=False, slots=False, kw_only=True)
class Completion:
    """Ends, retries, pauses and settles jobs."""

    _jobs: JobStore
    _nodes: NodeStore
    _queue: JobQueue
    _holds: HoldStore
    _dedupe: DedupeRelease
    _publisher: EventPublisher
    _waker: Waker
    _clock: Clock = utc_now
    #: 0 means no limit.
    _pause_limit: timedelta = PAUSE_LIMIT
    _health: NodeHealth = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._health = NodeHealth(self._nodes, self._clock)

    def attempt_started(self, attempt_id: AttemptId, started_at: datetime) -> None:
        """Record that a node saw the attempt start, even if the dispatcher died before it recorded the dispatch."""
        job_id, attempt = attempt_id
        started = self._jobs.record_started(job_id, attempt, started_at)
        if started is None and self._acknowledge(attempt_id):
            started = self._jobs.record_started(job_id, attempt, started_at)
        if started is not None:
            self._publisher.status(started)
            with about(started):
                log.info("attempt_started", attempt=attempt, status=started.status.value)
            self._stop_if_asked(started)

    def record_exit(self, attempt_id: AttemptId, facts: ExitReport, log_end: int) -> bool:
        """Record the facts, then wake a worker to decide. Returns whether the job knows the attempt; the facts of an
        unknown attempt are dropped.
        """
        job_id, attempt = attempt_id
        recorded = self._jobs.record_exit(job_id, attempt, facts, log_end)
        known = recorded is not None or self._acknowledge(attempt_id) is not None
        if recorded is None and known:
            recorded = self._jobs.record_exit(job_id, attempt, facts, log_end)
        if recorded is not None:
            with about(recorded):
                log.info("attempt_ended", attempt=attempt, status=recorded.status.value, exit_code=facts.exit_code)
                self._waker.wake(messages.FINISH_CRAWL, job_id)
        return known

    def conclude(self, job_id: str) -> None:
        """Decide from the facts how the job goes on, and carry out the consequences that are due."""
        try:
            job = self._jobs.get(job_id)
        except JobNotFoundError:
            return
        with about(job):
            self.conclude_job(job)

    def conclude_job(self, job: Job) -> None:
        """The same as `conclude`, for a job that was just read."""
        if job.is_final:
            self.settle(job)
        elif (ended := self.decide(job)) is not None:
            self.settle_soon(ended)

    def decide(self, job: Job) -> Job | None:
        """Decide from the facts how a job that was just read goes on. Returns the ended job if this ends it: the
        consequences of its end are then due.
        """
        attempt = job.current
        if job.status is not JobStatus.RUNNING or attempt is None or attempt.attempt != job.attempt:
            return None
        if attempt.exit is None:
            return None
        outcome = decide(
            attempt.exit,
            expect=job.spec.expect,
            cancel_requested_at=job.cancel_requested_at,
            timeout=job.spec.timeout,
        )
        return self._conclude_attempt(job, attempt, outcome)

    def end_waiting(self, job: Job, outcome: Outcome) -> Job | None:
        """End a job that no node has. Returns `None` if a node has got it in the meantime."""
        finished = self._finish(job, outcome)
        if finished is not None:
            with about(finished):
                self.settle_soon(finished)
        return finished

    def _finish(self, job: Job, outcome: Outcome) -> Job | None:
        finished = self._jobs.finish(job, outcome, dead=outcome.status is JobStatus.ERROR)
        if finished is not None:
            with about(finished):
                log.info("job_ended", status=finished.status.value, reason=finished.reason, message=finished.message)
        return finished

    def stop_waiting(self, job: Job) -> Job | None:
        """Cancel or pause a job that no node has, if somebody asked for that. Returns `None` if nobody did, or if the
        job has changed meanwhile.
        """
        if job.stop_reason == "cancel":
            return self.end_waiting(job, CANCELLED)
        return self.pause(job) if job.stop_reason == "pause" else None

    def pause(self, job: Job, by: str | None = None) -> Job | None:
        """Pause a job that no node has: it frees its slots, and keeps its site. Returns `None` if the job has changed
        since it was read.
        """
        if attempt := job.current:
            slots = [resource for resource in job.resources(attempt.node) if resource != job.exclusive]
            self._holds.free(str(AttemptId(job.id, attempt.attempt)), slots)
        expires_at = self._clock() + self._pause_limit if self._pause_limit else None
        paused = self._jobs.pause(job, _paused(job), expires_at, by)
        if paused is not None:
            with about(paused):
                log.info("job_paused", job_id=job.id, message=paused.message)
            self._publisher.status(paused)
            self._waker.wake(messages.ENQUEUE_CRAWL)
        return paused

    def look_at_paused(self, job: Job) -> None:
        """End a job that has been paused for too long."""
        if job.expires_at is None:
            self._jobs.attended(job)
        elif (ahead := (job.expires_at - self._clock()).total_seconds()) > 0:
            # the look comes too early, because the job's document could not be read for a time
            self._jobs.attended(job, ahead)
        else:
            message = f"it was paused, and not resumed before {job.expires_at:%Y-%m-%d %H:%M} UTC"
            self.end_waiting(job, Outcome(JobStatus.CANCELLED, Reason.PAUSE_EXPIRED, message))

    def resume(self, job: Job, by: str | None = None) -> Job | None:
        """Let a paused job wait for a slot again. Returns `None` if it is not paused any more."""
        resumed = self._jobs.resume(job, by)
        if resumed is not None:
            with about(resumed):
                log.info("job_resumed", job_id=job.id)
            if attempt := job.current:
                # free the site: the next attempt takes it again, and this job comes before younger ones
                self.free(job, attempt.attempt, attempt.node)
            self._publisher.status(resumed)
            self._waker.wake_job(resumed)
        return resumed

    @traced("settle")
    def settle(self, *jobs: Job) -> None:
        """Carry out all consequences of these jobs' ends. The sweeper repeats this until all of them succeed. If
        Redis fails, settles the jobs that do not need it first, then raises its error.
        """
        jobs = tuple(job for job in jobs if job.settled is False)
        for job in jobs:
            self._jobs.budgets.close(job)
        self._holds.free_all(_held(job, one.attempt, one.node) for job in jobs if (one := job.current))
        admitted = [self.admit(job.exclusive) for job in jobs if job.exclusive and job.current]
        done, failed = self._without_keys(jobs)
        for job in done:
            self._publisher.status(job)
            if job.webhooks:
                # if this message is lost, `signals_due` makes sure that they are called
                self._waker.wake(messages.CALL_WEBHOOKS, job.id)
        if jobs:
            self._waker.wake(messages.ENQUEUE_CRAWL)
        for unblocked in filter(None, admitted):
            self._waker.wake_job(unblocked)
        self._jobs.settle(*(job.id for job in done))
        if failed is not None:
            raise failed

    def _without_keys(self, jobs: Sequence[Job]) -> tuple[list[Job], RedisError | None]:
        """Release the dedupe keys of the jobs that have not ended well. Returns the jobs for which this succeeded or
        was not needed, and Redis's last error. If Redis cannot be reached, it is asked only once, because each try
        may take until the timeout.
        """
        done: list[Job] = []
        failed: RedisError | None = None
        for job in jobs:
            try:
                if job.status not in GOOD_STATUSES:
                    if failed is not None and not isinstance(failed, ResponseError):
                        continue
                    self._release_key(job)
            except RedisError as error:
                failed = error
            else:
                done.append(job)
        return done, failed

    def answers_no_more(self, job: Job) -> None:
        """Release the dedupe key of a cancelled job that is still ending, so that the job does not answer a repeated
        request. If Redis fails, the key is released at the job's end.
        """
        try:
            self._release_key(job)
        except RedisError as error:
            log.warning("cancelled_job_still_answers", job_id=job.id, error=str(error))

    def _release_key(self, job: Job) -> None:
        self._dedupe.release(dedupe_key(job.user_id, job.spec.spider, job.fingerprint), job.id)

    def settle_soon(self, *jobs: Job) -> None:
        """Settle these jobs. If Redis fails, the sweeper does it later."""
        try:
            self.settle(*jobs)
        except RedisError as error:
            log.warning("settle_later", job_ids=[job.id for job in jobs], error=str(error))

    def free(self, job: Job, attempt: int, node: str) -> Job | None:
        """Free the holds of an attempt that is over or can never start. Returns the blocked job that may go on."""
        self._holds.free(*_held(job, attempt, node))
        return self.admit(job.exclusive) if job.exclusive else None

    def admit(self, exclusive: str) -> Job | None:
        """Unblock the first job in the queue for this resource, if no attempt holds the resource any more. If that
        was too early, the job is blocked again when a worker looks at it.
        """
        admitted = self._queue.unblock(exclusive) if self._holds.free_of([exclusive]) else None
        if admitted is not None:
            self._publisher.status(admitted)
        return admitted

    def _stop_if_asked(self, job: Job) -> None:
        """Ask a worker to stop an attempt if somebody asked to stop it before it began. The sweeper repeats this."""
        if job.status is JobStatus.RUNNING and job.stop_reason:
            self._jobs.attend_later(job.id, CANCEL_SECONDS)
            self._waker.wake(messages.CANCEL_CRAWL, job.id)

    def _acknowledge(self, attempt_id: AttemptId) -> Job | None:
        """The job, if it has this attempt. If the dispatcher died before it recorded the dispatch, record it now."""
        # try twice, because another process may record the dispatch in between
        for _ in range(2):
            try:
                job = self._jobs.get(attempt_id.job_id)
            except JobNotFoundError:
                return None
            if str(attempt_id.attempt) in job.attempts or self._jobs.has_superseded(attempt_id):
                return job
            if job.assignment is None or job.assignment.attempt != attempt_id.attempt:
                return None
            if running := self._jobs.mark_running(job.id, job.assignment):
                return running
        return None

    def _conclude_attempt(self, job: Job, attempt: Attempt, outcome: Outcome) -> Job | None:
        """Record the outcome. Returns the job if the outcome has ended it."""
        again = outcome.status is JobStatus.ERROR and outcome.retryable and job.retries < job.max_retries
        goes_on = again or _was_to_pause(job, attempt, outcome)
        if goes_on and job.cancel_requested_at is not None:
            # the job would be retried or paused, but its cancellation was requested
            again, outcome = False, CANCELLED
        elif goes_on and job.stop_reason == "pause":
            if self.pause(job) is not None:
                self._concluded(job, attempt, outcome)
            return None
        if again:
            admitted = self.free(job, attempt.attempt, attempt.node)
            waiting = self._jobs.retry(job, outcome, self._clock() + backoff(job.failed_attempts + 1))
            if waiting is not None:
                self._concluded(job, attempt, outcome)
                self._publisher.status(waiting)
                self._waker.wake_job(admitted or waiting)
            return None
        finished = self._finish(job, outcome)
        if finished is not None:
            self._concluded(job, attempt, outcome)
        return finished

    @traced("conclude")
    def _concluded(self, job: Job, attempt: Attempt, _outcome: Outcome) -> None:
        """Judge the attempt's node by the recorded outcome. Only the process that recorded it calls this."""
        self._health.judge(job, attempt)


def _held(job: Job, attempt: int, node: str) -> tuple[str, Sequence[str]]:
    """The id of this attempt of the job, and the resources that it holds."""
    return str(AttemptId(job.id, attempt)), job.resources(node)


def _was_to_pause(job: Job, attempt: Attempt, outcome: Outcome) -> bool:
    """Whether the attempt was stopped because its job was to be paused. This is not a failure and uses up
    no retry.
    """
    if job.pause_requested_at is None or outcome.status is not JobStatus.ERROR or attempt.exit is None:
        return False
    return outcome.retryable and attempt.exit.stopped_by in {"pause", "shutdown"}


def _paused(job: Job) -> str:
    """The job's message while it is paused."""
    last = job.current
    if last is None:
        return "paused before it began"
    if job.status is JobStatus.RUNNING and last.exit and not last.exit.refused:
        node = last.node if last.exit.can_go_on else None
    else:
        node = job.prefer
    after = f"it continues where it stopped, on node {node}" if node else "it starts over"
    asked = [step.message for step in job.history if step.kind is StepKind.PAUSE_REQUESTED]
    why = f"{asked[-1]} When" if asked and asked[-1] else "when"
    return f"paused: {why} it is resumed, {after}"


@define(eq=False, repr=False, slots=False, kw_only=True)
class Cancellation:
    """Ends a job early. The request is first recorded in the job's document; the process that has the job then
    carries it out.
    """

    _jobs: JobStore
    _completion: Completion
    _waker: Waker

    def cancel(self, job_id: str, by: str | None = None) -> Job:
        """End a waiting job, or ask a running one to stop. Returns the job as it is now. `by`: who asked. A job that
        was cancelled before is no error, because a client that got no answer asks again.

        Raises `JobNotFoundError`, and `ConflictError` if the job has ended in another way.
        """
        with mongo_errors():
            job = self._jobs.request_cancel(job_id, by) or self._jobs.get(job_id)
            if job.status is JobStatus.CANCELLED:
                return job
            if job.is_final:
                raise ConflictError(f"the job has ended already ({job.status})")
            if job.status is not JobStatus.RUNNING and job.assignment is None:
                # None: a worker has handed the job to a node first. It then checks whether the job was cancelled
                job = self._completion.end_waiting(job, CANCELLED) or self._jobs.get(job_id)
            else:
                self._completion.answers_no_more(job)
                self._waker.wake(messages.CANCEL_CRAWL, job_id)
            return job


@define(eq=False, repr=False, slots=False, kw_only=True)
class Pausing:
    """Lets a job wait until it is resumed. A running crawl is stopped as at a node's shutdown, and
    continues later.
    """

    _jobs: JobStore
    _completion: Completion
    _waker: Waker

    def pause(self, job_id: str, by: str | None = None, *, begin_anew: bool = False, why: str | None = None) -> Job:
        """Pause a waiting job, or ask a running one to stop. Returns the job as it is now. `by`: who asked. `why` is
        a sentence for people, if the platform itself asks.

        Raises `JobNotFoundError`; `ConflictError` if the job cannot be paused, or if it would start over when resumed
        and `begin_anew` is false.
        """
        with mongo_errors():
            for _ in range(_TRIES):
                job = self._jobs.get(job_id)
                _require_pausable(job, begin_anew=begin_anew)
                if job.status is JobStatus.PENDING and job.assignment is None:
                    changed = self._completion.pause(job, by)
                elif changed := self._jobs.request_pause(job_id, by, why):
                    self._waker.wake(messages.CANCEL_CRAWL, job_id)
                if changed is not None:
                    return changed
                # None: the job has changed in the meantime
            raise ConflictError(f"the job keeps changing (it is {job.status}); ask again")

    def resume(self, job_id: str, by: str | None = None, budget_key: str | None = None) -> Job:
        """Let a paused job wait for a slot again, and return it. Raises `JobNotFoundError`, and `ConflictError` if it
        is not paused, or if the caller's key has a budget (`budget_key`) and the job does not use this budget.
        """
        with mongo_errors():
            job = self._jobs.get(job_id)
            if budget_key and not (job.budget and job.budget.key_id == budget_key):
                raise ConflictError("the job does not use this key's budget: only another key can resume it")
            if job.status is JobStatus.PAUSED and (resumed := self._completion.resume(job, by)):
                return resumed
            now = self._jobs.get(job_id)
            asked = " and about to be paused" if now.stop_reason == "pause" else ""
            raise ConflictError(f"only a paused job can be resumed (it is {now.status}{asked})")


#: How often a pause is tried while the job's state changes.
_TRIES = 5


def _require_pausable(job: Job, *, begin_anew: bool) -> None:
    """Raises `ConflictError` if the job cannot be paused."""
    if job.is_final:
        raise ConflictError(f"the job has ended already ({job.status})")
    if job.status is JobStatus.SCHEDULED:
        raise ConflictError(f"the job is {job.status} for later: only a pending or running job can be paused")
    if job.status is JobStatus.PAUSED or job.stop_reason == "pause":
        raise ConflictError(f"the job is paused already, or about to be (it is {job.status})")
    if job.stop_reason is not None:
        raise ConflictError(f"the job is being cancelled (it is {job.status})")
    loses = job.status is JobStatus.RUNNING and job.progress is not None and job.progress.can_go_on is False
    if loses and not begin_anew:
        anyway = "with begin_anew=true it is paused all the same"
        raise ConflictError(f"the crawl would start over when it is resumed (its log says why); {anyway}")
