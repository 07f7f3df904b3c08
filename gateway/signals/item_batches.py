"""Sends the number of items of running crawls to endpoints that ask for it, at most once a second for each crawl.

Nothing has to be stored. Nodes report the counts of their crawls once a second. The event's id is made from the job
and the count, so workers that see the same count send it only once. A slow endpoint gets fewer events, because the
number of calls that wait for it is limited.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby

from attrs import define, field

from gateway.clock import Clock, utc_now
from gateway.jobs.queries import JobQueries, RunningCount
from gateway.signals.delivery_store import Delivery, DeliveryStore
from gateway.signals.endpoints import Endpoint, EndpointStore, deliveries_of
from gateway.signals.events import EventType, event_of_items

#: Seconds between two rounds, and seconds between them while no endpoint asks for these events.
EVERY_SECONDS, REST_SECONDS = 1.0, 5.0
#: Running jobs that are read at once, and seconds after which a round is interrupted; the next call continues it.
JOBS, TURN_SECONDS = 250, 0.5
#: While this many calls (of any events) wait for an endpoint, it gets no further ones of these events.
MOST_WAITING = 500
#: At most this many counts are remembered as sent. This only saves work: sending a count again changes nothing.
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
    #: By user: the endpoints that ask for these events.
    _asking: dict[str, list[Endpoint]] = field(init=False, factory=dict)
    #: The cursor of the next jobs; `None` to begin with the newest.
    _after: str | None = field(init=False, default=None)
    #: By job: the count that was sent last.
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
            # the cursor moves on even if these jobs cause an error
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
        # the other jobs are sent once there is room, with their count at that time
        self._told |= {job.id: job.items for job in changed if job.id not in full}
        for forgotten in list(self._told)[: max(0, len(self._told) - _REMEMBERED)]:
            del self._told[forgotten]
