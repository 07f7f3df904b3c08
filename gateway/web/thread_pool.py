"""A bounded set of threads for one kind of blocking call, so that one kind never starves another."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from typing import ParamSpec, TypeVar

from gateway.storage.client import within

Params = ParamSpec("Params")
Result = TypeVar("Result")
Check = Callable[[], None]


class CheckedExecutor(ThreadPoolExecutor):
    """Calls `check` when it is given a call, and again before it makes it: that may be a while later. What `check`
    raises is raised at once, and comes of the call.
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
        """`check` raises what whoever needs the threads is to be told while they would be of no use. `seconds` is
        what the stores have for a call in all, instead of for each operation.
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
