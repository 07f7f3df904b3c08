"""What a process knows of the lanes for a moment, so that not each slot that becomes free costs a look at all."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import chain, islice, takewhile
from typing import NamedTuple

from gateway.domain.clock import Clock
from gateway.domain.lane import Lane
from gateway.domain.room import Room
from gateway.storage.lanes import Head, LaneStore

#: Lanes that are compared at once. Where more wait their turn to be looked at goes round.
LANES = 100
#: After that long what was found is too old to tell who goes next.
FRESH = timedelta(seconds=1)


class _Found(NamedTuple):
    read_at: datetime
    heads: dict[Lane, Head]
    #: There are no others.
    is_all: bool


class KnownLanes:
    """The best of each lane, by what there was room for. Others claim and submit meanwhile; what is wrong by that is
    wrong for a second at most, and never about who gets a job: that is the claim's to say.
    """

    def __init__(self, lanes: LaneStore, clock: Clock) -> None:
        self._lanes = lanes
        self._clock = clock
        self._found: dict[Room, _Found] = {}
        self._after = ""
        self._changing = threading.Lock()

    def heads(self, room: Room) -> Sequence[Head] | None:
        """`None` if nothing is known: none were read of late, or those that were have had their turn."""
        now = self._clock()
        with self._changing:
            found = self._found.get(room)
            if found is None or now - found.read_at > FRESH or not (found.heads or found.is_all):
                return None
            return list(found.heads.values())

    def read(self, room: Room) -> Sequence[Head]:
        """One look for each lane, from where the last one ended if there are too many."""
        now, after = self._clock(), self._after
        behind = self._lanes.heads(now, room.fits, after)
        before = takewhile(lambda head: str(head.lane) <= after, self._lanes.heads(now, room.fits)) if after else ()
        heads = list(islice(chain(behind, before), LANES))
        is_all = len(heads) < LANES
        with self._changing:
            self._after = "" if is_all else str(heads[-1].lane)
            fresh = {other: found for other, found in self._found.items() if now - found.read_at <= FRESH}
            self._found = {**fresh, room: _Found(now, {head.lane: head for head in heads}, is_all)}
        return heads

    def claimed(self, lane: Lane) -> None:
        """Its best is gone. Where there are too many to be compared, others have their turn before its next."""
        with self._changing:
            concerned = [found for found in self._found.values() if lane in found.heads]
            for found in concerned:
                if not found.is_all:
                    del found.heads[lane]
            # where it is the only one none comes before it, whatever its best is now
            matters = any(found.is_all and len(found.heads) > 1 for found in concerned)
        if matters:
            self._changed(lane, self._lanes.head(self._clock(), lane))

    def empty(self, lane: Lane) -> None:
        """Nobody was there any more."""
        self._changed(lane, None)

    def told(self, job_id: str) -> None:
        """The job is said to wait: perhaps nobody has looked since it does."""
        if self._found and (head := self._lanes.head_with(self._clock(), job_id)) is not None:
            with self._changing:
                for room, found in self._found.items():
                    if room.fits(head.lane.need):
                        found.heads[head.lane] = head

    def _changed(self, lane: Lane, head: Head | None) -> None:
        with self._changing:
            for found in self._found.values():
                if head is None:
                    found.heads.pop(lane, None)
                elif lane in found.heads:
                    found.heads[lane] = head
