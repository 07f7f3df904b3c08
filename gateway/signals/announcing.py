"""Makes the deliveries for events of jobs: for the webhooks that were named with a crawl, and for the endpoints that
ask for these events. Ended jobs are also added to the daily sums and to the groups of their errors.

The `signals` of a job are the events that are not announced yet. The id of a delivery is made from the event and the
receiver, so any number of workers may announce the same event, and may die in between. Each sum stores which jobs it
contains, so a job is added only once (`added_once.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import groupby

import orjson
import structlog
from attrs import define, field

from gateway.clock import Clock, to_iso, utc_now
from gateway.error_groups.ended_runs import EndedRuns
from gateway.jobs.job import Job, Turn
from gateway.jobs.messages import about
from gateway.jobs.store import JobStore
from gateway.schedules.schedule import GRACE_SECONDS, LedgerKind
from gateway.schedules.store import LedgerStore, ScheduleStore
from gateway.signals.alerting import Alerting, apart
from gateway.signals.delivery_store import Delivery, DeliveryStore
from gateway.signals.endpoints import Endpoint, EndpointStore, deliveries_of
from gateway.signals.events import Subject, event_of_occurrence, events_of, subject_of, subject_of_schedule
from gateway.signals.run_figures import ComparedRun

log = structlog.get_logger()

#: One call of `look` visits about this many users, and reads at most this many jobs at once.
USERS, JOBS = 50, 200
#: Jobs that are announced together, and seconds after which it is the next user's turn: jobs of a user with many
#: alert rules take longer.
_AT_ONCE, _TURN = 25, 1.0
#: Seconds between two looks for calls that a release before this one was to make.
_ADOPT = 15.0
#: Seconds after which a job whose deliveries could not be made is tried again.
AGAIN_SECONDS = 60.0
#: The event type of calls to webhooks that were named with a crawl.
ENDED = "job.ended"


@define(eq=False, repr=False, slots=False, kw_only=True)
class Announcing:
    _jobs: JobStore
    _deliveries: DeliveryStore
    _endpoints: EndpointStore
    _ledger: LedgerStore
    _schedules: ScheduleStore
    _alerting: Alerting
    _ended: EndedRuns
    _public_url: str = ""
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    #: The last user that was visited. The next call of `look` continues after this user.
    _seen: str = field(init=False, default="")
    #: When calls of an older release were last looked for (monotonic).
    _adopted_at: float = field(init=False, default=float("-inf"))
    #: Whether a user up to `_seen` has more jobs to announce.
    _left: bool = field(init=False, default=False)

    def look(self) -> bool:
        """Announce what is due. Returns whether something may be left. Raises PyMongo's errors."""
        if not self._seen:
            self._left = False
            with apart("calls_not_adopted"):
                self._adopt()
            with apart("occurrences_not_announced"):
                self._left = self._announce_occurrences()
        users = 0
        while users < USERS:
            found = self._jobs.to_announce(self._seen, JOBS)
            for user_id, jobs in groupby(found, key=lambda job: job.user_id):
                # set before announcing: if that fails for this user, the next round still goes on with the next user
                self._seen = user_id
                self._left |= self._announce(user_id, list(jobs))
                users += 1
            if len(found) < JOBS:
                self._seen = ""
                return self._left
            # the last user may have more
            self._left = True
        return True

    def _adopt(self) -> None:
        """Take over what a release before this one was to call: its workers may end jobs until they are replaced."""
        if self._monotonic() - self._adopted_at >= _ADOPT and not self._jobs.adopt_calls(JOBS):
            self._adopted_at = self._monotonic()

    def _announce(self, user_id: str, jobs: Sequence[Job]) -> bool:
        """Whether the user has more of these jobs than one look takes."""
        endpoints = self._endpoints.told_of(user_id)
        began = self._monotonic()
        for first in range(0, len(jobs), _AT_ONCE):
            if first and self._monotonic() - began >= _TURN:
                return True
            self._announce_some(user_id, jobs[first : first + _AT_ONCE], endpoints)
        return False

    def _announce_some(self, user_id: str, jobs: Sequence[Job], endpoints: Sequence[Endpoint]) -> None:
        made: list[Delivery] = []
        done: list[Job] = []
        for job in jobs:
            try:
                made += self._of(job, endpoints)
            except Exception:
                # an error of one job does not stop the others
                with about(job):
                    log.exception("not_announced")
                self._jobs.announce_later(job.id, AGAIN_SECONDS)
            else:
                done.append(job)
        self._deliveries.add(made)
        added = self._ended.add(done)
        # the jobs need their number of new errors, because alert rules may be about it
        done = [job.model_copy(update={"new_errors": added.new_errors.get(job.id)}) for job in done]
        ended = [job for job in done if any(signal.turn is Turn.ENDED for signal in job.signals)]
        figures = ((subject_of(job), ComparedRun.of(job)) for job in ended)
        self._alerting.noted(user_id, [(subject, one) for subject, one in figures if one is not None])
        for job_id in added.left:
            self._jobs.announce_later(job_id, AGAIN_SECONDS)
        self._jobs.announced([job for job in done if job.id not in added.left])

    def _announce_occurrences(self) -> bool:
        """Announce occurrences of schedules that did not run, or ran late. Returns whether there may be more."""
        now = self._clock()
        entries = self._ledger.to_announce(now, JOBS)
        found = self._schedules.read({entry.schedule_id for entry in entries}).schedules if entries else []
        schedules = {one.id: one for one in found}
        listening: dict[str, list[Endpoint]] = {}
        noted: dict[str, list[tuple[Subject, ComparedRun]]] = {}
        made: list[Delivery] = []
        for entry in entries:
            # not announced: an occurrence of a deleted schedule, and an occurrence that another beat took for skipped
            # although it ran in time
            in_time = entry.kind is LedgerKind.FIRED and entry.late_by_seconds <= GRACE_SECONDS
            if (schedule := schedules.get(entry.schedule_id)) is None or in_time:
                continue
            user = schedule.user_id
            if user not in listening:
                listening[user] = self._endpoints.told_of(user)
            with apart("occurrence_not_announced", schedule=schedule.id):
                event = event_of_occurrence(entry, schedule, self._public_url)
                made += deliveries_of(event, listening[user], now)
                # alert rules check an occurrence that ran when its job ends
                if entry.kind is not LedgerKind.FIRED:
                    run = ComparedRun.of_occurrence(entry)
                    noted.setdefault(user, []).append((subject_of_schedule(schedule), run))
        self._deliveries.add(made)
        for user, occurrences in noted.items():
            self._alerting.noted(user, occurrences)
        self._ledger.announced([entry.job_id for entry in entries])
        return len(entries) == JOBS

    def _of(self, job: Job, endpoints: Sequence[Endpoint]) -> Iterator[Delivery]:
        now = self._clock()
        for event in events_of(job, self._public_url) if endpoints else ():
            yield from deliveries_of(event, endpoints, now)
        # events after the end, such as a changed dataset, are sent only to endpoints
        if job.is_final and any(signal.turn in {Turn.ENDED, Turn.WEBHOOK_ADDED} for signal in job.signals):
            yield from (of_webhook(job, url, now) for url in job.webhooks if url not in job.webhooks_delivered)
        again = [signal.url for signal in job.signals if signal.turn is Turn.WEBHOOK_ADDED]
        for url in again:
            # a delivery that failed is sent once more, because a user has asked for it
            self._deliveries.call_again({"_id": of_webhook(job, url or "", now).id, "state": {"$ne": "delivered"}}, 1)


def of_webhook(job: Job, url: str, now: datetime) -> Delivery:
    """The delivery for a webhook that was named with the crawl."""
    return Delivery.new(
        f"msg_{job.id}",
        url,
        now,
        user_id=job.user_id,
        type=ENDED,
        body=message(job),
        url=url,
        job_id=job.id,
        traceparent=job.traceparent,
    )


def message(job: Job) -> str:
    """`{"event": "job.ended", "job_id", "status", "reason", "message", "finished_at", counts…}`; for a schedule's run
    also `schedule_id`, which may be the only id that the receiver knows.
    """
    counts = {"completed_pages", "items_count", "errors_count"}
    return orjson.dumps(
        {
            "event": ENDED,
            "job_id": job.id,
            "status": job.status.value,
            "reason": job.reason,
            "message": job.message,
            "finished_at": to_iso(job.finished_at) if job.finished_at else None,
            **(job.progress.model_dump(include=counts) if job.progress else {}),
            **({"schedule_id": job.schedule_id} if job.schedule_id else {}),
        }
    ).decode()
