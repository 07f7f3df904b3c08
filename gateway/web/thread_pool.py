"""A bounded set of threads for one kind of blocking call, so that one kind never starves another."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Params = ParamSpec("Params")
Result = TypeVar("Result")


class ThreadPool:
    def __init__(self, threads: int, name: str) -> None:
        self.executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, function: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Call `function` in one of the threads, with the caller's context (the request's id, for the log)."""
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self.executor, call)

    def close(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)
