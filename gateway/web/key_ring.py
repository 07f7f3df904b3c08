"""Keys as the gateway's loop knows them: asked for at most once in `FRESH` seconds each, whatever the load."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from gateway.domain.api_key import ApiKey, Caller, Seal, read_token
from gateway.domain.clock import Clock
from gateway.domain.console_session import ConsoleSession
from gateway.domain.errors import UnavailableError, WrongKeyError
from gateway.domain.stream_token import read_stream_token
from gateway.storage.client import truth_store_errors
from gateway.storage.keys import KeyStore
from gateway.web.thread_pool import ThreadPool

#: Seconds for which an answer is good: after that a new key counts, and a revoked one does not.
FRESH = 2.0
#: Answers that are kept; whoever tries ids at random must not fill the memory.
_MOST = 1000
#: Seconds for which it holds up a request whether there are keys by now, where there were none.
_PATIENCE = 0.5
#: Seconds between two looks whether what opened a stream is still good.
_LOOK = 3.0


class _Answer(NamedTuple):
    at: float
    task: asyncio.Task[Any]

    @property
    def is_old(self) -> bool:
        """One that could not be given is so at once."""
        task = self.task
        failed = task.done() and (task.cancelled() or task.exception() is not None)
        return failed or self.at + FRESH < time.monotonic()


class KeyRing:
    """For use on one loop."""

    def __init__(self, keys: KeyStore, threads: ThreadPool, clock: Clock, seal: Seal) -> None:
        self.seal = seal
        self._keys = keys
        self._threads = threads
        self._clock = clock
        #: By the id of the key; that of `None`: whether there are any.
        self._answers: OrderedDict[str | None, _Answer] = OrderedDict()
        #: `None`: never been told.
        self._in_use: bool | None = None

    async def in_use(self) -> bool:
        """Whether there are keys. Once there are it stays so. Raises `UnavailableError` if that was never known."""
        if not self._in_use:
            asked = self._ask(None, self._keys.any)
            if self._in_use is False and not asked.done():
                await asyncio.wait({asked}, timeout=_PATIENCE)
            self._in_use = await self._told(asked)
        return self._in_use

    async def caller(self, text: str) -> Caller:
        """Raises `WrongKeyError`, `UnavailableError`."""
        token = read_token(text)
        key = await self._key(token.key_id) if token else None
        if token is None or not token.opens(key) or key is None or not key.is_valid(self._clock()):
            raise WrongKeyError("this key is not valid; `discoverybot keys list` on the server shows those that are")
        return Caller.with_key(key)

    def remembers(self, text: str) -> bool:
        """Whether this is a key that was right when it was last asked for; nobody is asked."""
        token = read_token(text)
        return token is not None and token.opens(self._remembered(token.key_id))

    def remembers_stream(self, text: str, job_id: str) -> bool:
        """The same of a stream token."""
        token = read_stream_token(text)
        key = self._remembered(token.key_id) if token else None
        return token is not None and key is not None and token.opens(job_id, key, self._clock(), self.seal)

    def remembers_session(self, session: ConsoleSession) -> bool:
        """The same of a session."""
        key = self._remembered(session.key_id)
        return key is not None and session.opens(key, self._clock(), self.seal)

    async def stream_caller(self, text: str, job_id: str) -> Caller:
        """Raises `WrongKeyError` for a token that does not open this job's stream (any more); `UnavailableError`."""
        token, now = read_stream_token(text), self._clock()
        key = await self._key(token.key_id) if token else None
        if token is None or key is None or not key.is_valid(now) or not token.opens(job_id, key, now, self.seal):
            raise WrongKeyError(f"this token does not open this stream: POST /jobs/{job_id}/stream-token gives one")
        return Caller.with_key(key)

    async def session_caller(self, session: ConsoleSession) -> Caller:
        """Raises `WrongKeyError` for one that has ended; `UnavailableError`."""
        key, now = await self._key(session.key_id), self._clock()
        if key is None or not key.is_valid(now) or not session.opens(key, now, self.seal):
            raise WrongKeyError("this session has ended: POST /session with a key begins another")
        return Caller.with_key(key)

    async def end_session(self, session: ConsoleSession) -> None:
        """For this process from now on, for others within seconds. Raises `UnavailableError`."""
        ending = self._answered(self._keys.end_session, session.key_id, session.id, session.expires_at)
        await asyncio.shield(asyncio.create_task(ending))
        self._answers.pop(session.key_id, None)

    async def until_over(self, key: ApiKey, session: ConsoleSession | None = None) -> None:
        """Returns some seconds after the key, or the session, came to its end, at the latest. While the database is
        away what was known last counts.
        """
        while key.is_valid(now := self._clock()) and (session is None or session.opens(key, now, self.seal)):
            await asyncio.sleep(_LOOK)
            with suppress(UnavailableError):
                key = await self._key(key.id) or key._replace(revoked_at=now)

    async def _key(self, key_id: str) -> ApiKey | None:
        key: ApiKey | None = await asyncio.shield(self._ask(key_id, self._keys.use, key_id))
        return key

    def _remembered(self, key_id: str) -> ApiKey | None:
        """The key, if it was good when it was last asked for, and nothing that is known speaks against it since;
        nobody is asked.
        """
        answer = self._answers.get(key_id)
        if answer is None or not answer.task.done() or answer.task.cancelled() or answer.task.exception():
            return None
        key: ApiKey | None = answer.task.result()
        return key if key and key.is_valid(self._clock()) else None

    async def _told(self, asked: asyncio.Task[Any]) -> bool:
        if self._in_use is False and not asked.done():
            return False
        try:
            return bool(await asyncio.shield(asked))
        except UnavailableError:
            if self._in_use is None:
                self._answers.pop(None, None)
                raise
            return self._in_use

    def _ask(self, name: str | None, question: Callable[..., Any], *arguments: Any) -> asyncio.Task[Any]:
        """Those who ask the same at the same time share one answer."""
        answer = self._answers.get(name)
        if answer is None or answer.is_old:
            task = asyncio.create_task(self._answered(question, *arguments))
            answer = self._answers[name] = _Answer(time.monotonic(), task)
            self._answers.move_to_end(name)
            # whoever asked may be gone by then
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            if len(self._answers) > _MOST:
                self._answers.popitem(last=False)
        return answer.task

    async def _answered(self, question: Callable[..., Any], *arguments: Any) -> Any:
        with truth_store_errors():
            return await self._threads.run(question, *arguments)
