"""Tells endpoints that ask for it how many items running crawls have: at most once a second for each.

There is nothing to remember. A node tells of its crawls' counts once a second, and an event is named by the job and
the count, so that workers that see the same count tell of it once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from attrs import define, field

from gateway.clock import Clock, utc_now
from gateway.jobs.queries import JobQueries
from gateway.signals.deliveries import DeliveryStore
from gateway.signals.endpoints import Endpoint, EndpointStore, deliveries_of
from gateway.signals.events import EventType, event_of_items

#: Seconds between two looks; and while no endpoint asks for it.
EVERY_SECONDS, REST_SECONDS = 1.0, 5.0
#: Most running jobs that one look tells of, of each user or of all.
JOBS = 500
#: Most counts that are remembered as told: only a help, because whoever tells again changes nothing.
_REMEMBERED = 5000


@define(eq=False, repr=False, slots=False, kw_only=True)
class ItemBatches:
    _queries: JobQueries
    _deliveries: DeliveryStore
    _endpoints: EndpointStore
    _public_url: str = ""
    _clock: Clock = utc_now
    _monotonic: Callable[[], float] = time.monotonic
    _look_at: float = field(init=False, default=float("-inf"))
    #: By job: its count that was told last.
    _told: dict[str, int] = field(init=False, factory=dict)

    def look(self) -> None:
        """To be called often. Raises PyMongo's errors."""
        if self._monotonic() < self._look_at:
            return
        asking = [one for one in self._endpoints.naming(EventType.ITEMS_BATCH) if one.is_active]
        self._look_at = self._monotonic() + (EVERY_SECONDS if asking else REST_SECONDS)
        whose = [None] if any(one.of_all_users for one in asking) else sorted({one.user_id for one in asking})
        for user_id in whose:
            self._tell(user_id, asking)

    def _tell(self, user_id: str | None, asking: Sequence[Endpoint]) -> None:
        now = self._clock()
        for job in self._queries.running_counts(JOBS, user_id):
            if job.items and self._told.get(job.id) != job.items:
                event = event_of_items(job, now, self._public_url)
                self._deliveries.add(list(deliveries_of(event, asking, now)))
                self._told[job.id] = job.items
        for forgotten in list(self._told)[: max(0, len(self._told) - _REMEMBERED)]:
            del self._told[forgotten]
