"""Threads for answers that take much reading, apart from all others; one user gets few of them at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

from attrs import define, field

from gateway.access.keys import Caller
from gateway.errors import TooManyError
from gateway.stores.readiness import ThreadPool

Params = ParamSpec("Params")
Result = TypeVar("Result")

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
