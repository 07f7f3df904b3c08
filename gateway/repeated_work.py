"""Work that a process repeats: steps that are independent of each other, and a loop that can be woken.

Each step has a thread while it runs, and a deadline, so that a step that is slow or fails does not delay the others.
Within a step, each thing (a job, a hold, a node) is handled in isolation: if one fails, only this one is delayed.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

import structlog
from attrs import define, field
from pymongo.errors import ConnectionFailure, PyMongoError, ServerSelectionTimeoutError

from gateway.clock import VERDICT_SECONDS, remaining
from gateway.stores.mongo import within

log = structlog.get_logger()
Thing = TypeVar("Thing")

#: How many things one run of a step handles. The next run, some seconds later, continues with the others.
BATCH = 500
#: Seconds for which a thing that failed is left alone, doubled with each further failure, and their maximum.
FIRST_DELAY, LONGEST_DELAY = 2.0, 30.0
#: A thing that has not failed again this many seconds after its delay is forgotten.
_REMEMBERED = 300.0
#: Seconds for which steps that begin together share the data that one of them has read.
_SHARED = 1.0


#: Maximum number of seconds that a round may get.
_LONGEST_ROUND = 60.0


@define(eq=False, repr=False)
class Patience:
    """How long one round of several commands may take: `VERDICT_SECONDS`, and longer after a round that ran out of
    time. Otherwise, if a store is slow but not away, no round would ever reach its end.
    """

    _longest: float = _LONGEST_ROUND
    _monotonic: Callable[[], float] = time.monotonic
    seconds: float = field(init=False, default=VERDICT_SECONDS)

    @contextmanager
    def round(self) -> Iterator[None]:
        began = self._monotonic()
        try:
            with within(self.seconds):
                yield
        except PyMongoError as error:
            if error.timeout:
                is_away = isinstance(error, ServerSelectionTimeoutError)
                self._allow(0.0 if is_away else 4 * self.seconds)
            raise
        self._allow(2 * (self._monotonic() - began))

    def _allow(self, seconds: float) -> None:
        self.seconds = min(self._longest, max(VERDICT_SECONDS, seconds))


@define(eq=False, repr=False)
class Step:
    """One kind of repeated work, and when it is due."""

    name: str
    #: Does the step, and handles its things one after the other through the given `Isolation`.
    run: Callable[[Isolation], object]
    #: Seconds from one start to the next.
    every: float = 0.0
    #: By the monotonic clock.
    due_at: float = field(init=False, default=float("-inf"))
    last: Future[None] | None = field(init=False, default=None)
    patience: Patience = field(init=False, factory=Patience)


class Steps:
    """Runs the steps that are due, each in a thread."""

    def __init__(
        self,
        steps: Sequence[Step],
        threads: Executor | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps = [(step, Isolation(step.name, monotonic)) for step in steps]
        self._threads = threads or ThreadPoolExecutor(len(steps), thread_name_prefix="step")
        self._monotonic = monotonic

    def begin(self) -> None:
        """Begin every step that is due and not running, without waiting for it."""
        for step, isolation in self._steps:
            now = self._monotonic()
            if now >= step.due_at and (step.last is None or step.last.done()):
                step.due_at = now + step.every
                step.last = self._threads.submit(self._carry_out, step, isolation)

    @staticmethod
    def _carry_out(step: Step, isolation: Isolation) -> None:
        try:
            with step.patience.round():
                step.run(isolation)
        except Exception as error:  # noqa: BLE001 - after any failure the step is taken again
            about = {} if _is_away(error) else {"exc_info": error}
            log.warning("step_failed", step=step.name, error=str(error), kind=type(error).__name__, **about)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _is_away(error: Exception) -> bool:
    """Whether MongoDB cannot be reached, or the step's time is over: then all other things would fail as well."""
    return isinstance(error, ConnectionFailure) or (isinstance(error, PyMongoError) and error.timeout)


# --- one thing after another


class _Late(NamedTuple):
    failures: int
    #: By the monotonic clock, so that the delay does not get longer if MongoDB's clock is set back.
    until: float


@define(eq=False, repr=False)
class Isolation:
    """Handles things, each with a name, so that one that fails does not stop the others. It remembers in memory which
    of them failed, because MongoDB may be unable to write the document of such a thing.
    """

    #: The name of the step, for the log.
    _step: str
    _monotonic: Callable[[], float] = time.monotonic
    _late: dict[str, _Late] = field(init=False, factory=dict)
    #: The name after which the next `turn` begins.
    _after: str = field(init=False, default="")

    @property
    def late(self) -> list[str]:
        """The names of the things that failed, and are left alone for now."""
        now = self._monotonic()
        return [name for name, late in self._late.items() if late.until > now]

    def turn(self, things: Mapping[str, Thing]) -> dict[str, Thing]:
        """The next `BATCH` things that are not late, in the order of their names. So each thing gets its turn, even
        if many others keep failing.
        """
        names = sorted(things.keys() - set(self.late))
        first = bisect_right(names, self._after)
        chosen = list(islice((*names[first:], *names[:first]), BATCH))
        self._after = chosen[-1] if len(chosen) == BATCH else ""
        return {name: things[name] for name in chosen}

    def each(self, things: Iterable[tuple[str, Thing]], see_to: Callable[[Thing], object]) -> None:
        """Call `see_to` with each thing that is not late, as long as the step has time. A thing that fails becomes
        late: it is left alone for a while.

        Raises an error only if MongoDB cannot be reached.
        """
        late = set(self.late)
        for name, thing in things:
            if remaining(VERDICT_SECONDS) <= 0:
                return
            if name in late:
                continue
            try:
                see_to(thing)
            except Exception as error:  # noqa: BLE001 - no error of one thing may keep the others waiting
                self._failed(name, error)
            else:
                self._late.pop(name, None)

    def _failed(self, name: str, error: Exception) -> None:
        now, failures = self._monotonic(), self._late[name].failures + 1 if name in self._late else 1
        seconds = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(failures - 1, 8))
        self._late = {one: late for one, late in self._late.items() if now - late.until < _REMEMBERED}
        self._late[name] = _Late(failures, now + seconds)
        if _is_away(error):
            raise error
        about = {"exc_info": error} if failures == 1 else {}
        log.warning("left_for_later", step=self._step, name=name, seconds=seconds, error=str(error), **about)


# --- what several steps need

Read = TypeVar("Read")


@define(eq=False, repr=False)
class Shared(Generic[Read]):
    """Data that several steps need when they begin together. The first step reads it for all of them."""

    _read: Callable[[], Read]
    _monotonic: Callable[[], float]
    _reading: threading.Lock = field(init=False, factory=threading.Lock)
    _found: tuple[float, Read] | None = field(init=False, default=None)

    def __call__(self) -> Read:
        """The data that was read a moment ago, or is read now. Raises what reading raises; the next call
        reads again.
        """
        with self._reading:
            if self._found is None or not 0 <= self._monotonic() - self._found[0] < _SHARED:
                self._found = None
                self._found = self._monotonic(), self._read()
            return self._found[1]


# --- a loop that can be woken

#: Seconds between two looks. Wake-ups gather in this time; without it, each of them would begin a look of its own.
PAUSE = 0.02
#: How many names a loop keeps for its next look. If there are more, the oldest are forgotten, because names are only
#: hints. A look that fails keeps its names: without a limit they could become too many for any look to succeed.
MOST_NAMES = 1000


@define(eq=False, repr=False, slots=False)
class Loop:
    """A loop that calls `look` when it is woken, and every `seconds` in any case, because a wake-up can get lost.

    `look` gets the names with which the loop was woken since the last look, at most `MOST_NAMES`. It returns whether
    to look again at once. Only the loop's thread calls it.
    """

    _look: Callable[[Sequence[str]], bool]
    _seconds: float
    _asked: threading.Event = field(init=False, factory=threading.Event)
    #: A deque, because any thread may append while the loop takes from its other end.
    _names: deque[str] = field(init=False, factory=lambda: deque(maxlen=MOST_NAMES))
    _closed: threading.Event = field(init=False, factory=threading.Event)

    def wake(self, *names: str | None) -> None:
        self._names.extend(filter(None, names))
        self._asked.set()

    def close(self) -> None:
        self._closed.set()
        self._asked.set()

    def turn(self) -> None:
        """Look once. If the look raises, its names are kept for the next one."""
        self._asked.clear()
        names = [self._names.popleft() for _ in range(len(self._names))]
        try:
            if self._look(names):
                self._asked.set()
        except BaseException:
            self.wake(*names)
            raise

    def run(self) -> None:
        """Look again and again until `close` is called. Raises what a look raises; the caller then calls
        `run` again.
        """
        while not self._closed.is_set():
            self._asked.wait(self._seconds)
            self.turn()
            self._closed.wait(PAUSE)
