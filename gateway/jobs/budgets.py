"""Budgets of API keys: how much all crawls of one key together may use on one day (UTC).

Each key has a document for each day. Its field `used` is the sum of the amounts that ended crawls have used, and of
the amounts that are reserved for other crawls. One compare-and-set on the document admits a crawl: it increases
`used`, and notes the reservation under the job's id. So a crawl has one reservation, however often its request is
repeated, and every reserved amount has a known job.

The reservation decides what a job may use: an attempt gets what is left of it, and a node gets no attempt without
one. If a job's reservation was lost, or made long before the job was inserted, the job makes a new one or does not
run.

What an attempt has used is subtracted from the reservation before the next attempt is handed over, and at the job's
end. An attempt that does not report its use counts as having used everything. At the job's end, the rest is given
back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import BaseModel, Field
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from gateway.clock import Clock, utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.contract.outbox import SPENT
from gateway.crash_points import state_change
from gateway.errors import BudgetSpentError, InvalidRequestError
from gateway.jobs.job import Amounts, Attempt, BudgetUse, Job, KeyBudget, Resource
from gateway.jobs.queue import JobDocuments
from gateway.jobs.run_days import day_of
from gateway.stores.documents import Documents, reader
from gateway.stores.mongo import Document, Repeating

#: How long the documents are kept: a paused job may still have a reservation, and people look at past days.
BUDGETS_KEPT = timedelta(days=60)
#: How many crawls of a key may have a reservation at once. The limit keeps the document small.
MOST_OPEN = 1000
#: If a reservation is older than this and has no job, the process that made it died. It is given back.
LEFT_OVER = timedelta(minutes=1)
#: Seconds after which a client should ask again if other crawls may give back part of their reservations.
_ASK_AGAIN = 60
_DAY = timedelta(days=1)
#: How often a change is tried while others change the same document.
_TRIES = 50
#: The largest amount that is counted for an attempt. A hostile spider may report any number.
_MOST = 1 << 50


def in_minutes(amounts: Amounts) -> dict[str, int]:
    """The amounts in the units of a budget: whole minutes instead of seconds, and no amount below 0."""
    seconds = {"minutes": amounts["seconds"] // 60} if "seconds" in amounts else {}
    shown = {name: amount for name, amount in amounts.items() if name != "seconds"} | seconds
    return {name: max(0, amount) for name, amount in shown.items()}


class Reservation(BaseModel):
    """What is reserved for one job in the budget of one day."""

    at: datetime
    #: What is left for further attempts.
    left: Amounts
    #: The last attempt whose use was subtracted.
    attempt: int = 0


class BudgetDay(BaseModel, populate_by_name=True):
    """One document; `_id` is `<key>/<day>`."""

    id: str = Field(alias="_id")
    key_id: str
    day: datetime
    used: Amounts = Field(default_factory=dict)
    #: The reservations of jobs that have not ended, by their ids.
    open: dict[str, Reservation] = Field(default_factory=dict)

    def held(self, name: Resource) -> int:
        return sum(max(0, one.left.get(name, 0)) for one in self.open.values())


class BudgetLeft(NamedTuple):
    """How much of its budget a key has today."""

    budget: KeyBudget
    #: The sum of what ended crawls have used and what is reserved for other crawls.
    used: Amounts
    reserved: Amounts
    #: When the next day begins (UTC).
    until: datetime


class Budgets:
    """The collection `budget_days`."""

    def __init__(self, database: Database[Document], clock: Clock = utc_now) -> None:
        self._days = database["budget_days"]
        self._documents = Documents(self._days, reader(BudgetDay))
        self._keys = database["keys"]
        self._jobs = JobDocuments(database)
        self._clock = clock

    # --- to admit

    @contextmanager
    def reserved(self, job: Job) -> Iterator[Job]:
        """Yields the job with its reservation; the block inserts it. If the block fails and the job is not stored,
        the reservation is given back. Raises `BudgetSpentError`, `InvalidRequestError`.
        """
        job = self.reserve(job)
        try:
            yield job
        except Exception:
            self._give_back_unless_there(job)
            raise

    def reserve(self, job: Job) -> Job:
        """The job with a reservation for today; a job without a budget is unchanged. Raises as `reserved`."""
        if job.budget is None:
            return job
        use = BudgetUse(key_id=job.budget.key_id, day=day_of(self._clock()))
        self._reserve(use, job)
        return job.model_copy(update={"budget": use})

    def require(self, key_id: str | None, spec: CrawlSpec) -> None:
        """Raise as `reserved` does, if the crawl would be refused now. Reserves nothing."""
        if key_id is not None:
            limits, day = self._limits(key_id), self._day(_name(key_id, day_of(self._clock())))
            self._share(limits, day, spec)

    def left(self, budgets: Mapping[str, KeyBudget]) -> dict[str, BudgetLeft]:
        """How much of their budgets these keys have today, by key id."""
        today = day_of(self._clock())
        names = [_name(key_id, today) for key_id in budgets]
        days = {day.key_id: day for day in self._documents.many(self._days.find({"_id": {"$in": names}}))}
        return {key_id: self._left(budget, days.get(key_id), today) for key_id, budget in budgets.items()}

    def _left(self, budget: KeyBudget, day: BudgetDay | None, today: datetime) -> BudgetLeft:
        used: Amounts = {name: day.used.get(name, 0) if day else 0 for name in budget.amounts}
        reserved: Amounts = {name: day.held(name) if day else 0 for name in budget.amounts}
        return BudgetLeft(budget, used, reserved, today + _DAY)

    def _reserve(self, use: BudgetUse, job: Job) -> None:
        limits, name = self._limits(use.key_id), _name_of(use)
        self._make(name, use, limits)
        reclaimed = False
        for _ in range(_TRIES):
            day = self._day(name)
            if job.id in day.open:
                return
            try:
                share = self._share(limits, day, job.spec)
            except BudgetSpentError:
                if reclaimed or not self._reclaim(day):
                    raise
                reclaimed = True
                continue
            if self._take(name, job.id, share, limits):
                return
        raise BudgetSpentError("many crawls of this key begin at the same moment", _ASK_AGAIN)

    def _share(self, limits: Amounts, day: BudgetDay, spec: CrawlSpec) -> Amounts:
        """What the crawl reserves: its own limits; for an amount that it does not limit, all that is left. Raises as
        `reserved`.
        """
        if spec.renders and {"hosts", "bytes"} & limits.keys():
            message = "render: a browser's hosts and bytes are not counted, and the key has a budget of them"
            raise InvalidRequestError("params", message)
        if len(day.open) >= MOST_OPEN:
            raise BudgetSpentError(f"{len(day.open)} crawls of this key have not ended", _ASK_AGAIN)
        share: Amounts = {}
        for name, limit in limits.items():
            left = limit - day.used.get(name, 0)
            # the default timeout is long, so a timeout above the rest of the budget is not refused
            asked = min(spec.timeout, left) if name == "seconds" else (spec.max_pages if name == "pages" else None)
            share[name] = left if asked is None else asked
            if left <= 0 or share[name] > left:
                raise self._refusal(name, limit, share[name] if left > 0 else 1, day)
        return share

    def _refusal(self, name: Resource, limit: int, asked: int, day: BudgetDay) -> BudgetSpentError:
        left, held = max(0, limit - day.used.get(name, 0)), day.held(name)
        unit, each = ("minutes", 60) if name == "seconds" else (name, 1)
        message = f"the key's budget of {limit // each:,} {unit} a day has {left // each:,} left"
        if asked > left > 0:
            message += f", and the crawl asks for {asked:,} (max_pages)"
        # crawls can give back at most what they hold: asking again is useless if even that is not enough
        if held and left + held >= asked:
            message += f"; crawls that have not ended hold {held // each:,} and give back what they do not take"
            return BudgetSpentError(message, _ASK_AGAIN, detail=_detail(name, limit, left, held))
        now = self._clock()
        seconds = math.ceil((day_of(now) + _DAY - now).total_seconds())
        message += "; the next day begins at 00:00 UTC"
        return BudgetSpentError(message, max(1, seconds), detail=_detail(name, limit, left, held))

    @state_change("budgets.make")
    def _make(self, name: str, use: BudgetUse, limits: Amounts) -> None:
        new = {**use.model_dump(), "used": dict.fromkeys(limits, 0)}
        try:
            self._days.update_one({"_id": name}, {"$setOnInsert": new}, upsert=True)
        except DuplicateKeyError:
            return

    @state_change("budgets.reserve")
    def _take(self, name: str, job_id: str, share: Amounts, limits: Amounts) -> bool:
        """Reserve the share if the budget still has room for it. May be repeated: a job has only one reservation."""
        room: Document = {"_id": name, f"open.{job_id}": {"$exists": False}}
        for one, amount in share.items():
            room[f"used.{one}"] = {"$lte": limits[one] - amount}
        reservation = Reservation(at=self._clock(), left=share).model_dump()
        change: Document = {"$set": {f"open.{job_id}": reservation}}
        if share:
            change["$inc"] = {f"used.{one}": amount for one, amount in share.items()}
        return Repeating(self._days).update_one(room, change).modified_count == 1

    def _give_back_unless_there(self, job: Job) -> None:
        """Give the reservation back after an insertion that failed, unless the job was stored all the same. If
        another process stores the job later, `allowance` makes a new reservation.
        """
        if (use := job.budget) is None or use.day is None:
            return
        # another process may have stored the job with a reservation on another day, or in another key's budget
        same = {"_id": job.id, "budget.key_id": use.key_id, "budget.day": use.day}
        if self._jobs.collection.find_one(same, {"_id": 1}) is None:
            day = self._day(_name_of(use))
            if (reservation := day.open.get(job.id)) is not None:
                self._remove(day.id, job.id, reservation, reservation.left)

    def _reclaim(self, day: BudgetDay) -> bool:
        """Give back old reservations of jobs that do not exist or are settled. Returns whether there were any."""
        jobs, before = self._jobs.collection, self._clock() - LEFT_OVER
        old = [job_id for job_id, one in day.open.items() if one.at < before]
        found = jobs.find({"_id": {"$in": old}}, {"settled": 1, "budget": 1})
        # a job with a later start time has no day until it is handed over
        mine = {(day.key_id, day.day), (day.key_id, None)}
        there = {one["_id"]: one.get("settled") for one in found if _use_of(one) in mine}
        gone = [job_id for job_id in old if job_id not in there]
        for job_id in gone:
            self._remove(day.id, job_id, day.open[job_id], day.open[job_id].left)
        # settling a job gives its reservation back, except in older releases, which had no budgets
        settled = [job_id for job_id in there if there[job_id]]
        for job in self._jobs.many(jobs.find({"_id": {"$in": settled}})):
            self._close(job, day.id)
        return bool(gone or settled)

    # --- to run and to end

    def allowance(self, job: Job, attempt: int) -> tuple[BudgetUse, Amounts] | None:
        """Where this attempt's share is reserved, and how much it may use; `None` if the job has no budget. A
        repeated call for the same attempt returns the same, even after a node has taken it. Raises `BudgetSpentError`
        if nothing is left.
        """
        if job.budget is None:
            return None
        today = BudgetUse(key_id=job.budget.key_id, day=day_of(self._clock()))
        use = job.budget if job.budget.day else today
        reservation = self._charged(job, _name_of(use), attempt)
        if reservation is None:
            use = today
            self._reserve(use, job)
            reservation = self._charged(job, _name_of(use), attempt)
        left = reservation.left if reservation else {}
        if reservation is None or any(amount <= 0 for amount in left.values()):
            spent = ", ".join(_unit(name) for name, amount in left.items() if amount <= 0)
            raise BudgetSpentError(f"its share of the key's budget is spent ({spent or 'all'})", _ASK_AGAIN)
        return use, left

    def close(self, job: Job) -> None:
        """Give back what the ended job has not used. May be repeated."""
        if job.budget and job.budget.day:
            self._close(job, _name_of(job.budget))

    def _charged(self, job: Job, name: str, posted: int | None = None) -> Reservation | None:
        """The job's reservation, after the use of its last attempt was subtracted; `None` if it has no reservation.
        Nothing is subtracted for the attempt that is about to be `posted`.
        """
        for _ in range(_TRIES):
            reservation = self._day(name).open.get(job.id)
            last = job.current
            if reservation is None or last is None or last.attempt == posted:
                return reservation
            if last.attempt <= reservation.attempt:
                return reservation
            charged = Reservation(at=reservation.at, left=_after(last, reservation.left), attempt=last.attempt)
            self._replace(name, job.id, reservation, charged)
        raise BudgetSpentError("other processes keep changing its reservation", _ASK_AGAIN)

    def _close(self, job: Job, name: str) -> None:
        for _ in range(_TRIES):
            reservation = self._charged(job, name)
            if reservation is None or self._remove(name, job.id, reservation, reservation.left):
                return

    @state_change("budgets.charge")
    def _replace(self, name: str, job_id: str, old: Reservation, new: Reservation) -> None:
        self._days.update_one(_as_read(name, job_id, old), {"$set": {f"open.{job_id}": new.model_dump()}})

    @state_change("budgets.give_back")
    def _remove(self, name: str, job_id: str, old: Reservation, rest: Amounts) -> bool:
        change: Document = {"$unset": {f"open.{job_id}": ""}}
        if given := {f"used.{one}": -amount for one, amount in rest.items() if amount}:
            change["$inc"] = given
        return self._days.update_one(_as_read(name, job_id, old), change).modified_count == 1

    @state_change("budgets.forget")
    def forget(self, before: datetime, limit: int) -> int:
        """Delete up to `limit` documents of days before this time. Returns how many were deleted."""
        found = [one["_id"] for one in self._days.find({"day": {"$lt": before}}, {"_id": 1}, limit=limit)]
        return Repeating(self._days).delete_many({"_id": {"$in": found}}).deleted_count if found else 0

    # --- to read

    def _day(self, name: str) -> BudgetDay:
        found = self._documents.find_one({"_id": name})
        return found or BudgetDay(id=name, key_id=name.partition("/")[0], day=day_of(self._clock()))

    def _limits(self, key_id: str) -> Amounts:
        """The amounts of the key's budget. Raises `BudgetSpentError` if the key is not valid any more."""
        found = self._keys.find_one({"_id": key_id}, {"budget": 1, "revoked_at": 1, "expires_at": 1})
        if (
            found is None
            or "budget" not in found
            or found.get("revoked_at")
            or self._is_past(found.get("expires_at"))
        ):
            raise BudgetSpentError(f"the key {key_id}, whose budget it uses, is not valid any more", _ASK_AGAIN)
        return KeyBudget.model_validate(found["budget"], extra="ignore").amounts

    def _is_past(self, moment: datetime | None) -> bool:
        return moment is not None and moment <= self._clock()


def _as_read(name: str, job_id: str, reservation: Reservation) -> Document:
    """A query that finds the day's document if nobody has changed the reservation since it was read."""
    return {"_id": name, f"open.{job_id}.at": reservation.at, f"open.{job_id}.attempt": reservation.attempt}


def _use_of(document: Document) -> tuple[object, object]:
    use = document.get("budget") or {}
    return use.get("key_id"), use.get("day")


def _name(key_id: str, day: datetime) -> str:
    return f"{key_id}/{day:%Y-%m-%d}"


def _name_of(use: BudgetUse) -> str:
    if use.day is None:
        raise ValueError("nothing is reserved for it yet")
    return _name(use.key_id, use.day)


def _unit(name: Resource) -> str:
    return "minutes" if name == "seconds" else name


def _detail(name: Resource, limit: int, left: int, held: int) -> dict[str, int | str]:
    return {"budget": name, "limit": limit, "left": left, "reserved": held}


def _after(attempt: Attempt, left: Amounts) -> Amounts:
    """What is left after the attempt. An attempt that the node refused has used nothing."""
    end = attempt.exit
    if end is not None and end.refused:
        return left
    return {name: amount - _spent(name, attempt, amount) for name, amount in left.items()}


def _spent(name: Resource, attempt: Attempt, all_of_it: int) -> int:
    """What the attempt has used, by its report. Without a report, it counts as having used everything."""
    end = attempt.exit
    if end is None:
        return all_of_it
    if name == "seconds":
        took = (end.ended_at - end.started_at).total_seconds() if end.started_at and not end.lost else None
        return all_of_it if took is None or took < 0 else min(math.ceil(took), _MOST)
    said = end.report.stats.get(f"{SPENT}{name}") if end.report else None
    return min(said, _MOST) if type(said) is int and said >= 0 else all_of_it
