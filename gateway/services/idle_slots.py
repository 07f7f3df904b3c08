"""Whether jobs wait though there is room for them: nobody dispatches, or somebody is wrong about who may run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import NamedTuple

from gateway.domain.clock import Clock
from gateway.domain.job import Job, WaitingReason
from gateway.services.check import Check
from gateway.services.node_choice import NodeChoice
from gateway.storage.due_jobs import DueJobs
from gateway.storage.nodes import Node, NodeStore

#: A job that has been due for less is about to be started.
DUE_FOR = timedelta(seconds=5)
#: Nothing new was started for so many seconds, between the first look at a job and this one.
IDLE_SECONDS = 5.0
#: Jobs that are looked at.
BATCH = 50

_OK = Check("ok", "no job waits beside a free slot")


class _Look(NamedTuple):
    at: float
    #: Jobs that could have been started, by id,
    waiting: frozenset[str]
    #: and how many attempts have ever been given a slot.
    started: int


class IdleSlots:
    """One look proves nothing: where many wait, a slot that has just become free is seen now and then. So it
    remembers what it saw, and complains when the same jobs wait and nothing was started in between.
    """

    def __init__(
        self,
        *,
        nodes: NodeStore,
        jobs: DueJobs,
        dead_after: timedelta,
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nodes = nodes
        self._jobs = jobs
        self._dead_after = dead_after
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._first: _Look | None = None

    def check(self) -> Check:
        """Raises PyMongo's errors."""
        nodes = self._nodes.all(attempts=False)
        waiting = frozenset(job.id for job in self._waiting(nodes))
        look = _Look(self._monotonic(), waiting, sum(node.taken_slots for node in nodes))
        with self._lock:
            first = self._first
            if first is None or look.started != first.started or not look.waiting & first.waiting:
                self._first = look if waiting else None
                return _OK
        if look.at - first.at < IDLE_SECONDS:
            return _OK
        message = f"{len(look.waiting & first.waiting)} wait though nodes have room, and nothing is started"
        todo = "see `workers`; with one alive look at its log for `dispatch_failed`, and at the broker's queue"
        return Check("down", message, todo)

    def _waiting(self, nodes: list[Node]) -> list[Job]:
        now = self._clock()
        choice = NodeChoice(nodes, now, self._dead_after)
        if choice.room() is None:
            return []
        due = self._jobs.since(now - DUE_FOR, BATCH)
        free = (job for job in due if job.waiting_reason is not WaitingReason.USER_QUOTA)
        return [job for job in free if choice.suits(job.in_lane.need)]
