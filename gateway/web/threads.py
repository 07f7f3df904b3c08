"""The gateway's threads for calls that need MongoDB: it accepts nothing before MongoDB is ready, and refuses at once
while MongoDB is away. One user gets few of the threads for answers that take much reading.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from datetime import datetime
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

import structlog
from attrs import define, field
from pymongo.database import Database
from pymongo.errors import PyMongoError

from gateway.access.keys import Caller
from gateway.clock import Clock, utc_now
from gateway.errors import NewerStoresError, TooManyError, UnavailableError
from gateway.stores.document_format import enter
from gateway.stores.indexes import ensure_indexes
from gateway.stores.mongo import LOOK_SECONDS, Document, Presence, ServerClock, within

Params = ParamSpec("Params")
Result = TypeVar("Result")
Check = Callable[[], None]


class CheckedExecutor(ThreadPoolExecutor):
    """Calls `check` when it gets a call, and again before it makes the call, which may be a while later. The first
    time an error of `check` is raised at once, the second time it is the call's error.
    """

    def __init__(self, threads: int, name: str, check: Check) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._check = check

    def submit(
        self, function: Callable[Params, Result], /, *args: Params.args, **kwargs: Params.kwargs
    ) -> Future[Result]:
        self._check()
        return super().submit(self._checked, functools.partial(function, *args, **kwargs))

    def _checked(self, call: Callable[[], Result]) -> Result:
        self._check()
        return call()


class ThreadPool:
    def __init__(self, threads: int, name: str, check: Check, seconds: float | None = None) -> None:
        """`check` raises the error that callers get while the threads would be of no use. `seconds` is the time that
        the stores have for a whole call, instead of for each operation.
        """
        self._seconds = seconds
        self.executor = CheckedExecutor(threads, name, check)

    async def run(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Call `function` in one of the threads, with the caller's context (the request's id, for the log)."""
        call = functools.partial(
            contextvars.copy_context().run, self._limited, functools.partial(function, *args, **kwargs)
        )
        return await asyncio.get_running_loop().run_in_executor(self.executor, call)

    def _limited(self, call: Callable[[], Result]) -> Result:
        with nullcontext() if self._seconds is None else within(self._seconds):
            return call()

    def close(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)


log = structlog.get_logger("gateway.web")

_RETRY_SECONDS = 1.0


@define(eq=False, repr=False, slots=False)
class MongoReadiness:
    """Prepares MongoDB first: without the unique indexes two identical requests could make two jobs."""

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


# --- threads for answers that take much reading, apart from all others; one user gets few of them at a time

#: Searches of one user at a time, in each gateway process.
EACH = 2
#: Seconds that one more waits for its turn: a page may begin several, most of which are soon over.
_PATIENCE = 2.0
_RETRY_AFTER = 2


@define(eq=False, repr=False, slots=False)
class Searches:
    """Without keys there are no users, and nobody is limited."""

    _threads: ThreadPool
    #: By user, for as long as one of the user's searches runs or waits.
    _turns: WeakValueDictionary[str, asyncio.Semaphore] = field(init=False, factory=WeakValueDictionary)

    def by(self, caller: Caller) -> UsersThreads | ThreadPool:
        """The threads for this caller, whose one search too many is refused."""
        return self._by(caller, _PATIENCE)

    def going_on(self, caller: Caller) -> UsersThreads | ThreadPool:
        """The same in the middle of an answer: it waits for as long as it takes."""
        return self._by(caller, None)

    def _by(self, caller: Caller, patience: float | None) -> UsersThreads | ThreadPool:
        if caller.name is None:
            return self._threads
        turns = self._turns.get(caller.name)
        if turns is None:
            turns = self._turns[caller.name] = asyncio.Semaphore(EACH)
        return UsersThreads(self._threads, turns, patience)


@define(eq=False, repr=False, slots=False)
class UsersThreads:
    _threads: ThreadPool
    _turns: asyncio.Semaphore
    #: Seconds to wait for a turn; `None` for as long as it takes.
    _patience: float | None

    async def run(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Call `function` in one of the threads. Raises `TooManyError`."""
        try:
            async with asyncio.timeout(self._patience):
                await self._turns.acquire()
        except TimeoutError:
            message = f"{EACH} of your searches run, which is the limit; ask again when one of them is over"
            raise TooManyError(message, _RETRY_AFTER, detail={"limit": EACH}) from None
        call = asyncio.ensure_future(self._threads.run(function, *args, **kwargs))
        # the turn ends with the thread's work: a client that goes away does not stop that
        call.add_done_callback(lambda _: self._turns.release())
        return await asyncio.shield(call)
