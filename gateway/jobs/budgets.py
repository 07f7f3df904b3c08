"""Budgets of keys: how much all crawls of one key together may take on one day, by UTC.

A document per key and day has what is `used`: what ended crawls have taken, and all that is reserved for those that
have not ended. A crawl is admitted by one compare-and-set on it, which also notes the reservation under the job's id.
So a crawl has one reservation, however often a request is repeated, and there is no moment at which it has taken its
share and nobody knows for whom. The reservation is the truth: an attempt is given what is left of it, and none is
handed to a node without. So a job whose reservation got lost, or that was inserted long after it, takes a new one or
does not run.

What an attempt has taken is taken off the reservation before the next one is handed over, and at the job's end; an
attempt that does not say what it has taken has taken all. Then the rest is given back.
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

#: How long the documents are kept: a paused job may still have a reservation, and people look back.
BUDGETS_KEPT = timedelta(days=60)
#: How many crawls of a key may have a reservation at once: they are in one document.
MOST_OPEN = 1000
#: A reservation that is older and has no job was left by a process that died, and is given back.
LEFT_OVER = timedelta(minutes=1)
#: Seconds after which to ask again for what another crawl has reserved and may give back.
_ASK_AGAIN = 60
_DAY = timedelta(days=1)
#: How often a document that others change is tried.
_TRIES = 50
#: More than this is not counted for an attempt: its report may be the work of a spider.
_MOST = 1 << 50


def in_minutes(amounts: Amounts) -> dict[str, int]:
    """The amounts as a budget has them: in whole minutes, and none below 0."""
    seconds = {"minutes": amounts["seconds"] // 60} if "seconds" in amounts else {}
    shown = {name: amount for name, amount in amounts.items() if name != "seconds"} | seconds
    return {name: max(0, amount) for name, amount in shown.items()}


class Reservation(BaseModel):
    at: datetime
    #: What is left of it for attempts to come.
    left: Amounts
    #: The last attempt that was taken off.
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
    #: What ended crawls have taken and what is reserved for others.
    used: Amounts
    reserved: Amounts
    #: When the next day begins.
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
        """The job as it is to be inserted within the block, with its reservation. If it is not inserted, that is
        given back. Raises `BudgetSpentError`, `InvalidRequestError`.
        """
        job = self.reserve(job)
        try:
            yield job
        except Exception:
            self._give_back_unless_there(job)
            raise

    def reserve(self, job: Job) -> Job:
        """The job with its reservation of today; a job without a budget as it is. Raises as `reserved`."""
        if job.budget is None:
            return job
        use = BudgetUse(key_id=job.budget.key_id, day=day_of(self._clock()))
        self._reserve(use, job)
        return job.model_copy(update={"budget": use})

    def require(self, key_id: str | None, spec: CrawlSpec) -> None:
        """Raises as `reserved`, and reserves nothing."""
        if key_id is not None:
            limits, day = self._limits(key_id), self._day(_name(key_id, day_of(self._clock())))
            self._share(limits, day, spec)

    def left(self, budgets: Mapping[str, KeyBudget]) -> dict[str, BudgetLeft]:
        """How much of their budgets these keys have today, by their ids."""
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
        """What the crawl reserves: its own limits, or all that is left. Raises as `reserved`."""
        if spec.renders and {"hosts", "bytes"} & limits.keys():
            message = "render: a browser's hosts and bytes are not counted, and the key has a budget of them"
            raise InvalidRequestError("params", message)
        if len(day.open) >= MOST_OPEN:
            raise BudgetSpentError(f"{len(day.open)} crawls of this key have not ended", _ASK_AGAIN)
        share: Amounts = {}
        for name, limit in limits.items():
            left = limit - day.used.get(name, 0)
            # each crawl has a timeout, by default a long one
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
        # all the day's crawls together can give back no more than this
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
        """Reserve the share, if the budget has room for it still. It may be repeated: a job has one reservation."""
        room: Document = {"_id": name, f"open.{job_id}": {"$exists": False}}
        for one, amount in share.items():
            room[f"used.{one}"] = {"$lte": limits[one] - amount}
        reservation = Reservation(at=self._clock(), left=share).model_dump()
        change: Document = {"$set": {f"open.{job_id}": reservation}}
        if share:
            change["$inc"] = {f"used.{one}": amount for one, amount in share.items()}
        return Repeating(self._days).update_one(room, change).modified_count == 1

    def _give_back_unless_there(self, job: Job) -> None:
        """After an insertion that failed. If the job is there all the same, or is inserted later by another process
        that has found the reservation, it needs one: see `allowance`.
        """
        if (use := job.budget) is None or use.day is None:
            return
        # what another process has inserted may take from another day, or from another key's budget
        same = {"_id": job.id, "budget.key_id": use.key_id, "budget.day": use.day}
        if self._jobs.collection.find_one(same, {"_id": 1}) is None:
            day = self._day(_name_of(use))
            if (reservation := day.open.get(job.id)) is not None:
                self._remove(day.id, job.id, reservation, reservation.left)

    def _reclaim(self, day: BudgetDay) -> bool:
        """Give back old reservations whose jobs are not there, or are settled. Returns whether there was one."""
        jobs, before = self._jobs.collection, self._clock() - LEFT_OVER
        old = [job_id for job_id, one in day.open.items() if one.at < before]
        found = jobs.find({"_id": {"$in": old}}, {"settled": 1, "budget": 1})
        # one for later has noted no day until it is handed over
        mine = {(day.key_id, day.day), (day.key_id, None)}
        there = {one["_id"]: one.get("settled") for one in found if _use_of(one) in mine}
        gone = [job_id for job_id in old if job_id not in there]
        for job_id in gone:
            self._remove(day.id, job_id, day.open[job_id], day.open[job_id].left)
        # only a release that knows no budgets settles a job without this
        settled = [job_id for job_id in there if there[job_id]]
        for job in self._jobs.many(jobs.find({"_id": {"$in": settled}})):
            self._close(job, day.id)
        return bool(gone or settled)

    # --- to run and to end

    def allowance(self, job: Job, attempt: int) -> tuple[BudgetUse, Amounts] | None:
        """What this attempt of the job may take, and where that is reserved; `None` without a budget. Repeated for
        the same attempt it gives the same, also once its node has it. Raises `BudgetSpentError` if there is nothing
        for it.
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
            raise BudgetSpentError(f"what its key's budget had for it is spent ({spent or 'all'})", _ASK_AGAIN)
        return use, left

    def close(self, job: Job) -> None:
        """Give back what the ended job has not taken. It may be repeated."""
        if job.budget and job.budget.day:
            self._close(job, _name_of(job.budget))

    def _charged(self, job: Job, name: str, posted: int | None = None) -> Reservation | None:
        """The job's reservation, off which its last attempt is taken, unless that is the one to be `posted`; `None`
        if it has none.
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
        raise BudgetSpentError("its reservation is changed all the time", _ASK_AGAIN)

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
        """Delete up to `limit` days before then. Returns how many."""
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
            raise BudgetSpentError(f"the key {key_id}, whose budget it takes, is not valid any more", _ASK_AGAIN)
        return KeyBudget.model_validate(found["budget"], extra="ignore").amounts

    def _is_past(self, moment: datetime | None) -> bool:
        return moment is not None and moment <= self._clock()


def _as_read(name: str, job_id: str, reservation: Reservation) -> Document:
    """Finds the day if nobody has changed the reservation since it was read."""
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
    """What is left after the attempt. One that was not started has taken nothing."""
    end = attempt.exit
    if end is not None and end.refused:
        return left
    return {name: amount - _spent(name, attempt, amount) for name, amount in left.items()}


def _spent(name: Resource, attempt: Attempt, all_of_it: int) -> int:
    """What the attempt has taken, by its report; without one it has taken all."""
    end = attempt.exit
    if end is None:
        return all_of_it
    if name == "seconds":
        took = (end.ended_at - end.started_at).total_seconds() if end.started_at and not end.lost else None
        return all_of_it if took is None or took < 0 else min(math.ceil(took), _MOST)
    said = end.report.stats.get(f"{SPENT}{name}") if end.report else None
    return min(said, _MOST) if type(said) is int and said >= 0 else all_of_it
