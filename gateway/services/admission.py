"""How many crawls may wait, of one user and of all. Whoever asks for one more is told when to ask again.

Nothing is locked across processes: each counts at most every `FRESH` seconds and adds what it has admitted itself.
So one process keeps the limits to the job, but for those that schedules and retries bring along in between; several
may together go beyond one by what the others admit within that time.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from gateway.domain.errors import QueueFullError, UserQuotaError
from gateway.storage.waiting import WaitingStore

#: Seconds for which a count is good,
FRESH = 0.25
#: or longer: at most one twentieth of the time is spent on counting.
_SPARING = 20
#: Seconds after which to ask again, drawn anew each time: a crowd shall not come back as one.
_ASK_AGAIN = (5, 15)
#: Counted no further than so far beyond a limit: it is only told.
_BEYOND = 1000
#: Users of whom a count is remembered.
_MOST_USERS = 1000


class Admission:
    """`queue_max`: waiting jobs of all, `user_max`: of one user; 0 is no limit, and costs nothing."""

    def __init__(self, waiting: WaitingStore, *, queue_max: int = 0, user_max: int = 0) -> None:
        self._waiting = waiting
        self._user_max = user_max
        self._queue = _Tally(waiting.count, queue_max) if queue_max else None
        self._users: OrderedDict[str, _Tally] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def room(self, user_id: str) -> Iterator[None]:
        """For the insertion of one job that somebody asks for; if it fails, its place is free again.

        Raises `UserQuotaError`, `QueueFullError`, `PyMongoError`.
        """
        with ExitStack() as places:
            if self._user_max:
                tally = self._of_user(user_id)
                if (waiting := places.enter_context(tally.place())) is not None:
                    raise UserQuotaError(user_id, waiting, self._user_max, _ask_again())
            if self._queue and (waiting := places.enter_context(self._queue.place())) is not None:
                raise QueueFullError(waiting, self._queue.most, _ask_again())
            yield

    def _of_user(self, user_id: str) -> _Tally:
        with self._lock:
            tally = self._users.get(user_id)
            if tally is None:
                tally = self._users[user_id] = _Tally(partial(self._waiting.count, user_id=user_id), self._user_max)
                if len(self._users) > _MOST_USERS:
                    self._users.popitem(last=False)
            self._users.move_to_end(user_id)
            return tally


class _Tally:
    """How many wait: as many as were counted, and those that this process has admitted since."""

    def __init__(self, count: Callable[[int], int], most: int) -> None:
        self.most = most
        self._count = count
        self._lock = threading.Lock()
        self._counted: int | None = None
        self._count_at = 0.0
        #: Admitted by this process, ever; as many of them as were certainly inserted when the count began; and those
        #: that are being inserted.
        self._admitted = self._included = self._under_way = 0

    @contextmanager
    def place(self) -> Iterator[int | None]:
        """`None`, and the place is taken; or how many wait, if there is none."""
        self._refresh()
        with self._lock:
            waiting = (self._counted or 0) + self._admitted - self._included
            taken = waiting < self.most
            self._admitted += taken
            self._under_way += taken
        try:
            yield None if taken else waiting
        except BaseException:
            with self._lock:
                self._admitted -= taken
            raise
        finally:
            with self._lock:
                self._under_way -= taken

    def _refresh(self) -> None:
        """Not under the lock: where the database hangs, it hangs for whoever asks it, and for nobody else."""
        with self._lock:
            began = time.monotonic()
            if self._counted is not None and began < self._count_at:
                return
            self._count_at = began + FRESH
            # those under way may be counted, and may not
            included = self._admitted - self._under_way
        counted = self._count(self.most + _BEYOND)
        with self._lock:
            took = time.monotonic() - began
            self._counted, self._included = counted, included
            self._count_at = time.monotonic() + max(FRESH, took * _SPARING)


def _ask_again() -> int:
    return random.randint(*_ASK_AGAIN)  # noqa: S311 - nobody gains by guessing it
