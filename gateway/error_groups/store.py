"""The groups of errors in MongoDB: runs are added, people resolve, retention removes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import structlog
from pymongo import ASCENDING, DESCENDING, ReturnDocument, UpdateOne
from pymongo.database import Database

from gateway.clock import Clock, utc_now
from gateway.contract.error_fingerprint import group as new_group
from gateway.crash_points import state_change
from gateway.error_groups.attempt_errors import AttemptErrorStore, FoundErrors, RunErrors
from gateway.error_groups.error_group import (
    GONE_DAYS,
    ErrorGroup,
    ErrorGroupMark,
    ErrorGroupState,
    Gone,
    Resolution,
    gone,
    group_id,
)
from gateway.errors import ErrorGroupNotFoundError, InvalidRequestError
from gateway.jobs.added_once import AddedOnce, Addition, AnyRun
from gateway.jobs.job import JobStatus
from gateway.jobs.run_days import SUMS_KEPT, RunDays, UserSpider, day_of, spider_subject
from gateway.stores.documents import Documents, cursor_of, following, reader
from gateway.stores.mongo import Document, Repeating, one_of

log = structlog.get_logger()

#: How long a group is kept after it last occurred.
GROUPS_KEPT = SUMS_KEPT
#: One spider of one user has at most this many groups.
MOST_OF_SPIDER = 1000
#: Jobs that are added at once.
_AT_ONCE = 25
_CURSOR = re.compile(r"(\d{1,14})-([0-9a-f]{32})")
#: The fields that are searched for a text. The time is checked after each `_LOOKED_AT_ONCE` groups, and a page ends
#: early after `_SEARCH_SECONDS`.
_SEARCHED = ("name", "message", "place")
_LOOKED_AT_ONCE, _SEARCH_SECONDS = 500, 1.0


#: By job id, then by group id: the group, and the job's errors in it.
_OfRuns = dict[str, dict[str, tuple[ErrorGroup, FoundErrors]]]


class ErrorOrder(StrEnum):
    """The order of a list, by its first entry: the group seen last, the most frequent, or the one known longest."""

    LAST_SEEN = "last_seen"
    COUNT = "count"
    FIRST_SEEN = "first_seen"

    @property
    def field(self) -> str:
        return {ErrorOrder.LAST_SEEN: "last_seen_at", ErrorOrder.FIRST_SEEN: "first.at"}.get(self, "count")

    @property
    def sort(self) -> list[tuple[str, int]]:
        direction = ASCENDING if self is ErrorOrder.FIRST_SEEN else DESCENDING
        return [(self.field, direction), ("_id", direction)]

    def after(self, cursor: str) -> Document:
        """The condition for the groups after the cursor. Raises `InvalidRequestError`."""
        if self is ErrorOrder.COUNT:
            return _fewer(cursor)
        return following(cursor, self.field, newest_first=self is ErrorOrder.LAST_SEEN)

    def cursor(self, document: Document) -> str:
        if self is ErrorOrder.COUNT:
            return f"{document['count']}-{document['_id']}"
        at = document["first"]["at"] if self is ErrorOrder.FIRST_SEEN else document["last_seen_at"]
        return cursor_of(at, document["_id"])


class ErrorFilter(NamedTuple):
    """Which groups to list; what is `None` does not restrict the list."""

    user_id: str | None = None
    project: str | None = None
    spider: str | None = None
    state: ErrorGroupState | None = None
    kind: str | None = None
    #: Seen at this moment or later.
    since: datetime | None = None
    #: First seen at this moment or later.
    new_since: datetime | None = None
    #: First seen before this moment.
    until: datetime | None = None
    #: Text in the name, the message or the place; case does not matter.
    q: str | None = None
    #: Of these projects only: those that the caller may see.
    projects: tuple[str, ...] = ()

    def conditions(self) -> list[Document]:
        same = {name: getattr(self, name) for name in ("user_id", "project", "spider", "state", "kind")}
        found: list[Document] = [{name: value} for name, value in same.items() if value is not None]
        if self.projects and self.project not in self.projects:
            found.append({"project": one_of(self.projects)})
        # none is seen for the last time before it is seen first
        if seen := max((one for one in (self.since, self.new_since) if one), default=None):
            found.append({"last_seen_at": {"$gte": seen}})
        if self.new_since is not None:
            found.append({"first.at": {"$gte": self.new_since}})
        if self.until is not None:
            found.append({"first.at": {"$lt": self.until}})
        return found

    def takes(self, document: Document) -> bool:
        """Whether the text is in one of the fields `_SEARCHED` of a stored group."""
        text = (self.q or "").casefold()
        return any(text in str(document.get(name, "")).casefold() for name in _SEARCHED)


class RunGroup(NamedTuple):
    """A group of one run."""

    found: FoundErrors
    mark: ErrorGroupMark
    #: `None` if the run is not over, or if the group was deleted or never made.
    group: ErrorGroup | None


class ErrorGroupStore(AddedOnce[ErrorGroup]):
    """The collection `error_groups`."""

    def __init__(
        self, database: Database[Document], attempts: AttemptErrorStore, days: RunDays, clock: Clock = utc_now
    ) -> None:
        super().__init__(Documents(database["error_groups"], reader(ErrorGroup)), database["jobs"])
        self._attempts = attempts
        self._days = days
        self._clock = clock
        self._monotonic: Callable[[], float] = time.monotonic

    # --- to add

    def add(self, jobs: Sequence[AnyRun]) -> tuple[set[str], dict[str, int]]:
        """Add the ended ones of these jobs to the groups of their errors, each job only once. Returns the ids of jobs
        that must be added later, and for each job with new or reopened groups how many these are. Raises PyMongo's
        errors.
        """
        left: set[str] = set()
        new: dict[str, int] = {}
        ended = [job for job in jobs if job.is_final]
        for first in range(0, len(ended), _AT_ONCE):
            some = {job.id: job for job in ended[first : first + _AT_ONCE]}
            if found := self._found(some):
                with_errors = [some[job_id] for job_id in found]
                left |= self._passing(self._add_all(with_errors, self._addition(with_errors, found)), found)
                new |= self._count_new(found)
        self._note_new(new)
        return left, new

    def _found(self, jobs: Mapping[str, AnyRun]) -> _OfRuns:
        """The groups that the jobs have to be added to, as new groups. Jobs without errors are left out."""
        errors = self._attempts.of_jobs(jobs)
        found: _OfRuns = {}
        for job in jobs.values():
            groups = errors.get(job.id, RunErrors([])).groups or of_outcome(job)
            if groups:
                found[job.id] = {group.id: (group, one) for one in groups for group in (ErrorGroup.new(job, one),)}
        refused = self._without_room({one.id: one for groups in found.values() for one, _ in groups.values()})
        return {
            job_id: {one: pair for one, pair in groups.items() if one not in refused}
            for job_id, groups in found.items()
        }

    def _passing(self, left: set[str], found: _OfRuns) -> set[str]:
        """The jobs that can be added later. A job whose group cannot be read is not one of them, because it would
        never be deleted.
        """
        stored = self._stored({one for job_id in left for one in found[job_id]})
        unreadable = {one for one, group in stored.items() if group is None}
        return {job_id for job_id in left if not unreadable & found[job_id].keys()}

    def _without_room(self, groups: Mapping[str, ErrorGroup]) -> set[str]:
        """The ids of the groups that do not exist yet and cannot be made, because the spider has too many groups."""
        if not groups:
            return set()
        there = {one["_id"] for one in self._counting.find({"_id": {"$in": list(groups)}}, {"_id": 1})}
        new: dict[tuple[str, str, str], list[str]] = {}
        for one in groups.values():
            if one.id not in there:
                new.setdefault((one.user_id, one.project, one.spider), []).append(one.id)
        refused: set[str] = set()
        for (user_id, project, spider), ids in new.items():
            of_spider = {"project": project, "spider": spider, "user_id": user_id}
            room = MOST_OF_SPIDER - self._counting.count_documents(of_spider, limit=MOST_OF_SPIDER)
            if room < len(ids):
                room += self.give_way(of_spider, len(ids) - room)
            refused.update(ids[max(0, room) :])
        if refused:
            log.warning("error_groups_full", groups=len(refused))
        return refused

    @state_change("error_groups.give_way")
    def give_way(self, of_spider: Document, number: int) -> int:
        """Delete up to `number` groups of the spider to make room for new ones: groups that are resolved, or were not
        seen for `GONE_DAYS`; the longest unseen first. Returns how many were deleted.
        """
        quiet = {"state": ErrorGroupState.OPEN, "last_seen_at": {"$lt": self._clock() - timedelta(days=GONE_DAYS)}}
        query: Document = {**of_spider, "$or": [{"state": ErrorGroupState.RESOLVED}, quiet]}
        found = self._counting.find(query, {"_id": 1}, sort=[("last_seen_at", ASCENDING)], limit=number)
        query["_id"] = {"$in": [one["_id"] for one in found]}
        return Repeating(self._counting).delete_many(query).deleted_count

    def _addition(self, jobs: Sequence[AnyRun], found: _OfRuns) -> Addition[ErrorGroup]:
        places = self._days.good_on(jobs)

        def update(group: ErrorGroup, some: Sequence[AnyRun]) -> Document:
            for job in some:
                group = group.with_run(job, found[job.id][group.id][1], places.get(job.id, 0))
            return {"$set": group.model_dump(exclude={"id", "rev", "applied"}, exclude_none=True)}

        def belongs_to(job: AnyRun) -> list[ErrorGroup]:
            return [group for group, _ in found.get(job.id, {}).values()]

        return Addition(belongs_to=belongs_to, update=update, since=self._clock() - GROUPS_KEPT)

    def _count_new(self, found: _OfRuns) -> dict[str, int]:
        ids = {one for groups in found.values() for one in groups}
        stored = self._documents.many(self._counting.find({"_id": {"$in": list(ids)}}))
        by_id = {one.id: one for one in stored}
        counts = {
            job_id: sum(by_id[one].mark_for(job_id) is not ErrorGroupMark.KNOWN for one in groups if one in by_id)
            for job_id, groups in found.items()
        }
        return {job_id: count for job_id, count in counts.items() if count}

    @state_change("error_groups.note_new")
    def _note_new(self, new: Mapping[str, int]) -> None:
        """Store the counts in the jobs, for lists and for alerts."""
        if new:
            noted = [UpdateOne({"_id": job_id}, {"$set": {"new_errors": count}}) for job_id, count in new.items()]
            self._jobs.bulk_write(noted, ordered=False)

    # --- the states that users set

    @state_change("error_groups.change")
    def change(self, found: str, state: ErrorGroupState, by: str | None, version: str | None) -> ErrorGroup:
        """Set the state of a group. Raises `ErrorGroupNotFoundError`. Runs that are added at the same time are not
        lost.
        """
        update: Document = {"$set": {"state": state}, "$inc": {"rev": 1}}
        if state is ErrorGroupState.RESOLVED:
            resolved = Resolution(at=self._clock(), by=by, version=version)
            update["$set"]["resolved"] = resolved.model_dump(exclude_none=True)
        else:
            update["$unset"] = {"resolved": "", "back": ""}
        stored = Repeating(self._counting).find_one_and_update(
            {"_id": found}, update, return_document=ReturnDocument.AFTER
        )
        if stored is None:
            raise ErrorGroupNotFoundError(found)
        return self._documents.one(stored)

    # --- to read

    def get(self, found: str) -> ErrorGroup:
        """Raises `ErrorGroupNotFoundError`, `UnreadableError`."""
        if (group := self._documents.find_one({"_id": found})) is None:
            raise ErrorGroupNotFoundError(found)
        return group

    def page(
        self, wanted: ErrorFilter, limit: int, after: str | None, order: ErrorOrder = ErrorOrder.LAST_SEEN
    ) -> tuple[list[ErrorGroup], str | None]:
        """A page, as `documents.page` returns it, in the given order. When a text is searched for, a page can end
        early, with a cursor to go on.
        """
        conditions = wanted.conditions()
        if after is not None:
            conditions.append(order.after(after))
        query: Document = {"$and": conditions} if conditions else {}
        if wanted.q:
            return self._search(wanted, query, order, limit)
        found = self._documents.find(query, limit + 1, order.sort)
        if len(found) <= limit:
            return found, None
        return found[:limit], order.cursor(found[limit - 1].model_dump(by_alias=True))

    def beginning_with(self, digits: str, wanted: ErrorFilter) -> list[str]:
        """The ids that begin so: two at most, which is enough to see that it is not one."""
        query = {"$and": [{"_id": {"$gte": digits, "$lt": f"{digits}g"}}, *wanted.conditions()]}
        return [one["_id"] for one in self._counting.find(query, {"_id": 1}, limit=2)]

    def oldest(self, wanted: ErrorFilter, since: datetime, limit: int) -> list[ErrorGroup]:
        """Those that came first since then, the first one first: of the `MOST_OF_SPIDER` that were seen last."""
        found, _ = self.page(wanted, MOST_OF_SPIDER, None)
        return sorted(found, key=lambda one: ((one.first_since(since) or one.last).at, one.id))[:limit]

    def _search(
        self, wanted: ErrorFilter, query: Document, order: ErrorOrder, limit: int
    ) -> tuple[list[ErrorGroup], str | None]:
        ids: list[str] = []
        onward, began = None, self._monotonic()
        fields = [*_SEARCHED, order.field]
        with self._counting.find(query, fields, sort=order.sort, batch_size=_LOOKED_AT_ONCE) as found:
            for number, one in enumerate(found, 1):
                if wanted.takes(one):
                    ids.append(one["_id"])
                is_over = number % _LOOKED_AT_ONCE == 0 and self._monotonic() - began > _SEARCH_SECONDS
                if len(ids) == limit or is_over:
                    onward = order.cursor(one)
                    break
        by_id = {one.id: one for one in self._documents.many(self._counting.find({"_id": {"$in": ids}}))}
        return [by_id[one] for one in ids if one in by_id], onward

    def of_run(self, job: AnyRun) -> tuple[list[RunGroup], int]:
        """The groups of a run's errors, the largest first, and how many errors are in no group."""
        errors = self._attempts.of_jobs([job.id]).get(job.id, RunErrors([]))
        found = errors.groups or of_outcome(job)
        ids = [group_id(job.user_id, job.spec.project, job.spec.spider, one.fingerprint) for one in found]
        stored = {one.id: one for one in self._documents.many(self._counting.find({"_id": {"$in": ids}}))}
        told = []
        for one, identity in zip(found, ids, strict=True):
            group = stored.get(identity)
            if group is None:
                mark = ErrorGroupMark.NEW
            elif group.names(job.id) or group.mark in job.summed:
                # the job may have been added after it was read, so the group is asked, too
                mark = group.mark_for(job.id)
            else:
                mark = group.mark_for_later(job)
            told.append(RunGroup(one, mark, group))
        return told, errors.left_out

    def gone(self, groups: Iterable[ErrorGroup]) -> dict[str, Gone]:
        """For how long each of the groups has not occurred, by its id."""
        groups, now = list(groups), self._clock()
        spiders = {one.id: UserSpider(one.user_id, spider_subject(one.project, one.spider)) for one in groups}
        good = self._days.good_since(spiders.values(), day_of(now) - timedelta(days=GONE_DAYS))
        return {one.id: gone(one, good.get(spiders[one.id], {}), now) for one in groups}

    @state_change("error_groups.forget")
    def forget(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` groups that have not occurred since `before`. Returns how many were deleted."""
        old: Document = {"last_seen_at": {"$lt": before}}
        found = [one["_id"] for one in self._counting.find(old, {"_id": 1}, limit=limit)]
        return Repeating(self._counting).delete_many({"_id": {"$in": found}, **old}).deleted_count if found else 0


def _fewer(cursor: str) -> Document:
    """The condition for the groups after the cursor in the order of counts. Raises `InvalidRequestError`."""
    if (place := _CURSOR.fullmatch(cursor)) is None:
        raise InvalidRequestError("after", "is not a cursor; use the `next` of the previous page")
    count = int(place[1])
    # the first condition is there so that an index can be used
    return {"count": {"$lte": count}, "$or": [{"count": {"$lt": count}}, {"_id": {"$lt": place[2]}}]}


def of_outcome(job: AnyRun) -> list[FoundErrors]:
    """The group of a run that has failed without any reported error: it is named by the reason of the failure."""
    if job.status is not JobStatus.ERROR or job.reason is None:
        return []
    made = new_group("crawl", job.reason.value, "", job.message or "")
    return [FoundErrors(**made, count=1, at=job.finished_at)]
