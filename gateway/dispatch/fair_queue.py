"""Who goes next: of the users who wait for what there is room for, the one that has least; of its jobs, the best.

Of those that have equally much it is the one whose last turn is longest ago. Were it the one whose job waits longest,
users with few slots between them would have to wait for the whole backlog of the one who came first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from itertools import chain, islice, takewhile

from attrs import define, field

from gateway.clock import Clock, utc_now
from gateway.dispatch.capacity import Room
from gateway.jobs.job import Lane, WaitingReason
from gateway.jobs.queue import Candidate, Heads, JobQueue
from gateway.nodes.holds import HoldStore
from gateway.nodes.node import user_resource

#: Lanes that are compared at once. Where more wait, their turn to be looked at goes round.
LANES = 100
#: After that long what was read is too old to tell who goes next.
FRESH = timedelta(seconds=1)
#: Users whose last turn is remembered.
REMEMBERED = 10_000
#: Candidates of all lanes that are read ahead.
READ_AHEAD = 64
_USER = user_resource("")


@define(eq=False, repr=False, slots=False)
class FairQueue:
    """Of one process: whose turn it was there, and what it knows of the lanes. Nothing of it need be kept: where
    several processes are fair by themselves, all of them together are.

    What it knows may be out of date by a second. That is never wrong about who gets a job: the assignment decides.
    """

    _queue: JobQueue
    _holds: HoldStore
    #: Crawls of one user that may run at once; 0 is no limit.
    most: int = 0
    _clock: Clock = utc_now
    #: The best of each lane that is known; none is empty.
    lanes: dict[Lane, deque[Candidate]] = field(init=False, factory=dict)
    #: Lanes of which nobody is left but who is known.
    _whole: set[Lane] = field(init=False, factory=set)
    #: There are no other lanes that fit.
    _is_all: bool = field(init=False, default=False)
    _read_at: datetime | None = field(init=False, default=None)
    #: Where the next read begins, if there are more lanes than are compared at once.
    _after: str = field(init=False, default="")
    _turn: int = field(init=False, default=0)
    _last: dict[str, int] = field(init=False, factory=dict)

    def look(self) -> Look:
        """For one thread at a time."""
        if self._read_at is None or self._clock() - self._read_at > FRESH:
            self.lanes, self._read_at = {}, None
        return Look(self)

    def named(self, job_id: str) -> None:
        """Somebody waits for this job: its lane may have been empty when it was read."""
        if self._read_at is None:
            # it will be
            return
        lane = self._queue.lane_of(job_id)
        if lane is None:
            return
        self._whole.discard(lane)
        if lane not in self.lanes and (best := self._queue.best(lane, 1)):
            self.lanes[lane] = deque(best)

    def is_empty(self) -> bool:
        """Whether nobody waits for a slot. Asked only where nobody is known to."""
        return not self.lanes and self._queue.is_empty()

    def candidate(self, room: Room) -> Candidate | None:
        """A job that could be started, if any can."""
        full = self.full()
        best = (heads.candidates[0] for heads in self._queue.heads(room.fits))
        return next((head for head in best if head.lane.user_id not in full), None)

    def running(self) -> Counter[str]:
        """How many crawls each user has running."""
        used = self._holds.used_by_kind(_USER)
        return Counter({resource.removeprefix(_USER): number for resource, number in used.items()})

    def full(self) -> set[str]:
        """Users that may have no more."""
        return {user for user, number in self.running().items() if number >= self.most} if self.most else set()

    @staticmethod
    def reason(user_id: str, of_nodes: WaitingReason | None, full: Collection[str]) -> WaitingReason | None:
        """Why a job of the user's waits, where `of_nodes` is what it waits for as far as nodes are concerned."""
        is_next = of_nodes in {None, WaitingReason.CAPACITY}
        return WaitingReason.USER_QUOTA if is_next and user_id in full else of_nodes

    def read(self, room: Room, but: Collection[str]) -> bool:
        """The best of each lane that fits, without those that are on their way already (`but`); from where the last
        read ended if there are too many lanes. Whether these are all lanes that fit.
        """
        behind = self._queue.heads(room.fits, self._after)
        before = takewhile(self._is_before, self._queue.heads(room.fits)) if self._after else ()
        found = list(islice(chain(behind, before), LANES))
        self._is_all = len(found) < LANES
        self._after = "" if self._is_all else str(found[-1].candidates[0].lane)
        self._read_at = self._clock()
        self.lanes, self._whole = {}, set()
        for heads in found:
            lane = heads.candidates[0].lane
            if heads.is_all:
                self._whole.add(lane)
            self._keep(lane, heads.candidates, but)
            if lane not in self.lanes:
                self._read_on(lane, but)
        return self._is_all

    def _is_before(self, heads: Heads) -> bool:
        return str(heads.candidates[0].lane) <= self._after

    def pop(self, lane: Lane, but: Collection[str]) -> Candidate:
        """The best of the lane; `but` are on their way already, with this one."""
        best = self.lanes[lane].popleft()
        if not self._is_all:
            # others have their turn before its next
            del self.lanes[lane]
        elif not self.lanes[lane]:
            self._read_on(lane, {*but, best.job_id})
        return best

    def _read_on(self, lane: Lane, but: Collection[str]) -> None:
        """The next ones of the lane."""
        found: list[Candidate] = []
        if lane not in self._whole:
            ahead = max(2, READ_AHEAD // max(1, len(self.lanes))) + len(but)
            found = self._queue.best(lane, ahead)
            if len(found) < ahead:
                self._whole.add(lane)
        self._keep(lane, found, but)

    def _keep(self, lane: Lane, found: Iterable[Candidate], but: Collection[str]) -> None:
        if left := deque(one for one in found if one.job_id not in but):
            self.lanes[lane] = left
        else:
            self.lanes.pop(lane, None)

    def last(self, user_id: str) -> int:
        """The user's last turn, as a running number; 0 if it has had none."""
        return self._last.get(user_id, 0)

    def count(self, user_id: str) -> None:
        """The user has its turn now."""
        self._turn += 1
        # the dictionary is in the order of the turns
        self._last.pop(user_id, None)
        self._last[user_id] = self._turn
        if len(self._last) > REMEMBERED:
            del self._last[next(iter(self._last))]


@define(eq=False, repr=False, slots=False)
class Look:
    """One filling of slots: who has how many, and who was passed over."""

    _queue: FairQueue
    _running: Counter[str] | None = field(init=False, default=None)
    _passed: set[Lane] = field(init=False, factory=set)
    _on_their_way: set[str] = field(init=False, factory=set)
    _has_read: bool = field(init=False, default=False)
    _has_read_all: bool = field(init=False, default=False)

    def next(self, room: Room) -> Candidate | None:
        """The job that goes next of those that fit into `room`; the lanes are read anew before there is none."""
        while not (lanes := self._that_may_go(room)):
            # who has come since then says so
            if self._has_read or self._has_read_all:
                return None
            self._has_read = True
            self._has_read_all = self._queue.read(room, self._on_their_way)
        lane = min(lanes, key=self._order)
        candidate = self._queue.pop(lane, self._on_their_way)
        self._on_their_way.add(candidate.job_id)
        self._has_read = False
        return candidate

    def started(self, candidate: Candidate) -> None:
        """It is to be put on a node."""
        user = candidate.lane.user_id
        if self._running is not None:
            self._running[user] += 1
        self._queue.count(user)

    def pass_over(self, candidate: Candidate) -> None:
        """There turned out to be no room for its lane: not again in this look."""
        self._passed.add(candidate.lane)
        self._on_their_way.discard(candidate.job_id)
        self._queue.lanes.setdefault(candidate.lane, deque()).appendleft(candidate)

    def _that_may_go(self, room: Room) -> list[Lane]:
        lanes = [lane for lane in self._queue.lanes if lane not in self._passed and room.fits(lane.need)]
        most = self._queue.most
        # where one user waits alone, nothing need be counted
        if self._running is None and (most or len({lane.user_id for lane in lanes}) > 1):
            self._running = self._queue.running()
        return [lane for lane in lanes if not most or self._has(lane.user_id) < most]

    def _has(self, user_id: str) -> int:
        return 0 if self._running is None else self._running[user_id]

    def _order(self, lane: Lane) -> tuple[int, int, datetime]:
        user = lane.user_id
        return self._has(user), self._queue.last(user), self._queue.lanes[lane][0].rank
