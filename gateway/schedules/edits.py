"""Edits of schedules. Once the gateway has answered an edit, no run of an older revision begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import datetime
from typing import Any, NamedTuple

from attrs import define
from pydantic import BaseModel

from gateway import errors
from gateway.clock import Clock, to_iso, utc_now
from gateway.contract.crawl import CrawlSpec
from gateway.jobs.admission import Admission
from gateway.jobs.dedupe import fingerprint
from gateway.jobs.job import CrawlOrder, Job
from gateway.jobs.outcome import CANCELLED
from gateway.jobs.store import MAX_WEBHOOKS, JobStore
from gateway.projects.catalog import WorkCheck, unpinned
from gateway.schedules.firing import Promotion
from gateway.schedules.next_run import LAST_YEAR, check_timing, first
from gateway.schedules.occurrences import OccurrenceStore, ending
from gateway.schedules.orders import NOTHING_TO_RUN, RunOrder, RunOrders, job_by_hand
from gateway.schedules.schedule import Overlap, Schedule, ScheduleState, Timing
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.stores.mongo import Document, mongo_errors

#: How often edits and beats may overtake each other; more often would mean that something else is wrong.
_MAX_ROUNDS = 20
_EDITABLE = frozenset(
    {"name", "crawl", "timing", "overlap", "catch_up", "max_runs", "fingerprint", "live_key", "budget_key"}
)


@define(eq=False, repr=False, slots=False, kw_only=True)
class ScheduleEdits:
    """Edits schedules. Each method raises `ScheduleNotFoundError`."""

    _schedules: ScheduleStore
    _occurrences: OccurrenceStore
    _ledger: LedgerStore
    _jobs: JobStore
    _promotion: Promotion
    _orders: RunOrders
    _admission: Admission | None = None
    _clock: Clock = utc_now

    def edit(self, schedule_id: str, changes: dict[str, Any], *, rev: int | None = None) -> Schedule:
        """Change the schedule. `changes` are values by field names of `Schedule`: `name`, `crawl`, `timing`,
        `overlap`, `catch_up`, `max_runs`, `fingerprint`, `live_key`, `budget_key`; `None` removes the field. With
        `rev`, the edit is made only if the schedule is still in that revision. Occurrences stay, even those that are
        due, unless the timing changes.

        Raises `InvalidRequestError`, `LiveTwinError`, `ScheduleChangedError` if the schedule is no longer in revision
        `rev`, and `ScheduleEndedError` if it has ended.
        """
        unknown = changes.keys() - _EDITABLE
        if unknown:
            raise ValueError(f"cannot be edited: {sorted(unknown)}")

        def edited(schedule: Schedule) -> Document:
            if rev is not None and schedule.rev != rev:
                raise errors.ScheduleChangedError(f"the schedule has changed; its revision is {schedule.rev} now")
            return self._edited(schedule, changes)

        return self._change(schedule_id, edited)

    def pause(self, schedule_id: str) -> Schedule:
        """Pause the schedule, unless it is paused already. Raises `ScheduleEndedError`."""

        def paused(schedule: Schedule) -> Document | None:
            if schedule.state is ScheduleState.PAUSED:
                return None
            return {"state": ScheduleState.PAUSED, "next_at": None, "next_run": None, **_other_occurrences(schedule)}

        return self._change(schedule_id, paused)

    def resume(self, schedule_id: str, budget_key: str | None = None) -> Schedule:
        """Go on with the first occurrence after now, from the budget of this key if there is one. Raises
        `ScheduleEndedError`, also if no occurrence is left.
        """

        def resumed(schedule: Schedule) -> Document | None:
            if schedule.state is ScheduleState.ACTIVE:
                return None
            occurrence = self._first_occurrence(schedule.id, schedule.timing)
            budget = {"budget_key": budget_key} if budget_key else {}
            return {"state": ScheduleState.ACTIVE, **budget, **occurrence, **_other_occurrences(schedule)}

        return self._change(schedule_id, resumed)

    def cancel(self, schedule_id: str) -> Schedule:
        """End the schedule, unless it has ended already."""

        def cancelled(schedule: Schedule) -> Document | None:
            if schedule.state is ScheduleState.ENDED:
                return None
            return {**ending(CANCELLED.message), "reason": CANCELLED.reason, **_other_occurrences(schedule)}

        return self._change(schedule_id, cancelled, also_ended=True)

    def delete(self, schedule_id: str) -> None:
        """Delete the schedule and its ledger; its jobs stay."""
        if not self._schedules.delete(schedule_id):
            # another request may have deleted it and died before the next step
            self._settle([schedule_id])
            self._schedules.get(schedule_id)
        self._settle([schedule_id])
        self._ledger.delete(schedule_id)

    def run_now(self, schedule_id: str, budget_key: str | None = None) -> Job:
        """Start a run in addition to the occurrences, from the budget of this key if there is one. Raises
        `ConflictError` if the schedule would skip an occurrence now; `TooManyError`.
        """
        for _ in range(_MAX_ROUNDS):
            schedule, order = self._may_run(schedule_id)
            job = job_by_hand(schedule, order, self._clock(), budget_key)
            with (
                self._admission.room_by_hand(job.user_id) if self._admission else nullcontext(),
                self._jobs.budgets.reserved(job) as admitted,
            ):
                if self._occurrences.insert([admitted]):
                    raise errors.ConflictError("a run that another caller has just started has not ended")
            self._promotion.settle([admitted])
            with suppress(errors.JobNotFoundError):
                started = self._jobs.get(job.id)
                self._schedules.note_run(schedule, job.id, job.created_at)
                return started
            # the schedule has changed, and the run was removed because of that
        raise errors.ConflictError("the schedule is being changed over and over; ask again")

    def _may_run(self, schedule_id: str) -> tuple[Schedule, RunOrder]:
        schedule = self._schedules.get(schedule_id)
        if schedule.state is ScheduleState.ENDED:
            raise errors.ScheduleEndedError(_ended(schedule))
        order = self._orders.orders([schedule]).get(schedule_id)
        if order is None or order.skip:
            raise errors.ConflictError(order.skip if order and order.skip else NOTHING_TO_RUN)
        if schedule.overlap is Overlap.SKIP and (live := self._occurrences.live([schedule_id])):
            raise errors.ConflictError(f"the previous run, {live[0].job_id}, has not ended ({live[0].status})")
        return schedule, order

    def touch(self, *, site: str | None = None, target: str | None = None) -> None:
        """Note that the content of these schedules' runs has changed. After this call no run begins with the old
        content.
        """
        if touched := self._schedules.touch(site=site, target=target):
            self._settle(touched)

    def _edited(self, schedule: Schedule, changes: dict[str, Any]) -> Document:
        most = changes.get("max_runs")
        if most is not None and most <= schedule.runs:
            raise errors.InvalidRequestError("max_runs", f"it has run {schedule.runs} times already")
        timing: Timing = changes.get("timing", schedule.timing)
        stored = {
            name: value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value
            for name, value in changes.items()
        } | _moved(schedule, changes.get("crawl"))
        if timing == schedule.timing:
            return stored
        check_timing(timing, self._clock())
        is_active = schedule.state is ScheduleState.ACTIVE
        return {
            **stored,
            **(self._first_occurrence(schedule.id, timing) if is_active else {}),
            **_other_occurrences(schedule),
        }

    def _first_occurrence(self, schedule_id: str, timing: Timing) -> dict[str, datetime]:
        moment = first(schedule_id, timing, self._clock())
        if moment is None:
            raise errors.ScheduleEndedError("no runs left before its end date")
        return {"next_at": moment.at, "next_run": moment.due}

    def _change(
        self, schedule_id: str, decide: Callable[[Schedule], Document | None], *, also_ended: bool = False
    ) -> Schedule:
        """Make the changes that `decide` returns; it returns `None` if an earlier request, which may have died since,
        has made them.
        """
        for _ in range(_MAX_ROUNDS):
            schedule = self._schedules.get(schedule_id)
            if schedule.state is ScheduleState.ENDED and not also_ended:
                raise errors.ScheduleEndedError(_ended(schedule))
            changes = decide(schedule)
            if changes is None or self._schedules.change(schedule, changes):
                self._settle([schedule_id])
                return self._schedules.get(schedule_id)
        raise errors.ConflictError("the schedule is being changed over and over; ask again")

    def _settle(self, schedule_ids: Sequence[str]) -> None:
        """Settle the present held occurrences: each is removed, or runs with the schedule's present content."""
        for _ in range(_MAX_ROUNDS):
            if not self._promotion.settle(self._occurrences.held(schedule_ids)).left:
                return
        raise errors.ConflictError("the schedule is being fired over and over; ask again")


def _moved(schedule: Schedule, crawl: CrawlOrder | None) -> Document:
    if crawl is None or schedule.crawl is None or crawl.spec.project == schedule.crawl.spec.project:
        return {}
    earlier = {schedule.crawl.spec.project, *(schedule.moved_from or "").split(",")} - {"", crawl.spec.project}
    return {"moved_from": ",".join(sorted(earlier))}


def _other_occurrences(schedule: Schedule) -> Document:
    return {"timing_rev": schedule.rev + 1}


def _ended(schedule: Schedule) -> str:
    return "the schedule has ended" + (f": {schedule.message}" if schedule.message else "")


# --- changes of a schedule that a client asks for: they are checked together, then made in one step


class Change(NamedTuple):
    """The values to replace, by the field names of the models."""

    schedule: dict[str, Any]
    timing: dict[str, Any]
    order: dict[str, Any]
    spec: dict[str, Any]
    #: Make the change only if the schedule is in this revision.
    rev: int | None = None
    #: The caller's key, if it has a budget: from then on the schedule's runs use that budget.
    budget_key: str | None = None


@define(eq=False, repr=False, slots=False, kw_only=True)
class ScheduleChanges:
    """Changes that clients ask for. Each method raises `ScheduleNotFoundError`, `UnavailableError`; and
    `ConflictError` for the schedule of a site or a target, because only its site or target may change it.
    """

    _schedules: ScheduleStore
    _edits: ScheduleEdits
    _check: WorkCheck
    _clock: Clock = utc_now

    def apply(self, schedule_id: str, change: Change) -> Schedule:
        """Make the change, and return the schedule. Raises `InvalidRequestError`, `ForbiddenAddressError`,
        `LiveTwinError`, `ScheduleChangedError`, `ScheduleEndedError`.
        """
        return self._edit(schedule_id, lambda schedule: self._changes(schedule, change), change.rev)

    def pause(self, schedule_id: str) -> Schedule:
        return self._own(schedule_id, self._edits.pause)

    def resume(self, schedule_id: str, budget_key: str | None = None) -> Schedule:
        return self._own(schedule_id, lambda own: self._edits.resume(own, budget_key))

    def run_now(self, schedule_id: str, budget_key: str | None = None) -> Job:
        """Start a run now. This is also allowed for the schedule of a site, as it does not change the schedule."""
        with mongo_errors():
            return self._edits.run_now(schedule_id, budget_key)

    def cancel(self, schedule_id: str) -> Schedule:
        """End the schedule, so that no further run begins. A schedule that was cancelled before is returned as it is,
        because a client that got no answer asks again.

        Raises `ScheduleEndedError` if the schedule has ended otherwise.
        """
        schedule = self._own(schedule_id, self._schedules.get)
        if schedule.state is ScheduleState.ENDED and not schedule.is_cancelled:
            raise errors.ScheduleEndedError("the schedule has ended already")
        with mongo_errors():
            return self._edits.cancel(schedule_id)

    def delete(self, schedule_id: str, *, only_ended: bool = False) -> None:
        """Delete the schedule and its history. With `only_ended`, raises `ConflictError` if it has not ended."""
        schedule = self._own(schedule_id, self._schedules.get)
        if only_ended and schedule.state is not ScheduleState.ENDED:
            raise errors.ConflictError("only a schedule that has ended can be deleted here")
        with mongo_errors():
            self._edits.delete(schedule_id)

    def add_webhook(self, schedule_id: str, url: str) -> Schedule:
        """Add a webhook that is called at the end of each run, up to `MAX_WEBHOOKS`."""
        return self._edit(schedule_id, lambda schedule: _with_webhook(schedule, url))

    def _own(self, schedule_id: str, act: Callable[[str], Schedule]) -> Schedule:
        with mongo_errors():
            require_own(self._schedules.get(schedule_id))
            return act(schedule_id)

    def _edit(
        self, schedule_id: str, changes_of: Callable[[Schedule], dict[str, Any]], rev: int | None = None
    ) -> Schedule:
        """Edit only the revision that was read, so that no other change is undone."""
        with mongo_errors():
            for _ in range(_MAX_ROUNDS):
                schedule = self._schedules.get(schedule_id)
                if rev is not None and schedule.rev != rev:
                    raise errors.ScheduleChangedError(
                        f"rev: the schedule has changed; its revision is {schedule.rev} now"
                    )
                changes = changes_of(schedule)
                if not changes:
                    return schedule
                try:
                    return self._edits.edit(schedule_id, changes, rev=schedule.rev)
                except errors.ScheduleChangedError:
                    continue
        raise errors.ConflictError("the schedule is being changed over and over; ask again")

    def _changes(self, schedule: Schedule, change: Change) -> dict[str, Any]:
        old_crawl = require_own(schedule)
        timing = schedule.timing.model_copy(update=_timing(schedule, change))
        crawl = old_crawl.model_copy(update={**change.order, "spec": self._spec(old_crawl.spec, change.spec)})
        if timing != schedule.timing:
            now = self._clock()
            if change.timing.get("starts_at") is not None and timing.starts_at != schedule.timing.starts_at:
                check_ahead(timing.starts_at, now)
            check_timing(timing, now)
        if crawl != old_crawl:
            crawl = self._checked(crawl)
        if (most := change.schedule.get("max_runs")) is not None and most <= schedule.runs:
            raise errors.InvalidRequestError(
                "max_runs", f"must be more than {schedule.runs}, the number of its runs so far"
            )
        wanted = {
            **change.schedule,
            "timing": timing,
            "crawl": crawl,
            "live_key": schedule.live_key and identity_of(schedule, timing, crawl.spec),
            "budget_key": change.budget_key or schedule.budget_key,
        }
        return {name: value for name, value in wanted.items() if value != getattr(schedule, name)}

    def _spec(self, spec: CrawlSpec, changes: dict[str, Any]) -> CrawlSpec:
        if changes.get("project", spec.project) != spec.project:
            # the new project does not have the versions of the old one
            changes = {"version": None, **changes}
        return spec.model_copy(update=changes)

    def _checked(self, crawl: CrawlOrder) -> CrawlOrder:
        self._check.addresses(crawl.spec, crawl.webhooks)
        pinned = self._check.pin(crawl.spec)
        self._check.means(pinned)
        return crawl.model_copy(update={"spec": unpinned(crawl.spec, pinned)})


def _timing(schedule: Schedule, change: Change) -> dict[str, Any]:
    if change.timing.get("starts_at", schedule) is None:
        return {**change.timing, "starts_at": schedule.created_at}
    return change.timing


def check_ahead(schedule_at: datetime, now: datetime) -> None:
    """Raises `InvalidRequestError` if the time is not in the future, or too far ahead."""
    if schedule_at <= now:
        raise errors.InvalidRequestError("schedule_at", f"must be in the future; it is {to_iso(now)} now")
    if schedule_at.year >= LAST_YEAR:
        raise errors.InvalidRequestError("schedule_at", f"must be before the year {LAST_YEAR}")


def require_own(schedule: Schedule) -> CrawlOrder:
    """The order of the schedule. Raises `ConflictError` if the schedule belongs to a site or one of its targets."""
    if schedule.crawl is None:
        kept_by = f"target {schedule.target!r} of site" if schedule.target else "site"
        raise errors.ConflictError(f"this schedule belongs to {kept_by} {schedule.site!r}: change that instead")
    return schedule.crawl


def when_identity(timing: Timing, schedule_at: datetime | None) -> dict[str, str]:
    """The times that distinguish two requests. Jitter and the end date do not."""
    asked = {"schedule_at": to_iso(schedule_at)} if schedule_at else {}
    return {"interval": timing.interval, "timezone": timing.timezone, **asked}


def identity_of(schedule: Schedule, timing: Timing, spec: CrawlSpec) -> str:
    # without `schedule_at` in the request, the schedule starts when it was created
    schedule_at = None if timing.starts_at == schedule.created_at else timing.starts_at
    return fingerprint(schedule.user_id, spec, when=when_identity(timing, schedule_at))


def _with_webhook(schedule: Schedule, url: str) -> dict[str, Any]:
    crawl = require_own(schedule)
    if url in crawl.webhooks or len(crawl.webhooks) >= MAX_WEBHOOKS:
        return {}
    return {"crawl": crawl.model_copy(update={"webhooks": (*crawl.webhooks, url)})}
