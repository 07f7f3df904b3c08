"""Who goes next: of the users who wait for what there is room for, the one that has least; of its jobs, the best.

Of those that have equally much it is the one whose last turn is longest ago. Were it whose job waits longest, users
with few slots between them would have to wait for the whole backlog of whoever came first.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from gateway.domain.clock import Clock, utc_now
from gateway.domain.job import Claim, Job
from gateway.domain.lane import Lane
from gateway.domain.room import Room
from gateway.services.known_lanes import FRESH, KnownLanes
from gateway.services.user_limit import UserLimit
from gateway.storage.job_queue import JobQueue
from gateway.storage.lanes import Head, LaneStore

#: Users whose last turn is remembered.
REMEMBERED = 10_000


class Turns:
    """Of one process: whose turn it was there, and what it knows of the lanes. Nothing need be kept of it: where
    several processes take turns by themselves, all of them together do.
    """

    def __init__(self, queue: JobQueue, lanes: LaneStore, limit: UserLimit, clock: Clock = utc_now) -> None:
        self.queue = queue
        self.lanes = lanes
        self.limit = limit
        self.clock = clock
        self.known = KnownLanes(lanes, clock)
        self._turn = 0
        self._last: dict[str, int] = {}
        self._counting = threading.Lock()

    def look(self) -> Look:
        return Look(self)

    def told(self, job_id: str) -> None:
        """Somebody waits for this job to be looked at."""
        self.known.told(job_id)

    def waiting(self, room: Room) -> Head | None:
        """A job that could be started, if any can."""
        full = self.limit.full()
        heads = self.lanes.heads(self.clock(), room.fits)
        return next((head for head in heads if head.lane.user_id not in full), None)

    def last(self, user_id: str) -> int:
        """The user's last turn, as a running number; 0 if it has had none."""
        return self._last.get(user_id, 0)

    def count(self, user_id: str) -> None:
        """The user has its turn now."""
        with self._counting:
            self._turn += 1
            # the dictionary is in the order of the turns
            self._last.pop(user_id, None)
            self._last[user_id] = self._turn
            if len(self._last) > REMEMBERED:
                del self._last[next(iter(self._last))]


class Look:
    """One filling of slots: who has how many, and who was passed over."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._known = turns.known
        self._read: set[Room] = set()
        self._has: Counter[str] = Counter()
        self._counted_at: datetime | None = None
        self._full: set[str] = set()
        self._passed: set[Lane] = set()

    def claim(self, claim: Claim, room: Room) -> Job | None:
        """The job that goes next of those that fit into `room`, now claimed."""
        while (head := self._best(room)) is not None:
            job = self._turns.queue.claim(claim, head.lane)
            if job is not None:
                self._known.claimed(head.lane)
                return job
            self._known.empty(head.lane)
        return None

    def placed(self, user_id: str) -> None:
        """A job of the user's is on its way to a node."""
        self._has[user_id] += 1
        self._turns.count(user_id)

    def pass_over(self, lane: Lane) -> None:
        """There turned out to be no room for it: not again in this look."""
        self._passed.add(lane)

    def pass_over_user(self, user_id: str) -> None:
        """The user turned out to have all it may have."""
        self._full.add(user_id)

    def _order(self, head: Head) -> tuple[int, int, datetime]:
        user = head.lane.user_id
        return self._has[user], self._turns.last(user), head.rank

    def _may_go(self, lane: Lane) -> bool:
        most = self._turns.limit.most
        is_full = lane.user_id in self._full or (most and self._has[lane.user_id] >= most)
        return not is_full and lane not in self._passed

    def _best(self, room: Room) -> Head | None:
        """Before it says that nobody can go it has looked itself, once."""
        known = self._known.heads(room)
        there = self._that_may_go(known or ())
        if known is None or (not there and room not in self._read):
            self._read.add(room)
            there = self._that_may_go(self._known.read(room))
        return min(there, key=self._order, default=None)

    def _that_may_go(self, heads: Sequence[Head]) -> list[Head]:
        self._count({head.lane.user_id for head in heads})
        return [head for head in heads if self._may_go(head.lane)]

    def _count(self, users: set[str]) -> None:
        """Where one user waits alone, nothing need be counted."""
        now = self._turns.clock()
        if self._counted_at is not None and now - self._counted_at <= FRESH:
            return
        if len(users) > 1 or (users and self._turns.limit.most):
            self._counted_at = now
            self._has = self._turns.lanes.running()
            self._full |= self._turns.limit.full()
