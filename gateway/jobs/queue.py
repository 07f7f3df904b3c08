"""The queue of waiting jobs: the dispatcher finds them here, assigns them to nodes, or puts them back with the
reason.

A pending job waits for a slot if and only if it has a partition (`lane` in its document). It has none while it is
assigned to a node, blocked by another crawl, or in a backoff. So an index on partitions contains only the jobs that
could start now.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby, islice
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import structlog
from pymongo import ASCENDING, ReturnDocument, UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from gateway.clock import VERDICT_SECONDS, Clock, remaining, utc_now
from gateway.contract.crawl import DEFAULT_PROJECT, Egg
from gateway.crash_points import state_change
from gateway.jobs.attempts import AttemptStore
from gateway.jobs.job import (
    FINAL_STATUSES,
    Assignment,
    Job,
    JobSignal,
    JobStatus,
    Partition,
    PastStep,
    Requirements,
    StepKind,
    WaitingReason,
)
from gateway.stores.documents import SET_ASIDE, Documents, Unreadable, moment, reader, text, whole
from gateway.stores.mongo import Document, is_passing

log = structlog.get_logger()
Model = TypeVar("Model")

#: Jobs that wait for nothing but a slot. All conditions are equalities, so that an index skips all other jobs.
FREE_TO_START: Document = {"status": JobStatus.PENDING, "blocked": None, SET_ASIDE: None}


class SetAside(Documents[Model]):
    """Reads the `jobs` collection. A job that cannot be read is set aside: queries for work no longer find it."""

    @state_change("jobs.set_aside")
    def _note(self, found: Unreadable) -> None:
        super()._note(found)
        aside = {"$set": {SET_ASIDE: True}, "$unset": {"lane": "", "attend_at": ""}}
        self.collection.update_one({"_id": found.id}, aside)


class JobDocuments(SetAside[Job]):
    """The collection `jobs`, read as whole jobs."""

    def __init__(self, database: Database[Document]) -> None:
        super().__init__(database["jobs"], reader(Job))

    def find_one_and_update(self, query: Document, update: Document) -> Job | None:
        """The job after the update; `None` if there is no such job, or if it cannot be read."""
        changed = self.collection.find_one_and_update(query, update, return_document=ReturnDocument.AFTER)
        return self.optional(changed)


#: How many steps a job's history keeps; later steps replace the oldest.
MOST_STEPS = 50
#: Maximum number of characters of a job's message, and of a step's message. Texts from a node or a spider can be
#: longer.
MAX_MESSAGE, MAX_STEP_MESSAGE = 5000, 500
#: How many signals may wait in a job until a worker announces them; later signals replace the oldest.
MOST_SIGNALS = 20


def change(
    now: datetime,
    changes: Document,
    *,
    unset: Sequence[str] = (),
    increment: str | None = None,
    step: PastStep | None = None,
    earliest: Document | None = None,
    signal: JobSignal | None = None,
) -> Document:
    """The MongoDB update that makes these changes, adds the step to the job's history and the signal to its signals,
    and sets `updated_at`. The times in `earliest` are set unless the job has earlier ones.
    """
    if message := changes.get("message"):
        changes = {**changes, "message": message[:MAX_MESSAGE]}
    update: dict[str, Any] = {"$set": {**changes, "updated_at": now}}
    if unset:
        update["$unset"] = dict.fromkeys(unset, "")
    if increment:
        update["$inc"] = {increment: 1}
    if earliest:
        update["$min"] = earliest
    if step:
        kept = step.model_copy(update={"message": step.message and step.message[:MAX_STEP_MESSAGE]})
        update["$push"] = {"history": {"$each": [kept.model_dump(exclude_none=True)], "$slice": -MOST_STEPS}}
    if signal:
        shown = signal.model_copy(update={"message": signal.message and signal.message[:MAX_STEP_MESSAGE]})
        added = {"signals": {"$each": [shown.model_dump(exclude_none=True)], "$slice": -MOST_SIGNALS}}
        update["$push"] = {**update.get("$push", {}), **added}
        update["$set"]["signals_due"] = now
    return update


# --- the queue

#: Seconds after which a worker looks again at an assignment without an answer. All timeouts of a post are shorter.
ATTEND_SECONDS = 15
#: A job remembers this many nodes to avoid.
_AVOIDED = 5
_IN_A_PARTITION: Document = {"status": JobStatus.PENDING, "lane": {"$gt": ""}}
#: A pending job that is due is in a backoff, unless a worker has assigned it, or it is to be stopped.
_IN_BACKOFF: Document = dict.fromkeys(("assignment", "lane", "cancel_requested_at", "pause_requested_at"))
_NOT_IN_BACKOFF: Document = {
    "$or": [
        {"assignment.attempt": {"$gte": 1}},
        *({name: {"$exists": True}} for name in ("cancel_requested_at", "pause_requested_at")),
    ]
}
#: How many jobs whose backoff is over are read and written at once.
_REQUEUED = 100
_BEST_FIRST = [("rank", ASCENDING)]
_BY_PARTITION = [("lane", ASCENDING), ("rank", ASCENDING)]
#: How many jobs one step of a skip scan reads. If few jobs wait, one step is enough.
_STEP = 4
#: After a step that found no job that fits, partitions only are read, of this many jobs at once.
_LONG_STEP = 500
#: Maximum number of queries with which `blocked_for` looks for resources.
_STEPS = 50


class Candidate(NamedTuple):
    """A job that could start now: the fields needed to choose a node for it, and its document."""

    partition: Partition
    rank: datetime
    job_id: str
    #: Number of its last attempt.
    attempt: int
    exclusive: str | None
    avoid: tuple[str, ...]
    prefer: str | None
    document: Document


class Front(NamedTuple):
    """The first jobs of one partition, in the order of their ranks; and whether these are all jobs of it."""

    candidates: list[Candidate]
    is_all: bool


class Capacity(NamedTuple):
    """The capacity of all nodes together. A job of the default project, which every node has, fits any free slot."""

    #: The eggs on nodes that have a free slot.
    eggs: frozenset[Egg] = frozenset()
    #: The eggs on nodes that also have a free render slot; `None` if no node has one.
    render_eggs: frozenset[Egg] | None = None
    #: The capacity of the nodes that speak a newer protocol than 1, by protocol; `None` if none has a free slot.
    newer: Mapping[int, Capacity | None] = MappingProxyType({})
    #: Lower-case names of the projects that give their crawls environment variables or settings.
    configured: frozenset[str] = frozenset()

    def of(self, requirements: Requirements) -> Capacity | None:
        """The capacity of the nodes that speak the protocol of a job with these requirements; `None` if they have no
        free slot.
        """
        protocol = requirements.with_configured(self.configured).protocol
        return self if protocol == 1 else self.newer.get(protocol)

    def fits(self, requirements: Requirements) -> bool:
        able = self.of(requirements)
        if able is None:
            return False
        eggs = able.render_eggs if requirements.render else able.eggs
        if eggs is None or requirements.project == DEFAULT_PROJECT:
            return eggs is not None
        if requirements.version is None:
            return any(egg.project == requirements.project for egg in eggs)
        return Egg(requirements.project, requirements.version) in eggs


class JobQueue:
    """The `jobs` collection as the dispatcher uses it. Later steps of a job's life are in `JobStore`."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._jobs = database["jobs"]
        self._documents = JobDocuments(database)
        self._candidates = SetAside(self._jobs, _candidate)
        self._partitions = SetAside(self._jobs, _partition)
        self._blocked = SetAside(self._jobs, _blocked)
        self._attempts = AttemptStore(database)
        self._clock = clock

    # --- which jobs wait

    def is_empty(self) -> bool:
        """Whether no job waits for a slot."""
        return self._first("") is None

    def fronts(self, fits: Callable[[Requirements], bool], after: str = "") -> Iterator[Front]:
        """The first jobs of each partition whose requirements fit, in the order of the partitions' names, starting
        after `after`. They are read lazily (a "skip scan"): one seek skips the other jobs of a partition, and another
        one skips all partitions with requirements that do not fit.
        """
        while found := self._ahead(after, _STEP):
            is_all, fitted = len(found) < _STEP, False
            last = str(found[-1].partition)
            for partition, candidates in groupby(found, key=lambda one: one.partition):
                if str(partition) <= after:
                    continue
                if fit := fits(partition.requirements):
                    yield Front(list(candidates), is_all or str(partition) != last)
                after, fitted = str(partition) if fit else partition.requirements.end, fitted or fit
            after = max(after, last)
            if is_all:
                return
            after = after if fitted else self._beyond_misfits(fits, after)

    def _beyond_misfits(self, fits: Callable[[Requirements], bool], after: str) -> str:
        """A name to continue from: after `after`, and before the first partition that fits. There may be thousands
        that do not fit, so many are read at once.
        """
        while found := self._partitions_ahead(after):
            for partition in found:
                if str(partition) <= after:
                    continue
                if fits(partition.requirements):
                    return after
                after = partition.requirements.end
        return after

    # these methods skip a job that cannot be read, even if it cannot be set aside either

    def _partitions_ahead(self, after: str) -> list[Partition]:
        """The partitions of the next jobs, one for each job."""
        query = {"status": JobStatus.PENDING, "lane": {"$gt": after}}
        return self._partitions.find(query, _LONG_STEP, _BY_PARTITION, {"lane": 1})

    def _ahead(self, after: str, limit: int) -> list[Candidate]:
        query = {"status": JobStatus.PENDING, "lane": {"$gt": after}}
        return self._candidates.find(query, limit, _BY_PARTITION)

    def best(self, partition: Partition, limit: int) -> list[Candidate]:
        """Up to `limit` first jobs of the partition, in the order of their ranks."""
        query = {"status": JobStatus.PENDING, "lane": str(partition)}
        return self._candidates.find(query, limit, _BEST_FIRST)

    def partitions_of(self, job_ids: Sequence[str]) -> set[Partition]:
        """The partitions of those among the jobs that wait for a slot."""
        found = self._jobs.find({"_id": {"$in": list(job_ids)}, **_IN_A_PARTITION}, {"lane": 1})
        return set(self._partitions.many(found))

    def requirements(self) -> Iterator[Requirements]:
        """The distinct requirements of the waiting jobs."""
        after = ""
        while (first := self._first(after)) is not None:
            yield first.partition.requirements
            after = first.partition.requirements.end

    def users(self, requirements: Requirements) -> Iterator[str]:
        """The users who have waiting jobs with these requirements."""
        after = str(requirements)
        while (first := self._first(after)) is not None and first.partition.requirements == requirements:
            yield first.partition.user_id
            after = str(first.partition)

    def partitions(self, after: str = "") -> Iterator[Partition]:
        """The partitions in which jobs wait, in the order of their names, starting after `after`."""
        while found := self._partitions_ahead(after):
            yield from dict.fromkeys(found)
            after = str(found[-1])
            if len(found) < _LONG_STEP:
                return

    def blocked_for(self, limit: int, after: str = "") -> list[str]:
        """Up to `limit` resources that blocked jobs wait for, in order, starting after `after`. Each query begins
        after the last resource that the query before found, so if thousands of jobs wait for one resource, few of
        them are read.
        """
        found: list[str] = []
        for _ in range(_STEPS):
            query = {"blocked": True, "exclusive": {"$gt": found[-1] if found else after}, SET_ASIDE: None}
            read = self._blocked.find(query, limit, [("exclusive", ASCENDING)], {"exclusive": 1})
            found += dict.fromkeys(read)
            if len(read) < limit or len(found) >= limit:
                break
        return found[:limit]

    # --- the way to a node

    def assign(self, wanted: Sequence[tuple[Candidate, Assignment]]) -> list[Job]:
        """Record which attempt goes to which node, before any node gets its attempt. Returns the jobs that were
        assigned. Jobs that were assigned elsewhere, blocked or ended since they were read are left out.
        """
        if not wanted:
            return []
        decided = {one.job_id: (one, assignment) for one, assignment in wanted}
        # use the documents that were read up to a second ago: an assignment uses no field that may have changed since
        found = self._documents.many(one.document for one, _ in wanted)
        if found and self._assign([decided[job.id] for job in found]) < len(found):
            won = self._jobs.find({"_id": {"$in": list(decided)}}, {"assignment.token": 1})
            tokens = {one["_id"]: one.get("assignment", {}).get("token") for one in won}
            found = [job for job in found if tokens.get(job.id) == decided[job.id][1].token]
        given = ((job, decided[job.id][1]) for job in found)
        return [job.model_copy(update={"assignment": one, "attempt": one.attempt}) for job, one in given]

    def without(self, wanted: Sequence[tuple[Candidate, Assignment]]) -> set[str]:
        """Ids of the jobs whose attempt is certainly not alive: the job has not reached its number, or it is over.
        Any other job may have been assigned by the caller, and then taken over by another worker before this call.
        """
        number = {one.job_id: assignment.attempt for one, assignment in wanted}
        fields = {"attempt": 1, "attempts": 1, "status": 1}
        found = self._jobs.find({"_id": {"$in": list(number)}}, fields) if wanted else ()
        return {one["_id"] for one in found if not _may_live(one, number[one["_id"]])}

    @state_change("jobs.assign")
    def _assign(self, wanted: Sequence[tuple[Candidate, Assignment]]) -> int:
        now = self._clock()
        operations = [
            UpdateOne(
                {"_id": one.job_id, "status": JobStatus.PENDING, "lane": str(one.partition), "attempt": one.attempt},
                change(now, _assigned(assignment, now), unset=("lane",)),
            )
            for one, assignment in wanted
        ]
        return self._write(operations, [one.job_id for one, _ in wanted])

    def _write(self, operations: Sequence[UpdateOne], job_ids: Sequence[str]) -> int:
        """Carry out the operations, one for each of the jobs. Returns how many found their job. If a job cannot be
        written, the others are written all the same.
        """
        try:
            return self._jobs.bulk_write(operations, ordered=False).matched_count
        except BulkWriteError as error:
            if is_passing(error):
                raise
            for problem in error.details["writeErrors"]:
                log.warning("job_not_written", job_id=(job_id := job_ids[problem["index"]]), error=problem["errmsg"])
                # older releases kept all attempts in the job, until the document had no room left
                self._attempts.supersede(job_id)
            matched: int = error.details["nMatched"]
            return matched

    @state_change("jobs.take_over")
    def take_over(self, job: Job, token: str) -> Job | None:
        """Take over the unanswered assignment by giving it a new token. Returns `None` if another worker
        was faster.
        """
        if job.assignment is None:
            return None
        now = self._clock()
        return self._change(
            {"_id": job.id, "attend_at": job.attend_at, **_by(job.assignment)},
            {"assignment.token": token, "attend_at": now + timedelta(seconds=ATTEND_SECONDS)},
        )

    @state_change("jobs.release")
    def release(
        self, job: Job, *, not_before: datetime, message: str | None = None, avoid: bool = False
    ) -> Job | None:
        """Undo an assignment whose node certainly has not started the attempt and never will. The job waits for its
        next attempt, from `not_before` on. With a `message` this counts as a failed dispatch, unless `avoid` is set:
        then the node is at fault, and other nodes are tried first.
        """
        if job.assignment is None:
            return None
        failed = message is not None
        changes: Document = {"not_before": not_before, "attend_at": not_before}
        changes |= (
            {"message": message, "waiting_reason": WaitingReason.BACKOFF} if failed else {"dispatch_failures": 0}
        )
        if avoid:
            changes["avoid"] = avoiding(job, job.assignment.node)
        increment = "dispatch_failures" if failed and not avoid else None
        query, step = {"_id": job.id, **_by(job.assignment)}, self._backoff(message) if failed else None
        # remove the stored reason, which belongs to the previous message
        unset = ("assignment", "reason") if failed else ("assignment",)
        return self._change(query, changes, unset=unset, increment=increment, step=step)

    @state_change("jobs.ask_later")
    def ask_later(self, job: Job, message: str, at: datetime) -> Job | None:
        """Ask the node again at this time, because it may have the attempt."""
        if job.assignment is None:
            return None
        changes = {"message": message, "attend_at": at, "waiting_reason": WaitingReason.BACKOFF}
        # a step for each question, every few seconds, would push out all other steps
        step = None if job.waiting_reason is WaitingReason.BACKOFF else self._backoff(message)
        query = {"_id": job.id, **_by(job.assignment)}
        return self._change(query, changes, unset=("reason",), increment="dispatch_failures", step=step)

    def _backoff(self, message: str | None) -> PastStep:
        return PastStep(at=self._clock(), kind=StepKind.WAITS, reason=WaitingReason.BACKOFF, message=message)

    @state_change("jobs.use_up")
    def use_up(self, job_id: str, attempt: int) -> bool:
        """Use up this attempt's number, so that no worker can assign it. Returns false if it was used already."""
        query = {"_id": job_id, "status": JobStatus.PENDING, "attempt": attempt - 1}
        return self._jobs.update_one(query, {"$set": {"attempt": attempt}}).matched_count == 1

    # --- waiting

    def end_backoffs(self) -> None:
        """Put the jobs whose backoff is over back into the queue, the longest due first, in batches until the time is
        used up. So neither thousands of jobs of one user nor jobs that cannot be written hold up the others.
        """
        jobs = self._due(JobStatus.PENDING, self._clock(), _IN_BACKOFF)
        while remaining(VERDICT_SECONDS) > 0 and (batch := list(islice(jobs, _REQUEUED))):
            self.requeue(batch)

    def overdue(self, limit: int, busy: Collection[str] = (), but: Sequence[str] = ()) -> list[Job]:
        """Pending jobs whose node has not answered, or that are to be stopped, the longest due first. Jobs at `busy`
        nodes, and jobs with the ids `but`, are left out, because others would wait behind them.
        """
        left_out = {"assignment.node": busy, "_id": but}
        others = {name: {"$nin": list(some)} for name, some in left_out.items() if some}
        return list(self._due(JobStatus.PENDING, self._clock(), {**_NOT_IN_BACKOFF, **others}, limit))

    def running(self, limit: int, ahead: timedelta) -> list[Job]:
        """Running jobs that must be looked at within the time `ahead`, the longest due first."""
        return list(self._due(JobStatus.RUNNING, self._clock() + ahead, {}, limit))

    def _due(self, status: JobStatus, before: datetime, further: Document, limit: int = 0) -> Iterator[Job]:
        """The jobs that are due, read lazily; a `limit` of 0 means no limit."""
        due = {"status": status, "attend_at": {"$lte": before}, **further}
        found = self._jobs.find(due, sort=[("attend_at", ASCENDING)], limit=limit)
        return (job for _, job in self._documents.each(found) if job is not None)

    @state_change("jobs.requeue")
    def requeue(self, jobs: Sequence[Job]) -> None:
        """Put these jobs, whose backoff is over, back into the queue. Jobs that another crawl blocks stay
        out of it.
        """
        now = self._clock()
        still: Document = {"attend_at": {"$lte": now}, "status": JobStatus.PENDING, "assignment": None, "lane": None}
        operations = [
            UpdateOne(
                {"_id": job.id, **still, "blocked": job.blocked},
                change(now, {} if job.blocked else job.queue_place(), unset=("attend_at",)),
            )
            for job in jobs
        ]
        if operations:
            self._write(operations, [job.id for job in jobs])

    @state_change("jobs.block")
    def block(self, job_id: str, reason: WaitingReason) -> Job | None:
        """Block the job: another crawl holds its `exclusive` resource. No worker looks at the job until it
        is free.
        """
        return self._change(
            {"_id": job_id, **_IN_A_PARTITION},
            {"blocked": True, "waiting_reason": reason},
            unset=("lane",),
            step=PastStep(at=self._clock(), kind=StepKind.WAITS, reason=reason),
        )

    @state_change("jobs.unblock")
    def unblock(self, exclusive: str) -> Job | None:
        """Let the first job in the order of ranks that waits for this resource wait for a slot again. Returns it;
        `None` if there is none.
        """
        query: Document = {"blocked": True, "exclusive": exclusive, "status": JobStatus.PENDING}
        for best in self._documents.find({**query, SET_ASIDE: None}, 9, _BEST_FIRST):
            unset = ("blocked", "waiting_reason")
            if job := self._change({"_id": best.id, **query}, {"lane": str(best.partition)}, unset=unset):
                return job
        return None

    @state_change("jobs.note_waiting")
    def note_waiting(self, reason: WaitingReason, partitions: Iterable[Partition], limit: int) -> list[Job]:
        """Record why jobs of these partitions wait, for up to `limit` jobs with another reason or none yet. Returns
        the changed jobs.
        """
        others = [None, *(one for one in WaitingReason if one is not reason)]
        query: Document = {"lane": {"$in": list(map(str, partitions))}, "waiting_reason": {"$in": others}}
        found, waits = self._documents.many(self._jobs.find(query, limit=limit)), _waits(self._clock(), reason)
        # the status is not in the query: MongoDB would then choose an index with which it reads all waiting jobs
        changed = [job for job in found if job.status is JobStatus.PENDING]
        operations = [UpdateOne({"_id": job.id, **_IN_A_PARTITION}, waits) for job in changed]
        if operations:
            self._write(operations, [job.id for job in changed])
        return [job.model_copy(update={"waiting_reason": reason}) for job in changed]

    def _first(self, after: str) -> Candidate | None:
        return next(iter(self._ahead(after, 1)), None)

    def _change(self, query: Document, changes: Document, **others: Any) -> Job | None:
        """Update the job that the query finds. `others` are further arguments of `change`."""
        return self._documents.find_one_and_update(query, change(self._clock(), changes, **others))


def _waits(now: datetime, reason: WaitingReason) -> Document:
    step = PastStep(at=now, kind=StepKind.WAITS, reason=reason)
    return change(now, {"waiting_reason": reason}, step=step)


def avoiding(job: Job, node: str) -> list[str]:
    """The nodes that the job avoids, with this one added."""
    return [*(other for other in job.avoid if other != node), node][-_AVOIDED:]


def _partition(document: Document) -> Partition:
    return Partition.parse(text(document["lane"]))


def _blocked(document: Document) -> str:
    return text(document["exclusive"])


def _candidate(document: Document) -> Candidate:
    partition, avoid = _partition(document), tuple(document.get("avoid", ()))
    exclusive, prefer = document.get("exclusive"), document.get("prefer")
    identity = moment(document["rank"]), document["_id"], whole(document.get("attempt", 0))
    # check the types here: later, a value of another type would raise for all jobs, and no job of any user would
    # start
    named = exclusive and text(exclusive), tuple(map(text, avoid)), prefer and text(prefer)
    return Candidate(partition, *identity, *named, document)


def _may_live(document: Document, attempt: int) -> bool:
    record = document.get("attempts", {}).get(str(attempt), {})
    return document.get("attempt") == attempt and "exit" not in record and document["status"] not in FINAL_STATUSES


def _by(assignment: Assignment) -> Document:
    """A condition that the job meets only if no other worker has taken over the assignment."""
    return {"status": JobStatus.PENDING, "assignment.token": assignment.token}


def _assigned(assignment: Assignment, now: datetime) -> Document:
    return {
        "assignment": assignment.model_dump(),
        "attempt": assignment.attempt,
        "attend_at": now + timedelta(seconds=ATTEND_SECONDS),
    }
