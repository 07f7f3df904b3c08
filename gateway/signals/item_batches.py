"""Tells endpoints that ask for it how many items running crawls have: at most once a second for each.

There is nothing to remember. A node tells of its crawls' counts once a second, and an event is named by the job and
the count, so that workers that see the same count tell of it once. An endpoint that is called more slowly than there
is news is told of less: what waits for it is bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby

from attrs import define, field

from gateway.clock import Clock, utc_now
from gateway.jobs.queries import JobQueries, RunningCount
from gateway.signals.deliveries import Delivery, DeliveryStore
from gateway.signals.endpoints import Endpoint, EndpointStore, deliveries_of
from gateway.signals.events import EventType, event_of_items

#: Seconds between two looks; and while no endpoint asks for it.
EVERY_SECONDS, REST_SECONDS = 1.0, 5.0
#: Running jobs that are read at once, and seconds after which a look ends: the next one goes on.
JOBS, TURN_SECONDS = 250, 0.5
#: Most calls that may wait for one endpoint, those of other events included, before it is told of more.
MOST_WAITING = 500
#: Most counts that are remembered as told: only a help, because whoever tells again changes nothing.
_REMEMBERED = 20_000


@define(eq=False, repr=False, slots=False, kw_only=True)
class ItemBatches:
    _queries: JobQueries
    _deliveries: DeliveryStore
    _endpoints: EndpointStore
    _public_url: str = ""
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    _look_at: float = field(init=False, default=float("-inf"))
    #: The endpoints that ask for it, by user.
    _asking: dict[str, list[Endpoint]] = field(init=False, factory=dict)
    #: The cursor of the next jobs; `None` to begin with the newest.
    _after: str | None = field(init=False, default=None)
    #: By job: its count that was told last.
    _told: dict[str, int] = field(init=False, factory=dict)

    def look(self) -> None:
        """To be called often. Raises PyMongo's errors."""
        if self._monotonic() < self._look_at:
            return
        if self._after is None:
            self._asking = {}
            for one in self._endpoints.naming(EventType.ITEMS_BATCH):
                if one.is_active:
                    self._asking.setdefault(one.user_id, []).append(one)
        self._look_at = self._monotonic() + (EVERY_SECONDS if self._asking else REST_SECONDS)
        of_all = [one for endpoints in self._asking.values() for one in endpoints if one.of_all_users]
        users = None if of_all else list(self._asking)
        until = self._monotonic() + TURN_SECONDS
        while self._asking:
            # whatever becomes of these, the next ones are not the same
            jobs, self._after = self._queries.running_counts(JOBS, users, self._after)
            self._tell(jobs, of_all)
            if self._after is None or self._monotonic() >= until:
                return

    def _tell(self, jobs: Sequence[RunningCount], of_all: Sequence[Endpoint]) -> None:
        now = self._clock()
        changed = [job for job in jobs if job.items and self._told.get(job.id) != job.items]
        made: list[Delivery] = []
        for job in changed:
            event = event_of_items(job, now, self._public_url)
            own = (one for one in self._asking.get(event.user_id, ()) if not one.of_all_users)
            made += deliveries_of(event, [*of_all, *own], now)
        made.sort(key=lambda one: one.endpoint_id or "")
        full: set[str | None] = set()
        for endpoint_id, some in groupby(made, key=lambda one: one.endpoint_id):
            deliveries = list(some)
            room = MOST_WAITING - self._deliveries.waiting_for(deliveries[0].user_id, endpoint_id, MOST_WAITING)
            if room < len(deliveries):
                full.update(one.job_id for one in deliveries[max(0, room) :])
            self._deliveries.add(deliveries[: max(0, room)])
        # the others are told once there is room, with the count that they have then
        self._told |= {job.id: job.items for job in changed if job.id not in full}
        for forgotten in list(self._told)[: max(0, len(self._told) - _REMEMBERED)]:
            del self._told[forgotten]
