"""Named places where a test can have the process killed: before and after every write that changes state.

A *plan* is a folder with one file for each crash point that is to fire. A process that reaches such a point removes
the file, so that each fires once, and sends itself the signal that the file names, or SIGKILL if it is empty. Without
`DISCOVERYBOT_CRASH_PLAN` nothing happens.
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
#: The name of every decorated write; filled as modules are imported.
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
    # to this thread, because if another thread got the signal, this one would go on for a moment
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

    Every function of the platform and of the node that calls a writing method of a driver must have this decorator: a
    test reads the source, and fails if one does not.
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
