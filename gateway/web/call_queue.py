"""The gateway's one way to make a call that blocks: in a thread, after a fair queue in which each user has a limited
number of places. All calls are refused at once while MongoDB is away.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from datetime import datetime
from enum import Enum, auto
from typing import Any, Generic, ParamSpec, TypeVar

import structlog
from attrs import define, field
from pymongo.database import Database
from pymongo.errors import PyMongoError

from gateway.clock import Clock, utc_now
from gateway.errors import NewerStoresError, TooManyError, UnavailableError
from gateway.stores.document_format import enter
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import LOOK_SECONDS, Document, Presence, ServerClock, within

Params = ParamSpec("Params")
Result = TypeVar("Result")
Call = TypeVar("Call")
Check = Callable[[], None]

log = structlog.get_logger("gateway.web")

# --- whose call is next


@define(eq=False, repr=False)
class CallQueue(Generic[Call]):
    """Calls of many users that compete for a number of places. A user has `each` places at most. Users with waiting
    calls take turns, however many calls each has. Not thread-safe: threads that share a queue need a lock.
    """

    _places: int
    _each: int
    #: Calls that have a place, by user.
    running: Counter[str] = field(init=False, factory=Counter)
    #: Calls without a place so far, by user, the oldest first.
    waiting: dict[str, deque[Call]] = field(init=False, factory=dict)
    #: Users with waiting calls who have fewer than `each` places; the user whose turn is next comes first.
    _turns: OrderedDict[str, None] = field(init=False, factory=OrderedDict)
    _taken: int = field(init=False, default=0)

    def enter(self, user: str, call: Call) -> bool:
        """Give the call a place, or let it wait. Returns whether it has a place at once."""
        if self._taken < self._places and self.running[user] < self._each:
            self._take(user)
            return True
        self.waiting.setdefault(user, deque()).append(call)
        self._line_up(user)
        return False

    def leave(self, user: str) -> tuple[str, Call] | None:
        """Note that a call of the user has ended. Returns the waiting call that gets its place, with its user."""
        self._taken -= 1
        self.running[user] -= 1
        if not self.running[user]:
            del self.running[user]
        self._line_up(user)
        if not self._turns:
            return None
        following, _ = self._turns.popitem(last=False)
        call = self.waiting[following].popleft()
        self._take(following)
        self._line_up(following)
        return following, call

    def forget(self, user: str, call: Call) -> None:
        """The call, if it waits, is not to be made any more."""
        with suppress(KeyError, ValueError):
            self.waiting[user].remove(call)
            self._line_up(user)

    def _take(self, user: str) -> None:
        self._taken += 1
        self.running[user] += 1

    def _line_up(self, user: str) -> None:
        """Put the user at the end of the line if it waits and may have a place. A user in line keeps its turn."""
        if not self.waiting.get(user):
            self.waiting.pop(user, None)
            self._turns.pop(user, None)
        elif self.running[user] < self._each:
            self._turns.setdefault(user)


# --- for whom a call is made


@define(eq=False, repr=False)
class Visitor:
    """Who makes a request: a user, or an address as long as the user is not known."""

    name: str
    #: The request only reads.
    reads: bool = False
    #: The request has been let in: `MOST_WAITING` does not limit its further calls, so that it can be completed.
    is_admitted: bool = False
    is_gone: bool = field(init=False, default=False)
    #: The request's answer lasts, and is counted until it has ended.
    lasts: bool = field(init=False, default=False)
    _at_end: list[Callable[[], None]] = field(init=False, factory=list)
    _waiting: set[Future[Any] | asyncio.Future[Any]] = field(init=False, factory=set)

    def leave(self) -> None:
        """Cancel what waits for the visitor, because the client is gone. Calls that run are completed."""
        self.is_gone = True
        for future in tuple(self._waiting):
            future.cancel()

    def at_end(self, act: Callable[[], None]) -> None:
        """Have `act` called when the request is over, whether it succeeded or failed."""
        self._at_end.append(act)

    def end(self) -> None:
        while self._at_end:
            self._at_end.pop()()

    def waits_for(self, future: Future[Any] | asyncio.Future[Any]) -> None:
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        if self.is_gone:
            future.cancel()


#: Calls outside a request are the gateway's own.
_visitor: contextvars.ContextVar[Visitor | None] = contextvars.ContextVar("visitor", default=None)
#: The visitor's name in a request's state.
VISITOR = "visitor"
_OWN = ""


def set_visitor(visitor: Visitor) -> None:
    """Make the visitor the one for whom this task makes its calls from now on."""
    _visitor.set(visitor)


def current_visitor() -> Visitor | None:
    return _visitor.get()


async def while_there(waiting: Coroutine[Any, Any, Result]) -> Result:
    """What the coroutine returns; it is cancelled when the client of the current request leaves."""
    task, visitor = asyncio.ensure_future(waiting), _visitor.get()
    if visitor is not None:
        visitor.waits_for(task)
    return await task


def shared_context() -> contextvars.Context:
    """The context for a task that other requests wait for too. Its calls count for the current visitor, but are not
    cancelled when this visitor leaves.
    """
    context, visitor = contextvars.copy_context(), _visitor.get()
    if visitor is not None:
        context.run(_visitor.set, Visitor(visitor.name, visitor.reads, is_admitted=True))
    return context


# --- the threads


class Lane(Enum):
    """A kind of call. Each lane has places of its own, so that no lane keeps another waiting."""

    #: Short reads: who the caller is, what the caller owns, and any single document.
    LOOK = auto()
    #: All other reading.
    READ = auto()
    #: What may change something.
    CHANGE = auto()


#: A lane is full when so many users use all their places.
_USERS = 4
#: How many calls of one user may wait in a lane; and the seconds after which a refused call may be repeated.
MOST_WAITING = 250
_RETRY_AFTER = 2
#: Seconds that the stores have for a whole call. A call that can change something has no such limit, because it might
#: end between two changes: only each of its operations has a time-out.
_SECONDS = {Lane.LOOK: 3.0, Lane.READ: 10.0, Lane.CHANGE: None}


@define(eq=False, repr=False)
class _Call:
    lane: Lane
    user: str
    work: Callable[[], Any]
    future: Future[Any] = field(init=False, factory=Future)


class Threads(Executor):
    """All threads for calls that block. Each call takes a place of the user whose request makes it (see
    `set_visitor`), and carries its context: the request's id, for the log.
    """

    def __init__(self, each: int, check: Check) -> None:
        """One user has at most `each` calls at a time in each lane. `check` raises the error that callers get while
        calls cannot succeed. It is called when a call is submitted, and again just before the call is made.
        """
        self._check = check
        self._lanes = {lane: CallQueue[_Call](_USERS * each, each) for lane in Lane}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(len(Lane) * _USERS * each, thread_name_prefix="call")

    def submit(
        self, function: Callable[Params, Result], /, *args: Params.args, **kwargs: Params.kwargs
    ) -> Future[Result]:
        """Raises `TooManyError`, and what `check` raises."""
        visitor = _visitor.get()
        reads = visitor is not None and visitor.reads
        return self._submit(Lane.READ if reads else Lane.CHANGE, functools.partial(function, *args, **kwargs))

    async def run(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Call `function` in one of the threads. Raises `TooManyError`, and what `check` raises."""
        return await asyncio.wrap_future(self.submit(function, *args, **kwargs))

    async def look(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """As `run`, in the lane for reads of a single document, which do not wait for longer reads."""
        return await asyncio.wrap_future(self._submit(Lane.LOOK, functools.partial(function, *args, **kwargs)))

    def close(self) -> None:
        """Calls that wait are cancelled."""
        self._pool.shutdown(wait=False)
        with self._lock:
            left = [call for lane in self._lanes.values() for calls in lane.waiting.values() for call in calls]
        for call in left:
            call.future.cancel()

    def _submit(self, lane: Lane, function: Callable[[], Result]) -> Future[Result]:
        self._check()
        visitor = _visitor.get()
        work = functools.partial(contextvars.copy_context().run, function)
        call = _Call(lane, visitor.name if visitor else _OWN, work)
        if self._begins(call, visitor):
            self._start(call)
        elif visitor is not None:
            visitor.waits_for(call.future)
        if lane is not Lane.LOOK and visitor is not None:
            visitor.is_admitted = True
        return call.future

    def _begins(self, call: _Call, visitor: Visitor | None) -> bool:
        """Whether the call has a place at once; otherwise it waits. Raises `TooManyError` if too many calls wait."""
        with self._lock:
            queue = self._lanes[call.lane]
            is_bound = visitor is not None and not visitor.is_admitted
            if is_bound and len(queue.waiting.get(call.user, ())) >= MOST_WAITING:
                raise too_many(f"{MOST_WAITING} of your calls wait", MOST_WAITING)
            if queue.enter(call.user, call):
                return True
        # the future would be part of a cycle, and its result stay in memory until the garbage collector finds that
        call.future.add_done_callback(functools.partial(self._forget, weakref.ref(call)))
        return False

    def _start(self, call: _Call) -> None:
        try:
            self._pool.submit(self._work, call)
        except BaseException:
            call.future.cancel()
            self._next(call)
            raise

    def _work(self, call: _Call | None) -> None:
        """Make the call, and then the calls that get its place."""
        while call is not None:
            try:
                self._make(call)
            finally:
                call = self._next(call)

    def _make(self, call: _Call) -> None:
        if not call.future.set_running_or_notify_cancel():
            return
        seconds = _SECONDS[call.lane]
        try:
            self._check()
            with nullcontext() if seconds is None else within(seconds):
                result = call.work()
        except BaseException as error:  # noqa: BLE001 - the caller that waits gets its error
            call.future.set_exception(error)
        else:
            call.future.set_result(result)

    def _next(self, call: _Call) -> _Call | None:
        with self._lock:
            following = self._lanes[call.lane].leave(call.user)
        return following[1] if following else None

    def _forget(self, waiting: weakref.ref[_Call], future: Future[Any]) -> None:
        if future.cancelled() and (call := waiting()) is not None:
            with self._lock:
                self._lanes[call.lane].forget(call.user, call)


def too_many(what: str, limit: int) -> TooManyError:
    message = f"{what}, which is the limit; ask again when some of them are over"
    return TooManyError(message, _RETRY_AFTER, detail={"limit": limit})


# --- whether MongoDB is there

_RETRY_SECONDS = 1.0


@define(eq=False, repr=False, slots=False)
class MongoReadiness:
    """Whether MongoDB is reachable and prepared. It must be prepared before requests change anything, because
    without the unique indexes two identical requests could make two jobs.
    """

    _database: Database[Document]
    _server_clock: ServerClock
    _clock: Clock = field(init=False, default=utc_now)
    _ready: asyncio.Event = field(init=False, factory=asyncio.Event)

    def __attrs_post_init__(self) -> None:
        self._presence = Presence(self._database.client)

    def clock(self) -> datetime:
        """MongoDB's time, once it has been measured; this machine's until then."""
        return self._clock()

    def require(self) -> None:
        """Raises `UnavailableError` until the database has been prepared."""
        if not self._ready.is_set():
            raise UnavailableError("the database has not been prepared since the gateway was started")

    def refuse_if_away(self) -> None:
        """Raises `UnavailableError` while MongoDB is known to be away: a call would only wait for its time-out."""
        if self._presence.is_away:
            raise UnavailableError("the database is away")

    async def watch(self) -> None:
        """Look whether MongoDB is there, again and again, for as long as the gateway serves."""
        while True:
            self._presence.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def prepare(self) -> None:
        """Try to prepare the database until it works."""
        is_prepared = False
        while not is_prepared:
            is_prepared = await self._try_to_prepare()
        self._clock = self._server_clock
        self._ready.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the database is ready, but not longer than `seconds`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ready.wait(), seconds)

    async def _try_to_prepare(self) -> bool:
        try:
            await asyncio.to_thread(self._prepare_once)
        except (PyMongoError, NewerStoresError) as error:
            log.warning("database_not_ready", error=getattr(error, "message", type(error).__name__))
            await asyncio.sleep(_RETRY_SECONDS)
            return False
        return True

    def _prepare_once(self) -> None:
        enter(self._database)
        ensure_indexes(self._database)
        self._server_clock.measure()
