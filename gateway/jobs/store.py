"""Stores jobs. Every change of state is one compare-and-set on one document, so repeating it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from heapq import merge
from typing import Any, Literal

import structlog
from pymongo import ASCENDING, UpdateOne
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError, WriteError

from gateway.clock import Clock, utc_now
from gateway.contract.outbox import AttemptId
from gateway.contract.reasons import Reason
from gateway.contract.records import ExitReport, FilesKept, Progress, fitting
from gateway.crash_points import state_change
from gateway.errors import IdempotencyConflictError, JobExistsError, JobNotFoundError, LiveTwinError
from gateway.jobs.attempts import AttemptStore
from gateway.jobs.budgets import Budgets
from gateway.jobs.job import (
    ACCEPTED,
    FINAL_STATUSES,
    LIVE_STATUSES,
    RESUMED,
    RETRIED,
    TRANSITIONS,
    Assignment,
    Attempt,
    BudgetUse,
    Job,
    JobSignal,
    JobStatus,
    PastStep,
    StatusStep,
    StepKind,
    Turn,
    WaitingReason,
    rank,
)
from gateway.jobs.outcome import Outcome
from gateway.jobs.queue import JobDocuments, avoiding, change
from gateway.stores.documents import SET_ASIDE
from gateway.stores.mongo import UNSTORABLE, Document, Repeating

log = structlog.get_logger()

#: How many webhooks a job may have.
MAX_WEBHOOKS = 20
#: Seconds after which a cancellation without effect is carried out again.
CANCEL_SECONDS = 5
#: Seconds after which an accepted attempt is posted again if nothing was heard of it.
SILENCE_SECONDS = 5
#: Maximum number of bytes that are recorded about an attempt's end. Workers read many whole jobs at once.
MAX_FACTS = 192 << 10
#: How an attempt may have been stopped after it was given up as lost.
_GIVEN_UP = frozenset({"cancel", "shutdown"})
_LIVE = sorted(LIVE_STATUSES)
_FINAL = sorted(FINAL_STATUSES)
#: The statuses from which a job can return to its attempt.
_BEFORE_RUNNING = sorted(status for status, following in TRANSITIONS.items() if JobStatus.RUNNING in following)
_FIRST = datetime.min.replace(tzinfo=UTC)
_KEY_USED = "Idempotency-Key: it was used before, for another request"
#: A claim only decides between simultaneous requests. Later, the job or schedule that has the key decides.
CLAIM_KEPT = timedelta(days=1)
#: The collection for each kind of claim. A user's key belongs to one document in one of them.
_MADE_IN = {"job": "jobs", "schedule": "schedules"}


class IdempotencyKeys:
    """Decides whether `<user_id>:<Idempotency-Key>` belongs to a job or to a schedule, before either is inserted. If
    the process dies after the claim, the client can repeat its request: the claim allows the same kind again.
    """

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._database = database
        self._claims = database["idempotency_keys"]
        self._clock = clock

    @state_change("idempotency_keys.claim")
    def claim(self, key: str, kind: Literal["job", "schedule"]) -> None:
        """Claim the key for this kind. Raises `IdempotencyConflictError` if it belongs to the other kind."""
        try:
            claim = {"_id": key, "kind": kind, "claimed_at": self._clock()}
            Repeating(self._claims).insert_one(claim, ours=["kind"])
        except DuplicateKeyError:
            found = self._claims.find_one({"_id": key})
            if found and found["kind"] != kind:
                raise IdempotencyConflictError(_KEY_USED) from None
        # a document of the other kind may have no claim: an older release made none, and old claims are deleted
        (other,) = _MADE_IN.keys() - {kind}
        if self._database[_MADE_IN[other]].find_one({"idempotency_key": key}, {"_id": 1}):
            raise IdempotencyConflictError(_KEY_USED)

    @state_change("idempotency_keys.forget")
    def forget(self, before: datetime) -> None:
        """Delete the claims that were made before this time."""
        Repeating(self._claims).delete_many({"claimed_at": {"$lt": before}})


class JobStore:
    """The `jobs` collection: all steps of a job's life except its way to a node, for which there is `JobQueue`."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        #: The superseded attempts of all jobs.
        self.attempts = AttemptStore(database)
        self._keys = IdempotencyKeys(database, clock)
        self.budgets = Budgets(database, clock)
        self._clock = clock

    # --- submit

    def insert(self, job: Job, *, overtaking: bool = False) -> None:
        """Insert the job, after reserving its share of its key's budget. A job with a later start time reserves when
        it starts. With `overtaking`, the job takes its live key from the job that has it, because the client asked
        for a fresh run.

        Raises `JobExistsError`, `LiveTwinError` or `IdempotencyConflictError`, depending on which key is taken; and
        what `Budgets.reserved` raises.
        """
        reserved = self.budgets.reserved(job) if job.status is JobStatus.PENDING else nullcontext(job)
        with reserved as admitted:
            if overtaking and job.live_key:
                self.overtake(job.live_key)
            self._insert(admitted)

    @state_change("jobs.insert")
    def _insert(self, job: Job) -> None:
        if job.idempotency_key:
            self._keys.claim(job.idempotency_key, "job")
        try:
            Repeating(self._jobs).insert_one(job.to_document(), ours=["created_at"])
        except DuplicateKeyError as error:
            # query instead of parsing the error: servers differ in what a duplicate key error contains
            if self._jobs.find_one({"_id": job.id}, {"_id": 1}):
                raise JobExistsError(f"the job {job.id!r} exists already") from error
            if job.idempotency_key and self.find_idempotent(job.idempotency_key):
                raise IdempotencyConflictError(_KEY_USED) from error
            raise LiveTwinError("the same crawl is already under way") from error

    def get(self, job_id: str) -> Job:
        """Raises `JobNotFoundError`, `UnreadableError`."""
        if (job := self._documents.find_one({"_id": job_id})) is None:
            raise JobNotFoundError(job_id)
        return job

    def many(self, job_ids: Sequence[str]) -> list[Job]:
        """The jobs that exist and can be read, in the order of `job_ids`."""
        found = self._documents.many(self._jobs.find({"_id": {"$in": list(job_ids)}})) if job_ids else []
        place = {job_id: number for number, job_id in enumerate(job_ids)}
        return sorted(found, key=lambda job: place[job.id])

    def find_live(self, live_key: str) -> Job | None:
        return self._documents.find_one({"live_key": live_key})

    def find_idempotent(self, idempotency_key: str) -> Job | None:
        return self._documents.find_one({"idempotency_key": idempotency_key})

    @state_change("jobs.overtake")
    def overtake(self, live_key: str) -> None:
        """Remove `live_key` from the job that has it, because a client asked for a fresh run."""
        Repeating(self._jobs).update_one({"live_key": live_key}, {"$unset": {"live_key": ""}})

    @state_change("jobs.add_webhook")
    def add_webhook(self, job_id: str, url: str) -> None:
        """Add a webhook to the job, up to `MAX_WEBHOOKS`. If the job has ended, the webhook is called now, unless it
        has answered before.
        """
        room = {f"webhooks.{MAX_WEBHOOKS - 1}": {"$exists": False}}
        Repeating(self._jobs).update_one({"_id": job_id, **room}, {"$addToSet": {"webhooks": url}})
        ended: Document = {"_id": job_id, "settled": {"$exists": True}, "webhooks": url}
        added = JobSignal(turn=Turn.WEBHOOK_ADDED, at=self._clock(), url=url)
        # add one signal at most: a client that repeats its request must not push out other signals
        ended |= {"webhooks_delivered": {"$ne": url}, "signals.url": {"$ne": url}}
        Repeating(self._jobs).update_one(ended, change(self._clock(), {}, signal=added))

    # --- facts

    @state_change("jobs.note_budget")
    def note_budget(self, job_id: str, use: BudgetUse) -> None:
        """Note from which budget, and on which day, the job's share was reserved."""
        Repeating(self._jobs).update_one({"_id": job_id}, {"$set": {"budget": use.model_dump(exclude_none=True)}})

    @state_change("jobs.mark_running")
    def mark_running(self, job_id: str, assignment: Assignment) -> Job | None:
        """Record that the node has accepted the attempt."""
        number = assignment.attempt
        as_assigned = assignment.model_dump(include={"attempt", "node", "instance", "is_trial"})
        attempt = Attempt(**as_assigned, dispatched_at=self._clock())
        running = self._change(
            {"_id": job_id, **ACCEPTED.query, "assignment.attempt": number},
            {
                **ACCEPTED.change,
                "node": assignment.node,
                "dispatch_failures": 0,
                f"attempts.{number}": attempt.model_dump(exclude_none=True),
                # workers look CANCEL_SECONDS ahead, so a worker attends to the job before a beat does
                "attend_at": attempt.dispatched_at + timedelta(seconds=SILENCE_SECONDS + CANCEL_SECONDS),
            },
            unset=("assignment", "waiting_reason", "message", "reason"),
            earliest={"dispatched_at": attempt.dispatched_at},
        )
        if running is not None and len(running.attempts) > 1:
            self._move_superseded(job_id)
        return running

    def _move_superseded(self, job_id: str) -> None:
        """Move superseded attempts out of the job. If that fails, they are moved with the next attempt."""
        try:
            self.attempts.supersede(job_id)
        except PyMongoError as error:
            # no reason to fail: the attempt runs in any case
            log.warning("attempts_not_moved", job_id=job_id, error=str(error))

    @state_change("jobs.record_started")
    def record_started(self, job_id: str, attempt: int, started_at: datetime) -> Job | None:
        """Record that the tailer saw the attempt start. Returns `None` if the start is recorded already, or if the
        job does not have the attempt, or has a newer one.
        """
        path = f"attempts.{attempt}"
        unknown = {path: {"$exists": True}, f"{path}.started_at": {"$exists": False}}
        update = change(
            self._clock(),
            {f"{path}.started_at": started_at},
            # the job started when its first attempt did
            earliest={"started_at": started_at},
            signal=JobSignal(turn=Turn.STARTED, at=started_at, attempt=attempt),
        )
        query = {"_id": job_id, "attempt": attempt, **unknown}
        # a running job that is not to be stopped needs no further look
        runs = {"status": JobStatus.RUNNING, f"{path}.exit": None}
        runs |= dict.fromkeys(("cancel_requested_at", "pause_requested_at"))
        seen = {**update, "$unset": {"attend_at": ""}}
        started = self._documents.find_one_and_update({**query, **runs}, seen)
        if started is None:
            started = self._documents.find_one_and_update({**query, "status": {"$in": _LIVE}}, update)
        # a job's own times do not change after its end, because sums have counted them. The three queries are for
        # different statuses, so that a job whose status changes in between is not taken for an ended one
        of_attempt = {name: change for name, change in update.items() if name != "$min"}
        return started or self._documents.find_one_and_update({**query, "status": {"$in": _FINAL}}, of_attempt)

    @state_change("jobs.record_progress")
    def record_progress(self, job_id: str, attempt: int, progress: Progress) -> None:
        self._jobs.update_one(
            {"_id": job_id, "attempt": attempt, "status": JobStatus.RUNNING},
            {"$set": {"progress": progress.model_dump(exclude_none=True)}},
        )

    @state_change("jobs.record_exit")
    def record_exit(self, job_id: str, attempt: int, facts: ExitReport, log_end: int) -> Job | None:
        """Record once how the attempt ended. Returns `None` if that is recorded already or the job is gone. If the
        attempt was only assumed to be lost, this corrects the record, unless the next attempt is on its way to a
        node.
        """
        path, facts = f"attempts.{attempt}", fitting(facts, MAX_FACTS)
        facts_set: Document = {
            f"{path}.exit": facts.model_dump(exclude_none=True),
            f"{path}.ended_at": facts.ended_at,
            f"{path}.log_end": log_end,
            "attend_at": self._clock(),
        }
        if facts.started_at:
            facts_set[f"{path}.started_at"] = facts.started_at
        query: Document = {"_id": job_id, path: {"$exists": True}, f"{path}.exit": {"$exists": False}}
        recorded = self._change(query, facts_set)
        # there is nothing to correct if the attempt was really lost, or was stopped because it was given up
        if recorded is None and not (facts.lost or facts.refused) and facts.stopped_by not in _GIVEN_UP:
            return self._correct(job_id, attempt, facts_set)
        return recorded

    @state_change("jobs.record_files")
    def record_files(self, job_id: str, attempt: int, kept: FilesKept) -> bool:
        """Record which files of an ended attempt were stored. Returns whether the attempt's end is recorded."""
        path = f"attempts.{attempt}.exit"
        found = self._jobs.update_one(
            {"_id": job_id, path: {"$exists": True}}, {"$set": {f"{path}.files": kept.model_dump()}}
        )
        return found.matched_count == 1 or self.attempts.record_files(AttemptId(job_id, attempt), kept)

    def has_superseded(self, attempt_id: AttemptId) -> bool:
        """Whether another attempt of the job has followed this one."""
        return self.attempts.has(attempt_id)

    def _correct(self, job_id: str, attempt: int, facts_set: Document) -> Job | None:
        path = f"attempts.{attempt}"
        lost: Document = {"_id": job_id, "attempt": attempt, f"{path}.exit.lost": True}
        if undecided := self._change({**lost, "status": JobStatus.RUNNING}, facts_set):
            return undecided
        waits: Document = {**lost, "status": {"$in": _BEFORE_RUNNING}, "assignment": None}
        fields = {"failures": 1, "status": 1, f"{path}.node": 1, f"{path}.status": 1}
        if (found := self._jobs.find_one(waits, fields)) is None:
            return None
        record = found["attempts"][str(attempt)]
        # restore the state before the decision: a retry has counted the attempt as a failure, a pause has not
        failures = found["failures"] - (record.get("status") == JobStatus.ERROR)
        as_decided = {
            f"{path}.status": record.get("status"),
            "failures": found["failures"],
            "status": found["status"],
        }
        changes = {**facts_set, **ACCEPTED.change, "node": record["node"], "failures": failures}
        decided = (
            *("lane", "blocked", "waiting_reason", "message", "reason", "expires_at"),
            *(f"{path}.{name}" for name in ("status", "message", "reason")),
        )
        return self._change({**waits, **as_decided}, changes, unset=decided)

    # --- outcome

    @state_change("jobs.finish")
    def finish(self, job: Job, outcome: Outcome, *, dead: bool = False) -> Job | None:
        """End the job. It is not settled yet: the consequences of its end must be carried out."""
        now, step = self._clock(), StatusStep.of(job.status, outcome.status)
        changes: Document = {
            **step.change,
            "message": outcome.message,
            "reason": outcome.reason,
            "finished_at": now,
            "settled": False,
            "attend_at": now,
            "dead": dead,
        }
        changes.update(_attempt_outcome(job, outcome))
        if job.spec.dataset is not None:
            changes["dataset_due"] = now
        if (current := job.current) and current.exit and current.exit.report:
            changes["progress"] = current.exit.report.progress.model_dump(exclude_none=True)
        return self._change(
            {"_id": job.id, **step.query, "attempt": job.attempt, **_decided_on(job)},
            changes,
            unset=(
                *("live_key", "assignment", "waiting_reason", "blocked", "held", "lane"),
                *("pause_requested_at", "expires_at"),
            ),
            signal=_signal(job, Turn.ENDED, now, outcome),
        )

    @state_change("jobs.retry")
    def retry(self, job: Job, outcome: Outcome, not_before: datetime) -> Job | None:
        """Record that the attempt failed. The job waits for its next attempt."""
        now = self._clock()
        return self._change(
            {"_id": job.id, **RETRIED.query, "attempt": job.attempt, **_decided_on(job)},
            {
                **RETRIED.change,
                "message": outcome.message,
                "reason": outcome.reason,
                "not_before": not_before,
                "attend_at": not_before,
                **_next_node(job),
                **_frontier(job),
                "waiting_reason": WaitingReason.BACKOFF,
                **_attempt_outcome(job, outcome),
            },
            increment="failures",
            unset=("progress", "node"),
            step=PastStep(at=now, kind=StepKind.WAITS, reason=WaitingReason.BACKOFF),
            signal=_signal(job, Turn.RETRIED, now, outcome),
        )

    @state_change("jobs.settle")
    def settle(self, *job_ids: str) -> None:
        """Record that all consequences of these jobs' ends are carried out."""
        done: Document = {"$set": {"settled": True}, "$unset": {"attend_at": ""}}
        if job_ids:
            Repeating(self._jobs).update_many({"_id": {"$in": job_ids}, "settled": False}, done)

    # --- signals that are to be announced

    def to_announce(self, after: str, limit: int) -> list[Job]:
        """Up to `limit` jobs with signals to announce, of users whose ids come after `after`: in the order of the
        users' ids, and for each user the longest due first.
        """
        query = {"user_id": {"$gt": after}, "signals_due": {"$lte": self._clock()}, SET_ASIDE: None}
        return self._documents.find(query, limit, [("user_id", ASCENDING), ("signals_due", ASCENDING)])

    @state_change("jobs.announced")
    def announced(self, jobs: Sequence[Job]) -> None:
        """Record that the signals of these jobs, as they were read, are announced."""
        operations = [
            UpdateOne(
                {"_id": job.id, **_signalled(job.signalled), **_signals(job.signals)},
                {
                    "$set": {"signalled": job.signalled + len(job.signals)},
                    "$unset": {"signals": "", "signals_due": ""},
                },
            )
            for job in jobs
        ]
        if operations:
            self._jobs.bulk_write(operations, ordered=False)

    @state_change("jobs.announce_later")
    def announce_later(self, job_id: str, seconds: float) -> None:
        later = self._clock() + timedelta(seconds=seconds)
        self._jobs.update_one({"_id": job_id, "signals_due": {"$exists": True}}, {"$set": {"signals_due": later}})

    @state_change("jobs.adopt_calls")
    def adopt_calls(self, limit: int) -> bool:
        """Add signals to ended jobs whose webhooks an older release had still to call, so that they are called.
        Returns whether there may be more such jobs.
        """
        due = {"user_id": {"$gt": ""}, "webhooks_due": {"$lte": self._clock()}, "webhooks.0": {"$exists": True}}
        fields = {"webhooks_due": 1, "webhooks": 1, "webhooks_delivered": 1}
        found = list(self._jobs.find(due, fields, limit=limit))
        for one in found:
            signals = [
                JobSignal(turn=Turn.WEBHOOK_ADDED, at=self._clock(), url=url).model_dump(exclude_none=True)
                for url in one["webhooks"]
                if url not in one.get("webhooks_delivered", ())
            ]
            taken = {"_id": one["_id"], "webhooks_due": one["webhooks_due"]}
            added = {"$push": {"signals": {"$each": signals}}, "$set": {"signals_due": self._clock()}}
            try:
                self._jobs.update_one(taken, {"$unset": {"webhooks_due": ""}, **added})
            except WriteError as error:
                # it has no room for them, or is damaged; the others must not wait for it
                log.warning("calls_not_adopted", job_id=one["_id"], error=str(error))
        return len(found) == limit

    @state_change("jobs.note_call")
    def note_call(self, job_id: str, url: str, problem: str | None) -> None:
        """Note that this webhook of the job has answered, or why it has not."""
        answered: Document = {"$addToSet": {"webhooks_delivered": url}, "$unset": {"webhook_message": ""}}
        failed = {"$set": {"webhook_message": problem}}
        Repeating(self._jobs).update_one({"_id": job_id}, answered if problem is None else failed)

    @state_change("jobs.request_cancel")
    def request_cancel(self, job_id: str, by: str | None = None) -> Job | None:
        """Record that the job is to be cancelled. From now on it answers no repeated request. Returns `None` if the
        job is final, or if its cancellation was asked for before. `attend_at` makes sure that the cancellation is
        carried out.
        """
        now = self._clock()
        unasked = {"_id": job_id, "status": {"$in": _LIVE}, "cancel_requested_at": {"$exists": False}}
        asked = {"cancel_requested_at": now}
        attended = {**asked, "attend_at": now + timedelta(seconds=CANCEL_SECONDS)}
        # a job with an assignment keeps its own `attend_at`
        step = PastStep(at=now, kind=StepKind.CANCEL_REQUESTED, by=by)
        return self._change(
            {**unasked, "assignment": None}, attended, unset=("live_key",), step=step
        ) or self._change(unasked, asked, unset=("live_key",), step=step)

    @state_change("jobs.request_pause")
    def request_pause(self, job_id: str, by: str | None = None, why: str | None = None) -> Job | None:
        """Record that a job which a node has, or may have, is to be paused. Returns `None` if no node can have it, or
        if it is already to be paused or cancelled. `why` is a sentence for people.
        """
        now = self._clock()
        unasked = {"cancel_requested_at": {"$exists": False}, "pause_requested_at": {"$exists": False}}
        asked = {"pause_requested_at": now}
        running = {"_id": job_id, "status": JobStatus.RUNNING, **unasked}
        attended = {**asked, "attend_at": now + timedelta(seconds=CANCEL_SECONDS)}
        # a job with an assignment keeps its own `attend_at`
        assigned = {"_id": job_id, **ACCEPTED.query, "assignment.attempt": {"$gte": 1}, **unasked}
        step = PastStep(at=now, kind=StepKind.PAUSE_REQUESTED, by=by, message=why)
        return self._change(running, attended, step=step) or self._change(assigned, asked, step=step)

    @state_change("jobs.pause")
    def pause(self, job: Job, message: str, expires_at: datetime | None, by: str | None = None) -> Job | None:
        """Let the job wait until it is resumed. Returns `None` if it has changed since it was read."""
        now, step = self._clock(), StatusStep.of(job.status, JobStatus.PAUSED)
        changes: Document = {**step.change, "message": message, **_kept_frontier(job), **_frontier(job)}
        changes["pause_requested_at"] = job.pause_requested_at or now
        if expires_at is not None:
            changes |= {"expires_at": expires_at, "attend_at": expires_at}
        if job.status is JobStatus.RUNNING:
            changes |= _attempt_outcome(job, Outcome(JobStatus.PAUSED, Reason.PAUSED, message))
            if (current := job.current) and current.exit and current.exit.report:
                changes["progress"] = current.exit.report.progress.model_dump(exclude_none=True)
        unasked = {"cancel_requested_at": {"$exists": False}}
        return self._change(
            {"_id": job.id, **step.query, "attempt": job.attempt, "assignment": None, **unasked, **_decided_on(job)},
            changes,
            unset=("lane", "blocked", "waiting_reason", "node", *([] if expires_at else ["attend_at"])),
            step=PastStep(at=now, kind=StepKind.PAUSED, by=by, message=message),
            signal=_signal(job, Turn.PAUSED, now, Outcome(JobStatus.PAUSED, Reason.PAUSED, message)),
        )

    @state_change("jobs.resume")
    def resume(self, job: Job, by: str | None = None) -> Job | None:
        """Let the job wait for a slot again, with the rank of its age. Returns `None` if it is not paused
        any more.
        """
        now = self._clock()
        place = {"lane": str(job.partition), "rank": rank(job.created_at, job.priority), "not_before": now}
        return self._change(
            {"_id": job.id, **RESUMED.query, "cancel_requested_at": {"$exists": False}},
            {**RESUMED.change, **place},
            unset=("pause_requested_at", "expires_at", "attend_at", "message", "reason"),
            step=PastStep(at=now, kind=StepKind.RESUMED, by=by),
        )

    @state_change("jobs.begin_anew")
    def begin_anew(self, job_id: str, node: str, why: str) -> None:
        """Let a waiting or paused job start over, because the node has lost the state of its last attempt."""
        waits: Document = {"_id": job_id, "prefer": node, "status": {"$in": [JobStatus.PENDING, JobStatus.PAUSED]}}
        paused = {"message": f"paused: when it is resumed, it starts over, because {why}", "prefer": None}
        if self._change({**waits, "status": JobStatus.PAUSED}, paused) is None:
            self._change(waits, {"prefer": None})

    def to_attend(self, before: datetime, limit: int, but: Sequence[str] = ()) -> Iterator[Job]:
        """Jobs that a beat must attend to by `before`, the longest due first, without jobs with the ids `but`. They
        are read lazily. Pending jobs are left out, because workers attend to them.
        """
        due: Document = {"attend_at": {"$lte": before}, **({"_id": {"$nin": list(but)}} if but else {})}
        others = [status for status in JobStatus if status is not JobStatus.PENDING]
        # usually no job is due, and this one query shows that
        if self._jobs.find_one({**due, "status": {"$in": others}}, {"_id": 1}) is None:
            return iter(())
        # jobs whose start time has come are left out: the beat's tick starts them
        scheduled = {"$nor": [{"held": None, "not_before": {"$lte": before}}]}
        queries = [
            {**due, "status": status, **(scheduled if status is JobStatus.SCHEDULED else {})} for status in others
        ]
        # an index answers each of these queries without reading the pending jobs, however many there are
        found = (self._jobs.find(query, sort=[("attend_at", ASCENDING)], limit=limit) for query in queries)
        first = merge(*found, key=_due_at)
        return (job for _, job in self._documents.each(first) if job is not None)

    @state_change("jobs.attended")
    def attended(self, job: Job, again: float | None = None) -> bool:
        """Record that there is nothing to do for the job any more, or for `again` seconds. If `attend_at` has changed
        since the job was read, another process attends to it: then this changes nothing, and returns false.
        """
        later = None if again is None else {"$set": {"attend_at": self._clock() + timedelta(seconds=again)}}
        as_read = {"_id": job.id, "attend_at": job.attend_at}
        return self._jobs.update_one(as_read, later or {"$unset": {"attend_at": ""}}).matched_count == 1

    @state_change("jobs.attend_later")
    def attend_later(self, job_id: str, seconds: float) -> None:
        """Look at the job again after `seconds`, unless it is settled."""
        later = self._clock() + timedelta(seconds=seconds)
        self._jobs.update_one({"_id": job_id, "settled": {"$ne": True}}, {"$set": {"attend_at": later}})

    @state_change("jobs.delete")
    def delete(self, *job_ids: str) -> int:
        """Delete the jobs that are settled. Returns how many were deleted."""
        return Repeating(self._jobs).delete_many({"_id": {"$in": job_ids}, "settled": True}).deleted_count

    def _change(self, query: Document, changes: Document, **others: Any) -> Job | None:
        """Update the job that the query finds. `others` are further arguments of `change`."""
        update = change(self._clock(), changes, **others)
        try:
            return self._write(query, update)
        except OperationFailure as error:
            if error.code not in UNSTORABLE:
                raise
        # older releases kept all attempts in the job, until the document had no room left
        self.attempts.supersede(query["_id"])
        return self._write(query, update)

    def _write(self, query: Document, update: Document) -> Job | None:
        return self._documents.find_one_and_update(query, update)


def _signal(job: Job, turn: Turn, at: datetime, outcome: Outcome) -> JobSignal:
    return JobSignal(turn=turn, at=at, attempt=job.attempt, reason=outcome.reason, message=outcome.message)


def _signalled(count: int) -> Document:
    """A condition that this many signals were announced. If there were none, the field may be absent."""
    return {"signalled": count} if count else {"$or": [{"signalled": 0}, {"signalled": {"$exists": False}}]}


def _signals(known: Sequence[JobSignal]) -> Document:
    """A condition that no signal was added after these. It compares the last signal, too, because a full list keeps
    its length: each added signal pushes out the first.
    """
    place = len(known) - 1
    last = known[-1].model_dump(include={"turn", "at", "url"}) if known else {}
    same = {f"signals.{place}.{name}": value for name, value in last.items()}
    return {f"signals.{len(known)}": {"$exists": False}, **same}


def _due_at(document: Document) -> datetime:
    """When the job is due. A job with a time that Python cannot represent comes first, and then turns out to be
    unreadable.
    """
    at = document["attend_at"]
    return at if isinstance(at, datetime) else _FIRST


def _decided_on(job: Job) -> Document:
    """A condition that the attempt is still recorded as lost, if the decision was based on that."""
    current = job.current
    if current is None or current.attempt != job.attempt or current.exit is None or not current.exit.lost:
        return {}
    return {f"attempts.{job.attempt}.exit.lost": True}


def _next_node(job: Job) -> Document:
    """Avoid the node of the failed attempt, unless the next attempt can continue there: then prefer it."""
    if (last := job.current) is None:
        return {"avoid": [], "prefer": None}
    if last.exit and last.exit.can_go_on:
        return {"avoid": [node for node in job.avoid if node != last.node], "prefer": last.node}
    return {"avoid": avoiding(job, last.node), "prefer": None}


def _kept_frontier(job: Job) -> Document:
    """Prefer the node where the paused attempt can continue. An attempt that was never started changes nothing."""
    last = job.current
    if job.status is not JobStatus.RUNNING or last is None or last.exit is None or last.exit.refused:
        return {}
    return {"prefer": last.node if last.exit.can_go_on else None}


def _frontier(job: Job) -> Document:
    """The first attempt with a frontier that the next attempt may continue from. An attempt that was never started
    changes nothing. A lost attempt may have left a frontier: only its node knows.
    """
    last = job.current
    if job.status is not JobStatus.RUNNING or last is None or last.exit is None:
        return {}
    if last.exit.refused or (last.exit.lost and last.started_at is None):
        return {}
    may_go_on = last.exit.can_go_on or last.exit.lost
    return {"frontier_since": last.attempt if may_go_on else last.attempt + 1}


def _attempt_outcome(job: Job, outcome: Outcome) -> Document:
    if str(job.attempt) not in job.attempts:
        return {}
    path = f"attempts.{job.attempt}"
    return {f"{path}.status": outcome.status, f"{path}.message": outcome.message, f"{path}.reason": outcome.reason}
