"""Limits on how many crawls may wait, of one user and of all users, and on the runs of a user's schedules. A request
beyond a limit is refused, and the answer says when to ask again; an occurrence beyond a limit is skipped.

There is no lock across processes. Each process counts at most every `FRESH` seconds and adds the jobs that it has
admitted itself. So a single process keeps the limits exactly, except for jobs of schedules and retries since its last
count. Several processes may exceed a limit by the jobs that the other processes admit within that time.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import NamedTuple

from attrs import define, field
from pymongo.database import Database

from gateway.clock import Clock, utc_now
from gateway.errors import QueueFullError, UserQuotaError
from gateway.jobs.job import JobStatus
from gateway.schedules.schedule import ScheduleState
from gateway.stores.mongo import Document


class WaitingStore:
    """Counts waiting jobs, and users' schedules and their runs."""

    def __init__(self, database: Database[Document]) -> None:
        self._jobs = database["jobs"]
        self._schedules = database["schedules"]

    # each method counts up to `limit`, with equality queries that an index answers without reading a document

    def count(self, limit: int) -> int:
        """How many jobs of all users wait for a slot."""
        return self._jobs.count_documents({"status": JobStatus.PENDING}, limit=limit)

    def of_user(self, limit: int, user_id: str) -> int:
        """How many jobs of the user wait for a slot, for their start time, or to be resumed."""
        statuses = (JobStatus.PENDING, JobStatus.SCHEDULED, JobStatus.PAUSED)
        return sum(
            self._jobs.count_documents({"status": status, "user_id": user_id}, limit=limit) for status in statuses
        )

    def begun_by_schedules(self, limit: int, user_id: str, since: datetime) -> int:
        """How many runs the user's schedules have begun since then."""
        query: Document = {"user_id": user_id, "created_at": {"$gte": since}, "schedule_id": {"$gt": ""}}
        return self._jobs.count_documents(query, limit=limit)

    def schedules_of(self, limit: int, user_id: str) -> int:
        """How many of the user's schedules have not ended."""
        states = (ScheduleState.ACTIVE, ScheduleState.PAUSED)
        return sum(
            self._schedules.count_documents({"user_id": user_id, "state": state}, limit=limit) for state in states
        )


#: Seconds for which a count is valid, at least.
FRESH = 0.25
#: A count is also valid for this many times its own duration: at most a twentieth of the time is spent on counting.
_SPARING = 20
#: Seconds after which to ask again, at random, so that many refused clients do not come back at the same moment.
_ASK_AGAIN = (5, 15)
#: Counting stops this far beyond a limit: the number only appears in messages.
_BEYOND = 1000
_MINUTE = timedelta(minutes=1)
#: How many counts are remembered, one for each user and kind.
_MOST_USERS = 1000


class Quotas(NamedTuple):
    """The limits. 0 means no limit; then nothing is counted."""

    #: Crawls of all users that may wait for a slot.
    queue: int = 0
    #: Crawls of one user that may wait, for a slot or for their start time.
    waiting: int = 0
    #: Schedules that one user may have; those that have ended do not count.
    schedules: int = 0
    #: Runs that the schedules of one user may begin within a minute.
    begun: int = 0


class _Kind(Enum):
    """What is limited for each user: its name in `Quotas` and in the refusal, and the text of the refusal."""

    WAITING = ("waiting", "{count} crawls of {user!r} wait, and the limit is {limit} (CRAWL_USER_WAITING_MAX)")
    SCHEDULES = ("schedules", "{user!r} has {count} schedules, and the limit is {limit} (CRAWL_USER_SCHEDULES_MAX)")
    BEGUN = (
        "begun",
        "schedules of {user!r} began {count} runs a minute, the limit is {limit} (CRAWL_USER_SCHEDULED_PER_MINUTE)",
    )


@define(eq=False, repr=False, slots=False)
class Admission:
    """Decides whether another job or schedule may be inserted. The methods that start with `room` take a place for
    the block in which it is inserted; those that start with `require` only check.
    """

    _waiting: WaitingStore
    _quotas: Quotas = field(factory=Quotas)
    _clock: Clock = utc_now
    _users: OrderedDict[tuple[_Kind, str], _Tally] = field(init=False, factory=OrderedDict)
    _lock: threading.Lock = field(init=False, factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        most = self._quotas.queue
        self._queue = _Tally(self._waiting.count, most) if most else None

    @contextmanager
    def room(self, user_id: str) -> Iterator[None]:
        """Takes a place for one job that a client asks for. If the insertion fails, the place is free again.

        Raises `UserQuotaError`, `QueueFullError`, `PyMongoError`.
        """
        with self._places(user_id, _Kind.WAITING), ExitStack() as places:
            if self._queue and (waiting := places.enter_context(self._queue.place())) is not None:
                raise QueueFullError(waiting, self._queue.most, _ask_again())
            yield

    def room_for_later(self, user_id: str) -> AbstractContextManager[None]:
        """As `room`, for a job with a later start time. It takes its place now, and is not checked again when it
        starts.
        """
        return self._places(user_id, _Kind.WAITING)

    @contextmanager
    def room_by_hand(self, user_id: str) -> Iterator[None]:
        """As `room`, for a run of a schedule that a client asks for by hand."""
        with self._places(user_id, _Kind.BEGUN), self.room(user_id):
            yield

    def room_for_schedule(self, user_id: str) -> AbstractContextManager[None]:
        """As `room`, for the insertion of a schedule."""
        return self._places(user_id, _Kind.SCHEDULES)

    def require_room(self, user_id: str) -> None:
        """Raise as `room` does if there is no place, without taking one."""
        self._require(user_id, _Kind.WAITING)
        if self._queue and (waiting := self._queue.full()) is not None:
            raise QueueFullError(waiting, self._queue.most, _ask_again())

    def require_room_for_later(self, user_id: str) -> None:
        """Raise as `room_for_later` does if there is no place, without taking one."""
        self._require(user_id, _Kind.WAITING)

    def require_room_for_schedule(self, user_id: str) -> None:
        """Raise as `room_for_schedule` does if there is no place, without taking one."""
        self._require(user_id, _Kind.SCHEDULES)

    def look(self) -> Look:
        """The limits for the occurrences that one beat finds due together."""
        return Look(self._count, self._quotas)

    @contextmanager
    def _places(self, user_id: str, kind: _Kind) -> Iterator[None]:
        limit = self._limit(kind)
        with ExitStack() as places:
            tally = self._tally(user_id, kind) if limit else None
            if tally and (count := places.enter_context(tally.place())) is not None:
                raise _refusal(kind, user_id, count, limit)
            yield

    def _require(self, user_id: str, kind: _Kind) -> None:
        limit = self._limit(kind)
        if limit and (count := self._tally(user_id, kind).full()) is not None:
            raise _refusal(kind, user_id, count, limit)

    def _limit(self, kind: _Kind) -> int:
        limit: int = getattr(self._quotas, kind.value[0])
        return limit

    def _count(self, kind: _Kind, user_id: str, limit: int) -> int:
        if kind is _Kind.WAITING:
            return self._waiting.of_user(limit, user_id)
        if kind is _Kind.SCHEDULES:
            return self._waiting.schedules_of(limit, user_id)
        return self._waiting.begun_by_schedules(limit, user_id, self._clock() - _MINUTE)

    def _tally(self, user_id: str, kind: _Kind) -> _Tally:
        with self._lock:
            tally = self._users.get((kind, user_id))
            if tally is None:
                tally = _Tally(partial(self._count, kind, user_id), self._limit(kind))
                self._users[kind, user_id] = tally
                if len(self._users) > _MOST_USERS:
                    self._users.popitem(last=False)
            self._users.move_to_end((kind, user_id))
            return tally


class Look:
    """How many runs the schedules of users may still begin. Each `Look` counts again, because several beats fire
    schedules.
    """

    def __init__(self, count: Callable[[_Kind, str, int], int], quotas: Quotas) -> None:
        limits = {_Kind.WAITING: quotas.waiting, _Kind.BEGUN: quotas.begun}
        self._limits = {kind: limit for kind, limit in limits.items() if limit}
        self._count = count
        self._counts: dict[tuple[_Kind, str], int] = {}

    def take(self, user_id: str) -> str | None:
        """Take a place for one more run. Returns `None` if there was one, otherwise why not. Raises
        `PyMongoError`.
        """
        for kind, limit in self._limits.items():
            if (kind, user_id) not in self._counts:
                self._counts[kind, user_id] = self._count(kind, user_id, limit + _BEYOND)
            if (count := self._counts[kind, user_id]) >= limit:
                return f"{UserQuotaError.code}: {_reason(kind, user_id, count, limit)}"
        for kind in self._limits:
            self._counts[kind, user_id] += 1
        return None


def _reason(kind: _Kind, user_id: str, count: int, limit: int) -> str:
    return kind.value[1].format(count=count, user=user_id, limit=limit)


def _refusal(kind: _Kind, user_id: str, count: int, limit: int) -> UserQuotaError:
    return UserQuotaError(_reason(kind, user_id, count, limit), kind.value[0], count, limit, _ask_again())


class _Tally:
    """How many wait: the last count, plus the jobs that this process has admitted since."""

    def __init__(self, count: Callable[[int], int], most: int) -> None:
        self.most = most
        self._count = count
        self._lock = threading.Lock()
        self._counted: int | None = None
        self._count_at = 0.0
        #: How many this process has admitted in total; how many of these were certainly inserted when the last count
        #: began; how many are being inserted now.
        self._admitted = self._included = self._under_way = 0

    @contextmanager
    def place(self) -> Iterator[int | None]:
        """Take a place. Yields `None` if there was one, or else how many wait."""
        self._refresh()
        with self._lock:
            waiting = self._waiting
            taken = waiting < self.most
            self._admitted += taken
            self._under_way += taken
        try:
            yield None if taken else waiting
        except BaseException:
            with self._lock:
                self._admitted -= taken
            raise
        finally:
            with self._lock:
                self._under_way -= taken

    def full(self) -> int | None:
        """How many wait if there is no place, else `None`."""
        self._refresh()
        with self._lock:
            return self._waiting if self._waiting >= self.most else None

    @property
    def _waiting(self) -> int:
        return (self._counted or 0) + self._admitted - self._included

    def _refresh(self) -> None:
        """Counts without the lock: if the database hangs, only the thread that counts waits for it."""
        with self._lock:
            began = time.monotonic()
            if self._counted is not None and began < self._count_at:
                return
            self._count_at = began + FRESH
            # jobs that are being inserted now may or may not be in the count
            included = self._admitted - self._under_way
        counted = self._count(self.most + _BEYOND)
        with self._lock:
            took = time.monotonic() - began
            self._counted, self._included = counted, included
            self._count_at = time.monotonic() + max(FRESH, took * _SPARING)


def _ask_again() -> int:
    return random.randint(*_ASK_AGAIN)  # noqa: S311 - nobody gains by guessing it
