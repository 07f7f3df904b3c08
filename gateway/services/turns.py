"""Who goes next: of the users who wait for what there is room for, the one that has least; of its jobs, the best.

Of those that have equally much it is the one whose last turn is longest ago. Were it whose job waits longest, users
with few slots between them would have to wait for the whole backlog of whoever came first.
"""

from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime, timedelta
from itertools import chain, islice, takewhile

from gateway.domain.clock import Clock, utc_now
from gateway.domain.job import Claim, Job
from gateway.domain.lane import Lane
from gateway.domain.room import Room
from gateway.services.user_limit import UserLimit
from gateway.storage.job_queue import JobQueue
from gateway.storage.lanes import Head, LaneStore

#: Lanes that are compared at once. Where more wait their turn to be looked at goes round.
LANES = 100
#: Users whose last turn is remembered.
REMEMBERED = 10_000
#: After that long what a look has found is too old to tell who goes next.
FRESH = timedelta(seconds=1)


class Turns:
    """Of one process: whose turn it was there, and where its looks at the lanes have come to. Nothing need be kept of
    it: where several processes take turns by themselves, all of them together do.
    """

    def __init__(self, queue: JobQueue, lanes: LaneStore, limit: UserLimit, clock: Clock = utc_now) -> None:
        self.queue = queue
        self.lanes = lanes
        self.limit = limit
        self.clock = clock
        self._after = ""
        self._turn = 0
        self._last: dict[str, int] = {}
        self._counting = threading.Lock()

    def look(self) -> Look:
        return Look(self)

    def waiting(self, room: Room) -> Head | None:
        """A job that could be started, if any can."""
        if self.limit.most:
            return self.look().best(room)
        return next(self.lanes.heads(self.clock(), room.fits), None)

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

    def heads(self, room: Room) -> list[Head]:
        now, after = self.clock(), self._after
        behind = self.lanes.heads(now, room.fits, after)
        before = takewhile(lambda head: str(head.lane) <= after, self.lanes.heads(now, room.fits)) if after else ()
        found = list(islice(chain(behind, before), LANES))
        self._after = str(found[-1].lane) if len(found) == LANES else ""
        return found


class Look:
    """What one filling of slots knows of the lanes. Others claim meanwhile: it is never wrong about who gets a job,
    at worst about who should have.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._heads: dict[Lane, Head] = {}
        self._has: Counter[str] = Counter()
        self._full: set[str] = set()
        self._passed: set[Lane] = set()
        self._looked_at: datetime | None = None

    def claim(self, claim: Claim, room: Room) -> Job | None:
        """The job that goes next of those that fit into `room`, now claimed."""
        while (head := self.best(room)) is not None:
            job = self._turns.queue.claim(claim, head.lane)
            self._advance(head.lane, is_over=job is None)
            if job is not None:
                return job
        return None

    def best(self, room: Room) -> Head | None:
        now = self._turns.clock()
        if self._looked_at is None or now - self._looked_at > FRESH:
            self._looked_at = now
            self._read(room)
        there = [head for head in self._heads.values() if room.fits(head.lane.need) and self._may_go(head.lane)]
        return min(there, key=self._order, default=None)

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

    def _read(self, room: Room) -> None:
        """Where one user waits alone, nothing need be counted."""
        self._heads = {head.lane: head for head in self._turns.heads(room)}
        users = {lane.user_id for lane in self._heads}
        if len(users) > 1 or (users and self._turns.limit.most):
            self._has = self._turns.lanes.running()
            self._full |= self._turns.limit.full()

    def _advance(self, lane: Lane, *, is_over: bool) -> None:
        if not is_over and len(self._heads) == 1:
            # whatever its best is, no other comes before it
            return
        head = None if is_over else self._turns.lanes.head(self._turns.clock(), lane)
        if head is None:
            del self._heads[lane]
        else:
            self._heads[lane] = head
