"""Crash points: named places at which a test can kill a process, before and after every write that changes state.

`DISCOVERYBOT_CRASH_PLAN` names a folder with a file for each crash point that is to fire. A process that reaches such
a point removes the file, so that the point fires once, and sends itself the signal that the file names; an empty file
means SIGKILL. Without the variable nothing happens.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

Params = ParamSpec("Params")
Result = TypeVar("Result")

_VARIABLE = "DISCOVERYBOT_CRASH_PLAN"
#: The names of all decorated writes; filled when modules are imported.
STATE_CHANGES: set[str] = set()


def crash_point(name: str) -> None:
    """Kill or stop this process here, if the plan says so."""
    if not (plan := os.environ.get(_VARIABLE)):
        return
    point = Path(plan) / name
    try:
        signal_name = point.read_text() or "SIGKILL"
        point.unlink()
    except FileNotFoundError:
        return
    # send the signal to this thread: if another thread got it, this one would continue for a moment
    signal.pthread_kill(threading.get_ident(), signal.Signals[signal_name])


def _around_coroutine(name: str, function: Callable[Params, Awaitable[Any]]) -> Callable[Params, Awaitable[Any]]:
    @functools.wraps(function)
    async def wrapper(*args: Params.args, **kwargs: Params.kwargs) -> Any:
        crash_point(f"{name}.before")
        result = await function(*args, **kwargs)
        crash_point(f"{name}.after")
        return result

    return wrapper


def state_change(name: str) -> Callable[[Callable[Params, Result]], Callable[Params, Result]]:
    """Mark a function that writes: `<name>.before` and `<name>.after` become crash points.

    Every function of the platform and of nodes that calls a writing method of a driver must have this decorator. A
    test reads the source to check this.
    """
    STATE_CHANGES.add(name)

    def decorate(function: Callable[Params, Result]) -> Callable[Params, Result]:
        if _VARIABLE not in os.environ:
            return function
        if inspect.iscoroutinefunction(function):
            return cast("Callable[Params, Result]", _around_coroutine(name, function))

        @functools.wraps(function)
        def wrapper(*args: Params.args, **kwargs: Params.kwargs) -> Result:
            crash_point(f"{name}.before")
            result = function(*args, **kwargs)
            crash_point(f"{name}.after")
            return result

        return wrapper

    return decorate
